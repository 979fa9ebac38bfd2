"""What the drafts of a job's status share in both dialects: conditions, times and events. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.conditions import Conditions
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType
from tfjob_operator.controller.jobs.children import Pod


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event on the job.

    Events of a plan are recorded after its status is written. The event about a pod's deletion is recorded before the pod is
    deleted.
    """

    type: str
    reason: str
    message: str


class Draft:
    """A status being computed. Its times are whole seconds, like all times of the API."""

    __slots__ = ("completion_time", "conditions", "events", "now", "start_time", "timestamp")

    def __init__(self, found: Conditions, started: datetime | None, completed: datetime | None, now: datetime) -> None:
        """Start from these conditions and times. `now` is the exact time, by which limits are computed.

        `timestamp` is that time in whole seconds.
        """
        self.timestamp = now.replace(microsecond=0)
        self.now = now
        self.conditions = found
        self.start_time = started
        self.completion_time = completed
        self.events: list[JobEvent] = []

    def emit(self, event_type: EventType, reason: str, message: str) -> None:
        """Add an event, recorded once the status is on the server."""
        self.events.append(JobEvent(event_type, reason, message))

    def set_true(self, condition: ConditionType, reason: str, message: str) -> None:
        """Set a condition to True, by the rules of `conditions.set_true`."""
        self.conditions = conditions.set_true(self.conditions, condition, reason, message, self.timestamp)

    def set_held(self, status: str, reason: ConditionReason, message: str) -> bool:
        """Set Held to True or False. Return True if that changed anything."""
        before = self.conditions
        self.conditions = conditions.set_aside(before, ConditionType.HELD, status, reason, message, self.timestamp)
        return self.conditions is not before

    def start(self, pods: Iterable[Pod] = ()) -> None:
        """Set the start time, if unset. `pods` may have been created by an earlier leader that did not record it."""
        if self.start_time is None:
            live = (pod.metadata.creation_timestamp for pod in pods if pod.metadata.deletion_timestamp is None)
            self.start_time = min([self.timestamp, *(created for created in live if created is not None)])

    def complete(self, at: datetime | None) -> None:
        """Set the completion time: when the deciding container terminated, if one did."""
        self.completion_time = self.completion(at)
        self.start_time = self.start_time or self.timestamp

    def completion(self, at: datetime | None) -> datetime:
        """Return the completion time of a job that ends now: never before its start, as kubelets' clocks may differ."""
        return max(self.start_time or self.timestamp, min(at or self.timestamp, self.timestamp))
