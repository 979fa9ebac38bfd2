"""The status of one job while its plan is made. Pure.

A draft starts as the status that the job has, is changed in place by the functions that make the plan, and is frozen at the
end: into the status to write, or into None when nothing changed. It lives for one plan only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType
from tfjob_operator.api.v1.types import JobStatus
from tfjob_operator.controller.jobs.job_event import JobEvent
from tfjob_operator.controller.tfjob.decide.facts import counted, remembered
from tfjob_operator.controller.tfjob.decide.restarts import account

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from tfjob_operator.api.core import EventType
    from tfjob_operator.api.v1.types import Begun, IndexRestarts, ReplicaStatus, TFJob
    from tfjob_operator.controller.tfjob.decide.facts import Finished
    from tfjob_operator.controller.tfjob.decide.replicas import Replica


class StatusDraft:
    """A status that is being computed, and the events about what is new in it.

    Invariants: the job that it was opened on does not change; every time that is written is that of the plan, in whole seconds
    like all times of the API; an event is emitted beside the change that it reports.
    """

    __slots__ = (
        "_whole",
        "begun",
        "completion_time",
        "conditions",
        "events",
        "finished_indices",
        "job",
        "now",
        "replica_statuses",
        "restarts",
        "start_time",
        "worker_selector",
    )

    def __init__(self, job: TFJob, now: datetime) -> None:
        """Open a draft on the job's status. `now` is the exact time, by which limits are computed."""
        status = job.status
        self.job = job
        self._whole = now.replace(microsecond=0)
        self.now = now
        self.conditions = status.conditions
        self.replica_statuses: dict[str, ReplicaStatus] = status.replica_statuses
        self.finished_indices: dict[str, str] = status.finished_indices
        self.restarts: tuple[IndexRestarts, ...] = status.restarts
        self.begun: Begun | None = status.begun
        self.worker_selector = status.worker_selector
        self.start_time = status.start_time
        self.completion_time = status.completion_time
        self.events: list[JobEvent] = []

    def emit(self, event_type: EventType, reason: str, message: str) -> None:
        """Add an event, to be recorded when the status is on the server."""
        self.events.append(JobEvent(event_type, reason, message))

    def set_true(self, condition: ConditionType, reason: ConditionReason, message: str) -> None:
        """Make a condition True, by the rules of `conditions.set_true`."""
        self.conditions = conditions.set_true(self.conditions, condition, reason, message, self._whole)

    def set_false(self, condition: ConditionType, reason: ConditionReason, message: str) -> None:
        """Make a condition False that is True, by the rules of `conditions.set_false`."""
        self.conditions = conditions.set_false(self.conditions, condition, reason, message, self._whole)

    def set_held(self, status: str, reason: ConditionReason, message: str) -> bool:
        """Set Held to True or False. Return whether that changed anything."""
        before = self.conditions
        self.conditions = conditions.set_held(before, status, reason, message, self._whole)
        return self.conditions is not before

    def create(self) -> None:
        """Set Created, and the selector that an autoscaler reads from the scale subresource."""
        name, kind = c.LABEL_PREFIX + c.LABEL_JOB_NAME, c.LABEL_PREFIX + c.LABEL_REPLICA_TYPE
        self.worker_selector = f"{name}={self.job.metadata.name},{kind}={c.WORKER.lower()}"
        self.set_true(ConditionType.CREATED, ConditionReason.CREATED, f"TFJob {self.job.metadata.name} is created.")

    def start(self) -> None:
        """Set the start time, unless it is set."""
        self.start_time = self.start_time or self._whole

    def start_anew(self) -> None:
        """Set the start time to now, also if it is set."""
        self.start_time = self._whole

    def record(self, replicas: Sequence[Replica], finished: Finished, failed: Collection[str] = ()) -> None:
        """Record what the pods show: counters, finished replicas, restarts.

        `failed` are the UIDs of pods that failed by themselves and are about to be replaced.
        """
        self.replica_statuses = counted(replicas, finished)
        self.finished_indices = remembered(self.job.status, finished)
        self.restarts = account(self.job.status.restarts, replicas, failed)

    def end(self, condition: ConditionType, reason: ConditionReason, message: str) -> None:
        """Set the last condition. Every end has both times (B44)."""
        self.set_true(condition, reason, message)
        self.start()
        self.completion_time = self._whole

    def freeze(self) -> JobStatus | None:
        """Return the status to write, or None when nothing changed: an idle job costs no call."""
        before = self.job.status
        status = JobStatus(
            conditions=self.conditions,
            replica_statuses=self.replica_statuses,
            finished_indices=self.finished_indices,
            restarts=self.restarts,
            begun=self.begun,
            worker_selector=self.worker_selector,
            start_time=self.start_time,
            completion_time=self.completion_time,
            last_reconcile_time=before.last_reconcile_time,
            observed_generation=self.job.metadata.generation,
        )
        return None if status == before else msgspec.structs.replace(status, last_reconcile_time=self._whole)
