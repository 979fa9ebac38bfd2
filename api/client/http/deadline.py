"""A time limit that is moved with every request, though its timer is hardly ever set anew."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Deadline:
    """Calls `expire` when the deadline that was set last has come.

    Deadlines mostly move forward and are hardly ever reached. So one timer stays where it is, and checks when it fires
    whether the deadline has moved on: an exchange costs a comparison instead of a timer that is created, sorted in and
    cancelled.
    """

    __slots__ = ("_at", "_expire", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, expire: Callable[[], None]) -> None:
        self._loop = loop
        self._expire = expire
        self._at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Move the deadline to a moment of the loop's clock; infinity takes it away."""
        self._at = at
        timer = self._timer
        if timer is None:
            if at < math.inf:
                self._timer = self._loop.call_at(at, self._look)
        elif timer.when() > at:
            timer.cancel()
            self._timer = self._loop.call_at(at, self._look)

    def cancel(self) -> None:
        """Remove the deadline and its timer."""
        self._at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        # The loop rounds up by its clock's resolution, so the timer's own moment counts, not what the clock says now.
        due = self._timer is not None and self._timer.when() >= self._at
        self._timer = None
        if due:
            self._at = math.inf
            self._expire()
        else:
            self.set(self._at)
