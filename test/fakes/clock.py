"""A clock that a synchronous test moves by hand."""

from __future__ import annotations

from datetime import datetime, timedelta

from fakes.virtual_loop import EPOCH


class FakeClock:
    """`workqueue.clock.Clock` for tests without a loop: stands still until `step`."""

    def __init__(self) -> None:
        self._elapsed = 0.0

    def step(self, seconds: float) -> None:
        """Move both readings forward by `seconds`."""
        self._elapsed += seconds

    def monotonic(self) -> float:
        return self._elapsed

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._elapsed)
