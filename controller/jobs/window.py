"""How long a less important status write is delayed, so that one write carries more changes: it costs as much as two pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COUNTER_WINDOW_S: Final = 1.0
"""How long a status waits in which only counters changed."""

START_WINDOW_S: Final = 5.0
"""How long it waits where pods have only become active, and other jobs are in the queue: in a burst the pods of a job start
one after the other, and one write reports them all. When no other job waits, COUNTER_WINDOW_S applies (U12). What a
pod's end proves never waits that long."""


@dataclass(slots=True)
class Window:
    """The delay of one job's status write. Times are seconds of one monotonic clock.

    `opened_at` is when the first change began to wait, `write_by` when the status must be written at the latest.
    """

    opened_at: float | None = None
    write_by: float | None = None

    def left_s(self, now: float, *, starts: bool, busy: bool) -> float:
        """Return for how many seconds a status that is computed now still waits; 0 or less means: write it now.

        starts: it differs only in that more pods are active.
        busy: other jobs wait for a worker.
        """
        if self.opened_at is None:
            self.opened_at = now
        if starts:
            latest = self.opened_at + (START_WINDOW_S if busy else COUNTER_WINDOW_S)
        else:
            latest = self.write_by = now + COUNTER_WINDOW_S if self.write_by is None else self.write_by
        return (latest if self.write_by is None else min(latest, self.write_by)) - now

    def close(self) -> None:
        """End the wait: the status is written."""
        self.opened_at = self.write_by = None
