"""When a wait begins, although the clocks of machines differ. Pure.

A time in an object was written by the clock of an operator, of the API server, of a node or of a user. Only the first kind is
comparable with our clock. Waits that end in an action therefore begin as follows:

- At a time that an operator wrote: at that time. If it is in the future, a former leader's clock was ahead, and the wait begins
  when this process first saw the time. Such a wait is not over at once: clocks differ by a second in any cluster, and a job
  would fail by its deadline, or be deleted by its TTL, as it starts.
- At a time of any other clock: when this process first saw that time. So a wait never ends too early. The time itself is
  not used, except that another time is another event.

What this process first saw and when is an input and an output of each plan (`FirstSeen`). The controller keeps the output until
the next plan. A restarted operator starts these waits again.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple


class Fact(enum.Enum):
    """What an object shows."""

    WRITTEN = "a time that an operator wrote, and that is ahead of our clock"
    ABSENT = "a replica has no pod"
    POD = "a pod exists"
    STARTED = "the kubelet has accepted a pod"
    DELETED = "a pod is being deleted"
    SUCCEEDED = "the replicas that decide the job have succeeded"


class Sight(NamedTuple):
    """A fact, the UID or name of its object, and the time that the object gives for it, if any."""

    fact: Fact
    object: str = ""
    time: datetime | None = None


FirstSeen = Mapping[Sight, float]
"""When this process first saw each of these facts, in monotonic time: a change of its own wall clock ends no wait."""


class Observer:
    """Computes when waits begin. `seen` are the facts that a plan depends on, with the time of the first plan that did."""

    __slots__ = ("_before", "_monotonic_s", "now", "seen")

    def __init__(self, before: FirstSeen, now: datetime, monotonic_s: float) -> None:
        """`before` is what earlier plans have seen. `monotonic_s` is now in monotonic time."""
        self._before = before
        self.now = now
        self._monotonic_s = monotonic_s
        self.seen: dict[Sight, float] = {}

    def first_seen(self, fact: Fact, name: str = "", time: datetime | None = None) -> datetime:
        """Return when this process first saw this fact: a wait from the time of another machine begins then."""
        return self.wall(self._note(Sight(fact, name, time), self._monotonic_s))

    def begins(self, written: datetime) -> datetime:
        """Return when a wait begins that starts at a time which an operator wrote, in whole seconds: never in the future."""
        sight = Sight(Fact.WRITTEN, time=written)
        if written <= self.now and sight not in self._before:
            return written
        seen_s = self._note(sight, self._monotonic_s - self.now.microsecond / 1e6)  # a whole second, rounded down
        return min(written, (self.wall(seen_s) + _HALF_A_SECOND).replace(microsecond=0))

    def wall(self, monotonic_s: float) -> datetime:
        """Return this past time by the wall clock."""
        return self.now - timedelta(seconds=self._monotonic_s - monotonic_s)

    def _note(self, sight: Sight, monotonic_s: float) -> float:
        at_s = self.seen[sight] = self._before.get(sight, monotonic_s)
        return at_s


_HALF_A_SECOND: Final = timedelta(seconds=0.5)
