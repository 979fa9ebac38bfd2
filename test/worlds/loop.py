"""An event loop that runs exactly until every task waits for something from outside, and that never waits itself."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque


class StepLoop(asyncio.BaseEventLoop):
    """Time passes only in `pass_time`."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def reset(self) -> None:
        """Begin anew at time 0, with nothing to do."""
        self.now = 0.0
        self._ready.clear()
        self._scheduled.clear()

    def settle(self) -> None:
        """Run whatever can run."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while self._ready:
                handle = self._ready.popleft()
                if not handle._cancelled:
                    handle._run()
        finally:
            events._set_running_loop(before)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and run what is due then."""
        self.now += seconds
        due = sorted(handle for handle in self._scheduled if handle.when() <= self.now)
        self._scheduled = [handle for handle in self._scheduled if handle.when() > self.now]
        self._ready.extend(due)
        self.settle()
