"""How long to wait before the next attempt at something that keeps failing.

One `Backoff` paces one activity, such as opening a watch. It does not sleep, count attempts or give up: its owner does.
Back-off per key is `rate_limiters.ItemExponentialFailureRateLimiter`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfjob_operator.workqueue.clock import Clock


class Backoff:
    """Exponential back-off with jitter that starts over after a quiet period (RF-22, RF-23).

    Invariants:
    - the base of the first step is `initial_s`, that of each other one `factor` times its predecessor's, but at most `cap_s`;
    - a step returns its base plus a random part of up to `jitter` times the base, so `cap_s` bounds the base and not the
      result: with the defaults the steps are 0.8-1.6 s, 1.6-3.2 s, ... 25.6-51.2 s, and 30-60 s from then on;
    - more than `reset_after_s` after the latest step, the next one starts over.

    The quiet period is measured from the latest step (client-go 1.20). Newer client-go measures it from the latest reset,
    and so falls back to 0.8 s every two minutes in the middle of an outage.
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
