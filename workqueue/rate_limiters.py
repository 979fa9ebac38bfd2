"""Rate limiters and back-off: how long an item or an activity waits before its next attempt.

A limiter returns a delay for each item and keeps its failure counts. `Backoff` paces a single activity, such as opening a
watch. None of them sleeps, except `TokenBucket.wait`, which is for callers that pace themselves, such as an API client.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from tfjob_operator.workqueue.clock import Clock, LoopClock

T_contra = TypeVar("T_contra", bound=Hashable, contravariant=True)
LARGEST_EXPONENT = 1023  # 2.0 ** 1024 raises OverflowError; Go's math.Pow returns infinity


class RateLimiter(Protocol[T_contra]):
    """Decides how long an item waits before its next attempt."""

    def when(self, item: T_contra) -> float:
        """Count an attempt for `item` and return the seconds to wait before it."""
        ...

    def forget(self, item: T_contra) -> None:
        """Reset the count of `item`: it succeeded, or will not be retried."""
        ...

    def num_requeues(self, item: T_contra) -> int:
        """Return the number of attempts counted for `item` since it was last forgotten."""
        ...


class TokenBucket:
    """A rate limit with bursts: at most `burst` tokens, initially full, refilled at `rate` tokens per second.

    Invariants:
    - within t seconds of its creation, at most `burst + rate * t` tokens are granted;
    - a token may be granted in advance: the balance becomes negative, and the caller waits until the bucket is refilled to
      zero;
    - of the callers in `wait`, only the first has been granted a token. If this caller is cancelled, the token is returned and
      no other caller is delayed; the others follow in the order of their calls.
    """

    __slots__ = ("_burst", "_clock", "_filled_at", "_rate", "_tokens", "_turn")

    def __init__(self, rate: float, burst: int, *, clock: Clock | None = None) -> None:
        """Create a full bucket. Raises ValueError unless `rate` (tokens per second) is positive and `burst` is at least 1."""
        if not 0 < rate < math.inf or burst < 1:
            raise ValueError(f"a token bucket needs a positive rate and a burst of at least 1, not {rate} and {burst}")
        self._rate = rate
        self._burst = burst
        self._clock = clock or LoopClock()
        self._tokens = float(burst)
        self._filled_at = -math.inf  # starts full; the clock is read only at first use, so no loop is needed until then
        self._turn = asyncio.Lock()

    def reserve(self) -> float:
        """Take a token and return the seconds until the caller may use it."""
        self._fill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    async def wait(self) -> None:
        """Take a token, waiting until it is available.

        Cancel-safe. Does not suspend if a token is available and no other caller waits.
        """
        async with self._turn:
            delay = self.reserve()
            if delay > 0:
                try:
                    await asyncio.sleep(delay)
                except BaseException:  # cancelled or closed: return the unused token
                    self._tokens += 1
                    raise

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now


class ItemExponentialFailureRateLimiter:
    """Per item: `base_delay_s * 2 ** failures`, at most `max_delay_s`.

    Invariant: an item is stored from its first failure until `forget`, so callers must call `forget`.
    """

    __slots__ = ("_base_delay", "_failures", "_max_delay")

    def __init__(self, base_delay_s: float = 0.005, max_delay_s: float = 1000.0) -> None:
        """Start with no failures.

        5 ms suits a write conflict; after the cause of a failure is repaired, the retry comes within 1000 s. Raises ValueError
        unless both delays are positive: without a delay, an item that fails would be retried in a hot loop.
        """
        if not (base_delay_s > 0 and max_delay_s > 0):
            raise ValueError(f"delays must be positive, got {base_delay_s} s and {max_delay_s} s")
        self._base_delay = base_delay_s
        self._max_delay = max_delay_s
        self._failures: dict[Hashable, int] = {}

    def when(self, item: Hashable) -> float:
        """Count a failure of `item` and return its delay in seconds."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        return min(self._base_delay * 2.0 ** min(failures, LARGEST_EXPONENT), self._max_delay)

    def forget(self, item: Hashable) -> None:
        """Reset the failures of `item`."""
        self._failures.pop(item, None)

    def num_requeues(self, item: Hashable) -> int:
        """Return the number of failures of `item` since it was last forgotten."""
        return self._failures.get(item, 0)


class BucketRateLimiter:
    """One rate for all items; keeps no per-item state."""

    __slots__ = ("_bucket",)

    def __init__(self, bucket: TokenBucket) -> None:
        """Take tokens from `bucket`, which may be shared."""
        self._bucket = bucket

    def when(self, item: Hashable) -> float:
        """Take a token and return the seconds until it is available."""
        return self._bucket.reserve()

    def forget(self, item: Hashable) -> None:
        """Do nothing: tokens are not returned."""

    def num_requeues(self, item: Hashable) -> int:
        """Return 0."""
        return 0


