"""Retrying at once, but only for a while (RF-19)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tfjob_operator.workqueue.clock import Clock

QUIET_S: Final = 60.0
"""RF-19: after a minute without a fault the next one opens a new window."""


class RetryWindow:
    """Whether a fault may be retried at once: yes, for `window_s` seconds from the first of a series of faults."""

    def __init__(self, window_s: float, clock: Clock) -> None:
        self._window = window_s
        self._clock = clock
        self._first = self._latest = -math.inf

    def allows(self) -> bool:
        """Note a fault now, and return whether it may be retried at once."""
        now = self._clock.monotonic()
        if now - self._latest > QUIET_S:
            self._first = now
        self._latest = now
        return now - self._first < self._window
