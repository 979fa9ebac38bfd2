"""Where time is read.

Two readings, never mixed: `monotonic` for durations, leases, queues and back-off; `now` only for timestamps that are
written to the API. `LoopClock.monotonic` is the loop's own `time()`, so a virtual-time loop moves clock and timers together.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Final, Protocol

_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Of Linux; CLOCK_MONOTONIC of macOS counts suspensions too."""


class Clock(Protocol):
    """The two readings of time."""

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start; never goes back."""
        ...

    def now(self) -> datetime:
        """Return the wall clock's time, timezone-aware, in UTC."""
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
    """The real clock of a lease: unlike the loop's time, it advances while the machine is suspended or hibernates."""

    __slots__ = ()

    def monotonic(self) -> float:
        """Return the seconds since the machine was booted, suspensions included."""
        return time.clock_gettime(_BOOTTIME)