class MaxOfRateLimiter(Generic[T_contra]):
    """The strictest of several limiters; each counts every attempt."""

    __slots__ = ("_limiters",)

    def __init__(self, *limiters: RateLimiter[T_contra]) -> None:
        """Combine `limiters`. Without any, nothing is delayed."""
        self._limiters = limiters

    def when(self, item: T_contra) -> float:
        """Count the attempt in every limiter and return the longest delay in seconds."""
        return max((limiter.when(item) for limiter in self._limiters), default=0.0)

    def forget(self, item: T_contra) -> None:
        """Reset `item` in every limiter."""
        for limiter in self._limiters:
            limiter.forget(item)

    def num_requeues(self, item: T_contra) -> int:
        """Return the highest count of any limiter."""
        return max((limiter.num_requeues(item) for limiter in self._limiters), default=0)


class WithMaxWaitRateLimiter(Generic[T_contra]):
    """A limiter whose delays are capped at `max_delay_s`."""

    __slots__ = ("_limiter", "_max_delay")

    def __init__(self, limiter: RateLimiter[T_contra], max_delay_s: float) -> None:
        """Cap the delays of `limiter` at `max_delay_s` seconds. Raises ValueError unless that is positive."""
        if not max_delay_s > 0:
            raise ValueError(f"the longest delay must be positive, got {max_delay_s} s")
        self._limiter = limiter
        self._max_delay = max_delay_s

    def when(self, item: T_contra) -> float:
        """Count the attempt and return its delay in seconds, at most the cap."""
        return min(self._limiter.when(item), self._max_delay)

    def forget(self, item: T_contra) -> None:
        """Reset `item` in the limiter."""
        self._limiter.forget(item)

    def num_requeues(self, item: T_contra) -> int:
        """Return the limiter's count."""
        return self._limiter.num_requeues(item)


def default_controller_rate_limiter(
    *, max_delay_s: float = 1000.0, clock: Clock | None = None
) -> MaxOfRateLimiter[Hashable]:
    """Return client-go's default: exponential per item, and a bucket for all items.

    An item's own delay is at most `max_delay_s`. The bucket (10/s, bursts of 100) limits requeues only, not first adds: it
    matters when all items fail at once.
    """
    return MaxOfRateLimiter(
        ItemExponentialFailureRateLimiter(base_delay_s=0.005, max_delay_s=max_delay_s),
        BucketRateLimiter(TokenBucket(rate=10, burst=100, clock=clock)),
    )


class Backoff:
    """Exponential back-off with jitter, reset after a quiet period.

    Invariants:
    - the base of the first step is `initial_s`; each further base is `factor` times the previous one, at most `cap_s`;
    - a step returns its base plus a random part of up to `jitter` times the base. So `cap_s` bounds the base and not the
      result: with the defaults, steps are 0.8-1.6 s, 1.6-3.2 s, ... 25.6-51.2 s, and then 30-60 s;
    - the back-off starts over at a step that is taken more than `reset_after_s` after the previous step.

    The quiet period is measured from the previous step (client-go 1.20), so an outage does not reset the back-off.
    """

    __slots__ = ("_base", "_cap", "_clock", "_factor", "_initial", "_jitter", "_random", "_reset_after", "_stepped_at")

    def __init__(
        self,
        initial_s: float = 0.8,  # about the time that a server needs to restart
        cap_s: float = 30.0,  # bounds the delay after an outage has ended, before jitter
        factor: float = 2.0,
        jitter: float = 1.0,  # up to twice the wait, to spread the reconnects of many clients
        reset_after_s: float = 120.0,  # twice the longest step, so a wait never counts as a time without failures
        *,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        """Start at `initial_s`. `random` returns a float in [0, 1), like `random.random`.

        Raises ValueError if the delays would not be positive, or shrink.
        """
        if not (initial_s > 0 and cap_s > 0 and factor >= 1 and jitter >= 0):
            raise ValueError(f"a back-off cannot have {initial_s=}, {cap_s=}, {factor=}, {jitter=}")
        self._initial = initial_s
        self._cap = cap_s
        self._factor = factor
        self._jitter = jitter
        self._reset_after = reset_after_s
        self._clock = clock
        self._random = random
        self._base = initial_s
        self._stepped_at = -math.inf

    def next(self) -> float:
        """Take a step and return the seconds to wait before the next attempt."""
        now = self._clock.monotonic()
        if now - self._stepped_at > self._reset_after:
            self.reset()
        self._stepped_at = now
        base = min(self._base, self._cap)
        self._base = base * self._factor
        return base + base * self._jitter * self._random()

    def reset(self) -> None:
        """Start over at `initial_s`."""
        self._base = self._initial
