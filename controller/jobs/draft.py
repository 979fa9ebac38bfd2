"""What the drafts of a status have in common in both dialects: conditions, times, and the events about what is new. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.conditions import Conditions
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.problems import JobEvent


class Draft:
    """A status that is being computed. Its times are whole seconds, like all times of the API."""

    __slots__ = ("_whole", "completion_time", "conditions", "events", "now", "start_time")

    def __init__(self, found: Conditions, started: datetime | None, completed: datetime | None, now: datetime) -> None:
        """Open a draft on a status with these conditions and times. `now` is the exact time, by which limits are computed."""
        self._whole = now.replace(microsecond=0)
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
        self.conditions = conditions.set_true(self.conditions, condition, reason, message, self._whole)

    def set_held(self, status: str, reason: ConditionReason, message: str) -> bool:
        """Set Held to True or False. Return whether that changed anything."""
        before = self.conditions
        self.conditions = conditions.set_held(before, status, reason, message, self._whole)
        return self.conditions is not before

    def start(self, pods: Iterable[Pod] = ()) -> None:
        """Set the start time, unless it is set. An earlier leader, which did not record it, may have created `pods`."""
        if self.start_time is None:
            live = (pod.metadata.creation_timestamp for pod in pods if pod.metadata.deletion_timestamp is None)
            self.start_time = min([self._whole, *(created for created in live if created is not None)])

    def complete(self, at: datetime | None) -> None:
        """Set the completion time: when the deciding container ended, if one did. Kubelets have clocks of their own."""
        self.start_time = self.start_time or self._whole
        self.completion_time = max(self.start_time, min(at or self._whole, self._whole))
