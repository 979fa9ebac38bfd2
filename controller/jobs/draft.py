"""The status of a job, in both dialects: what its drafts have in common, and how long a write waits. Pure.

A draft has conditions, times, and the events about what is new. A status write costs as much as creating two pods, so a less
important one is delayed until it carries more changes (`Window`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.conditions import Conditions
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType
from tfjob_operator.controller.jobs.children import Pod


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event on the job. Events of a plan are recorded once its status is written, that of a pod's deletion before it."""

    type: str
    reason: str
    message: str


class Draft:
    """A status that is being computed. Its times are whole seconds, like all times of the API."""

    __slots__ = ("completion_time", "conditions", "events", "now", "start_time", "whole")

    def __init__(self, found: Conditions, started: datetime | None, completed: datetime | None, now: datetime) -> None:
        """Open a draft on a status with these conditions and times. `now` is the exact time, by which limits are computed.

        `whole` is that time in whole seconds.
        """
        self.whole = now.replace(microsecond=0)
        self.now = now
        self.conditions = found
        self.start_time = started
        self.completion_time = completed
        self.events: list[JobEvent] = []

    def emit(self, event_type: EventType, reason: str, message: str) -> None:
        """Add an event, to be recorded when the status is on the server."""
        self.events.append(JobEvent(event_type, reason, message))

    def set_true(self, condition: ConditionType, reason: ConditionReason, message: str) -> None:
        """Make a condition True, by the rules of `conditions.set_true`."""
        self.conditions = conditions.set_true(self.conditions, condition, reason, message, self.whole)

    def set_held(self, status: str, reason: ConditionReason, message: str) -> bool:
        """Set Held to True or False. Return whether that changed anything."""
        before = self.conditions
        self.conditions = conditions.set_held(before, status, reason, message, self.whole)
        return self.conditions is not before

    def start(self, pods: Iterable[Pod] = ()) -> None:
        """Set the start time, unless it is set. An earlier leader, which did not record it, may have created `pods`."""
        if self.start_time is None:
            live = (pod.metadata.creation_timestamp for pod in pods if pod.metadata.deletion_timestamp is None)
            self.start_time = min([self.whole, *(created for created in live if created is not None)])

    def complete(self, at: datetime | None) -> None:
        """Set the completion time: when the deciding container ended, if one did. Kubelets have clocks of their own."""
        self.start_time = self.start_time or self.whole
        self.completion_time = max(self.start_time, min(at or self.whole, self.whole))


COUNTER_WINDOW_S: Final = 1.0
"""How long a status waits in which only counters changed."""
START_WINDOW_S: Final = 5.0
"""How long it waits where pods have only become active, and other jobs are in the queue: in a burst the pods of a job start
one after the other, and one write reports them all. When no other job waits, COUNTER_WINDOW_S applies (U12). What a
pod's end proves never waits that long."""


@dataclass(slots=True)
class Window:
    """The delay of a job's status write, by one monotonic clock: since `opened_at` a change waits, `write_by` it is written."""

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
