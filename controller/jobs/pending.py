"""The status of a job from its computation until the cache shows it, in both dialects.

A plan *computes* a status. Its write may be *delayed*: a status write costs the API server as much as creating two pods, so
less important changes are coalesced (`Window`). Once a write was *sent*, the job may have a status even if no response arrives.
After the response the status is *known*: the job of the response replaces the versions that the write replaced, until the watch
delivers another one. Resource versions are compared only for equality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tfjob_operator.api.v1.types import JobStatus, TFJob
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaStatus
from tfjob_operator.controller.jobs.draft import JobEvent

COUNTER_WINDOW_S: Final = 1.0
"""How long a status is delayed if only counters changed."""
START_WINDOW_S: Final = 5.0
"""How long it is delayed if pods have only become active and other jobs are queued: in a burst, the pods of a job start one
after another, and one write reports them all. If no other job is queued, COUNTER_WINDOW_S applies. The end of a pod is
never delayed that long."""


@dataclass(slots=True)
class Window:
    """The delay of a job's status write, in monotonic time: a change pending since `opened_at` is due at `write_by`."""

    opened_at: float | None = None
    write_by: float | None = None

    def left_s(self, now: float, *, starts: bool, busy: bool) -> float:
        """Return for how many seconds a status computed now is delayed; 0 or less to write it now.

        `starts`: the only change in the status is that more pods are active.
        busy: other jobs are queued.
        """
        if self.opened_at is None:
            self.opened_at = now
        if starts:
            latest = self.opened_at + (START_WINDOW_S if busy else COUNTER_WINDOW_S)
        else:
            latest = self.write_by = now + COUNTER_WINDOW_S if self.write_by is None else self.write_by
        return (latest if self.write_by is None else min(latest, self.write_by)) - now


J = TypeVar("J", TFJob, AlphaJob)
S = TypeVar("S", JobStatus, AlphaStatus)


class PendingStatus(Generic[J, S]):
    """The states of one job's status: computed, delayed, sent, known. Kept between syncs, and lost with the process."""

    __slots__ = ("_known", "_replaced", "_window", "events", "unwritten", "was_sent")

    def __init__(self) -> None:
        self.unwritten: S | None = None
        """The last computed status that is not known to be stored. The pods that it reports may be gone at the next sync."""
        self.events: Sequence[JobEvent] = ()
        """The events of `unwritten`."""
        self.was_sent = False
        """True once a write was tried: regardless of the response, the job may have a status."""
        self._window: Window | None = None
        self._known: J | None = None
        self._replaced: set[str] = set()

    def computed(self, status: S | None, events: Sequence[JobEvent] = ()) -> None:
        """Keep a status that is not written yet, and its events. None: there is nothing to write."""
        self.unwritten, self.events = status, events
        if status is None:
            self._window = None

    def delayed_s(self, now: float, *, starts: bool, busy: bool) -> float:
        """Return for how many seconds the status is delayed; 0 or less to write it now. See `Window.left_s`."""
        if self._window is None:
            self._window = Window()
        return self._window.left_s(now, starts=starts, busy=busy)

    def sent(self) -> None:
        """Record that a write is about to be sent."""
        self.was_sent = True

    def known(self, before: J, after: J | None) -> None:
        """Record the response to the write that changed `before` to `after`; None if the job is gone."""
        self.unwritten = self._window = None
        self._replaced.add(before.metadata.resource_version)
        self._known = after

    def newest(self, cached: J) -> J | None:
        """Return the job of our last write while the cache has a version that a write of ours replaced, else None."""
        if self._known is not None and cached.metadata.resource_version in self._replaced:
            return self._known
        self._known = None
        self._replaced.clear()
        return None
