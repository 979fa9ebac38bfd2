"""How long an item, or an activity, waits before it may be tried again.

Each limiter returns a delay per item and keeps the counts for it. `Backoff` paces one activity, such as opening a watch.
None of them sleeps, except `TokenBucket.wait`, for callers that pace themselves, such as an API client.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from tfjob_operator.workqueue.clock import Clock, LoopClock

T_contra = TypeVar("T_contra", bound=Hashable, contravariant=True)
LARGEST_EXPONENT = 1023  # 2.0 ** 1024 raises OverflowError (Go's math.Pow returns infinity); a product just becomes inf


class RateLimiter(Protocol[T_contra]):
    """Decides the delay of an item's next try."""

    def when(self, item: T_contra) -> float:
        """Count one more try of `item` and return the seconds to wait before it."""
        ...

    def forget(self, item: T_contra) -> None:
        """Drop what is remembered of `item`: it succeeded, or was given up."""
        ...

    def num_requeues(self, item: T_contra) -> int:
        """Return how many tries of `item` were counted since it was last forgotten."""
        ...


class TokenBucket:
    """A rate with bursts: holds at most `burst` tokens, starts full, gains `rate` of them per second.

    Invariants:
    - from its start, in t seconds, no more than `burst + rate * t` tokens are granted;
    - a token may be granted before it is there: the bucket then holds less than none, and the caller waits for as long;
    - of those in `wait` only the first has a token granted, so a cancelled wait gives it back and delays nobody; the
      others follow in the order of their calls.
    """

    __slots__ = ("_burst", "_clock", "_filled_at", "_rate", "_tokens", "_turn")

    def __init__(self, rate: float, burst: int, *, clock: Clock | None = None) -> None:
        """Start full. Raises ValueError unless `rate` (tokens per second) is positive and `burst` is at least 1."""
        if rate <= 0 or burst < 1:
            raise ValueError(f"a token bucket needs a positive rate and a burst of at least 1, not {rate} and {burst}")
        self._rate = rate
        self._burst = burst
        self._clock = clock or LoopClock()
        self._tokens = float(burst)
        self._filled_at = -math.inf  # the first look finds it full; until then no clock is read, and no loop is needed
        self._turn = asyncio.Lock()

    def reserve(self) -> float:
        """Take a token and return the seconds until the caller may use it."""
        self._fill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    async def wait(self) -> None:
        """Take a token and return when it is there. Safe to cancel. Does not suspend when one is there and nobody waits."""
        async with self._turn:
            delay = self.reserve()
            if delay > 0:
                try:
                    await asyncio.sleep(delay)
                except BaseException:  # cancelled, or closed: the token was not used
                    self._tokens += 1
                    raise

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now


