"""Clocks.

`monotonic` is for durations, leases, queues and back-off; `now` is only for timestamps written to the API. The two are never
mixed. `LoopClock.monotonic` returns the loop's `time()`, so that a virtual-time loop controls clock and timers together.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Final, Protocol

_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux only. On macOS, CLOCK_MONOTONIC already includes time spent suspended."""


class Clock(Protocol):
    """A monotonic clock and a wall clock."""

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start. Never decreases."""
        ...

    def now(self) -> datetime:
        """Return the wall-clock time, timezone-aware, in UTC."""
        ...


class LoopClock:
    """The real clock: the running loop's time (CLOCK_MONOTONIC on a stock loop) and the system's wall clock."""

    __slots__ = ()

    def monotonic(self) -> float:
        """Return the running loop's time in seconds. Raises RuntimeError outside a running loop."""
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        """Return the system's wall clock in UTC."""
        return datetime.now(UTC)


class LeaseClock(LoopClock):
    """The real clock for leases: unlike the loop's time, it advances while the machine is suspended."""

    __slots__ = ()

    def monotonic(self) -> float:
        """Return the seconds since boot, including time spent suspended."""
        return time.clock_gettime(_BOOTTIME)