class ItemExponentialFailureRateLimiter:
    """`base_delay_s * 2 ** failures`, at most `max_delay_s`, for each item by itself (RL-01).

    Invariant: an item is remembered from its first failure until `forget`, so callers have to forget.
    """

    __slots__ = ("_base_delay", "_failures", "_max_delay")

    def __init__(self, base_delay_s: float = 0.005, max_delay_s: float = 1000.0) -> None:
        """Start with no failures. RL-01: 5 ms hides a conflict, and 1000 s is as long as a fixed cause may go unseen."""
        self._base_delay = base_delay_s
        self._max_delay = max_delay_s
        self._failures: dict[Hashable, int] = {}

    def when(self, item: Hashable) -> float:
        """Count one more failure of `item` and return its delay in seconds."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        return min(self._base_delay * 2.0 ** min(failures, LARGEST_EXPONENT), self._max_delay)

    def forget(self, item: Hashable) -> None:
        """Let the delays of `item` start over."""
        self._failures.pop(item, None)

    def num_requeues(self, item: Hashable) -> int:
        """Return the failures of `item` since it was last forgotten."""
        return self._failures.get(item, 0)


class BucketRateLimiter:
    """One rate for all items together; it knows nothing of any of them (RL-02)."""

    __slots__ = ("_bucket",)

    def __init__(self, bucket: TokenBucket) -> None:
        """Draw on `bucket`, which may be shared."""
        self._bucket = bucket

    def when(self, item: Hashable) -> float:
        """Take a token and return the seconds until it is there."""
        return self._bucket.reserve()

    def forget(self, item: Hashable) -> None:
        """Do nothing: a token that was taken is gone."""

    def num_requeues(self, item: Hashable) -> int:
        """Return 0."""
        return 0


class MaxOfRateLimiter(Generic[T_contra]):
    """The strictest of several limiters, each of which counts every try (RL-03)."""

    __slots__ = ("_limiters",)

    def __init__(self, *limiters: RateLimiter[T_contra]) -> None:
        """Combine `limiters`; with none, nothing is ever delayed."""
        self._limiters = limiters

    def when(self, item: T_contra) -> float:
        """Charge every limiter and return the longest delay in seconds."""
        return max((limiter.when(item) for limiter in self._limiters), default=0.0)

    def forget(self, item: T_contra) -> None:
        """Make every limiter forget `item`."""
        for limiter in self._limiters:
            limiter.forget(item)

    def num_requeues(self, item: T_contra) -> int:
        """Return the highest count."""
        return max((limiter.num_requeues(item) for limiter in self._limiters), default=0)


class WithMaxWaitRateLimiter(Generic[T_contra]):
    """Another limiter whose delays are cut at `max_delay_s` (RL-05)."""

    __slots__ = ("_limiter", "_max_delay")

    def __init__(self, limiter: RateLimiter[T_contra], max_delay_s: float) -> None:
        """Cut the delays of `limiter` at `max_delay_s` seconds."""
        self._limiter = limiter
        self._max_delay = max_delay_s

    def when(self, item: T_contra) -> float:
        """Charge the limiter and return its delay in seconds, or the longest allowed."""
        return min(self._limiter.when(item), self._max_delay)

    def forget(self, item: T_contra) -> None:
        """Make the limiter forget `item`."""
        self._limiter.forget(item)

    def num_requeues(self, item: T_contra) -> int:
        """Return the limiter's count."""
        return self._limiter.num_requeues(item)


def default_controller_rate_limiter(
    *, max_delay_s: float = 1000.0, clock: Clock | None = None
) -> MaxOfRateLimiter[Hashable]:
    """Return client-go's default: exponential per item, and a bucket over all (RL-01, RL-02, RL-03).

    An item's own delay is at most `max_delay_s`. The bucket (10/s, bursts of 100) bounds requeues alone, never first adds: it
    is there for the day on which all items fail.
    """
    return MaxOfRateLimiter(
        ItemExponentialFailureRateLimiter(base_delay_s=0.005, max_delay_s=max_delay_s),
        BucketRateLimiter(TokenBucket(rate=10, burst=100, clock=clock)),
    )


class Backoff:
    """Exponential back-off with jitter that starts over after a quiet period (RF-22, RF-23).

    Invariants:
    - the base of the first step is `initial_s`, that of each other one `factor` times its predecessor's, but at most `cap_s`;
    - a step returns its base plus a random part of up to `jitter` times the base, so `cap_s` bounds the base and not the
      result: with the defaults the steps are 0.8-1.6 s, 1.6-3.2 s, ... 25.6-51.2 s, and 30-60 s from then on;
    - more than `reset_after_s` after the latest step, the next one starts over.

    The quiet period is measured from the latest step (client-go 1.20), so an outage resets nothing.
    """

    __slots__ = ("_base", "_cap", "_clock", "_factor", "_initial", "_jitter", "_random", "_reset_after", "_stepped_at")

    def __init__(
        self,
        initial_s: float = 0.8,  # RF-22: a server that restarts is back in about this time
        cap_s: float = 30.0,  # RF-22: what an outage's end may add to the recovery, before jitter
        factor: float = 2.0,
        jitter: float = 1.0,  # RF-22: doubles the wait at most, so that a thousand clients do not return together
        reset_after_s: float = 120.0,  # RF-23: twice the longest step, so a sleep can never count as quiet
        *,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        """Start at `initial_s`. `random` returns a float in [0, 1), as `random.random` does."""
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
        """Start over: the next step is the first one again."""
        self._base = self._initial
