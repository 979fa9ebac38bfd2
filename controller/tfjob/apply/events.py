"""Events on jobs, and the kinds of children that they are about. Each event is recorded and logged.

Those of a plan's status are recorded when it is written (`status.py`), not here. A problem of a pod is reported once. The
creation of many children is reported in batches: nobody reads five hundred events one by one, the API server keeps each for an
hour, and the flood control would drop most of them anyway (EV-03, EV-05).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

import structlog
from structlog.contextvars import bound_contextvars

from tfjob_operator.api.client.errors import BadRequestError, InvalidError, StatusError
from tfjob_operator.api.core import CONFIG_MAPS, PODS, SERVICES, EventType
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.api.v1.types import TFJob, ranges_of
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.jobs.problems import JobEvent, Problem, ReportedProblems
from tfjob_operator.controller.tfjob.build.children import GangScheduler, reference_to


@dataclass(frozen=True, slots=True)
class ChildKind:
    """A kind of child, and the reasons of the events about it.

    `refusals` are the errors of a create that mean: the API server will never accept this body.
    """

    name: str
    resource: Resource
    created: str
    failed_create: str
    deleted: str
    failed_delete: str
    relabelled: str = ""
    failed_relabel: str = ""
    refusals: tuple[type[StatusError], ...] = (InvalidError, BadRequestError)


POD: Final = ChildKind(
    "pod",
    PODS,
    EventReason.CREATED_POD,
    EventReason.FAILED_CREATE_POD,
    EventReason.DELETED_POD,
    EventReason.FAILED_DELETE_POD,
    EventReason.RESTORED_POD_LABELS,
    EventReason.FAILED_RESTORE_POD_LABELS,
)
SERVICE: Final = ChildKind(
    "service",
    SERVICES,
    EventReason.CREATED_SERVICE,
    EventReason.FAILED_CREATE_SERVICE,
    EventReason.DELETED_SERVICE,
    EventReason.FAILED_DELETE_SERVICE,
    EventReason.RESTORED_SERVICE_LABELS,
    EventReason.FAILED_RESTORE_SERVICE_LABELS,
)
CONFIG_MAP: Final = ChildKind(
    "ConfigMap",
    CONFIG_MAPS,
    EventReason.CREATED_CONFIG_MAP,
    EventReason.FAILED_CREATE_CONFIG_MAP,
    EventReason.DELETED_CONFIG_MAP,
    EventReason.FAILED_DELETE_CONFIG_MAP,
    # It contains nothing that the user could correct, so it is tried again whatever the error.
    refusals=(),
)


def pod_group_kind(scheduler: GangScheduler) -> ChildKind:
    """Return the kind of child that the PodGroups of this scheduler are."""
    return ChildKind(
        "PodGroup",
        scheduler.pod_groups,
        EventReason.CREATED_POD_GROUP,
        EventReason.FAILED_CREATE_POD_GROUP,
        EventReason.DELETED_POD_GROUP,
        EventReason.FAILED_DELETE_POD_GROUP,
        # Not BadRequestError: webhooks use that code while a queue is closed, and it may open.
        refusals=(InvalidError,),
    )


log = structlog.get_logger(__name__)


class JobEvents:
    """Records events on jobs. Remembers which problems were reported; if that memory is lost, they are reported again."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._reported = ReportedProblems()

    def record(self, job: TFJob, event_type: str, reason: str, message: str) -> None:
        """Record an event on a job, and log it. Returns at once; the recorder writes it when it can, or drops it."""
        _log(event_type, reason, message)
        self._recorder.event(reference_to(job), event_type, reason, message)

    async def write(self, job: TFJob, event: JobEvent, *, fact: str) -> None:
        """Return when an event is on the API server, or can never be. Raises ApiError when it cannot be written for now.

        `fact` names what the event states. The same fact has the same event name, so an operator that was killed in between
        does not write it twice.
        """
        await self._recorder.write(reference_to(job), event.type, event.reason, event.message, fact=fact)
        _log(event.type, event.reason, event.message)

    def report(self, job: TFJob, problems: Collection[Problem]) -> None:
        """Record those problems that were not reported yet. Nothing is remembered of a job that has ended (D17)."""
        if conditions.is_finished(job.status):
            self.forget(job.metadata.uid)
        for event in self._reported.news(job.metadata.uid, problems):
            self.record(job, event.type, event.reason, event.message)

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a job."""
        self._reported.forget(uid)


def _log(event_type: str, reason: str, message: str) -> None:
    write = log.info if event_type == EventType.NORMAL else log.warning
    write("tfjob_event", reason=reason, message=message)


MANY: Final = 16
"""From so many replicas of one type that are created together, their events are told in batches."""
BATCH: Final = 64
"""Replicas of one event at most. A batch is told as soon as the last of it is created."""


class _Batch:
    """The replicas of one event: those that were created, and how many there will be if none fails."""

    __slots__ = ("created", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.created: list[ReplicaKey] = []


class Creations:
    """The children of one kind that one sync creates. What is created after `close` is told at once."""

    def __init__(self, events: JobEvents, job: TFJob, kind: ChildKind, keys: Iterable[ReplicaKey]) -> None:
        """`keys` are the replicas that are about to get a child of this kind, in the order of their indices."""
        self._events = events
        self._job = job
        self._kind = kind
        self._batches: dict[str, _Batch] = {}
        types: dict[str, list[ReplicaKey]] = defaultdict(list)
        for key in keys:
            types[key.type].append(key)
        for members in types.values():
            if len(members) >= MANY:
                for first in range(0, len(members), BATCH):
                    some = members[first : first + BATCH]
                    self._batches.update(dict.fromkeys((key.name for key in some), _Batch(len(some))))

    def created(self, key: ReplicaKey) -> None:
        """Tell of this replica's child, or remember it until the others of its batch are there."""
        batch = self._batches.get(key.name)
        if batch is None:
            self._tell([key])
            return
        batch.created.append(key)
        if len(batch.created) == batch.size:
            self._tell(batch.created)
            batch.created = []

    def close(self) -> None:
        """Tell of those whose batch did not become full, since others of it failed or were never sent."""
        for batch in dict.fromkeys(self._batches.values()):
            if batch.created:
                self._tell(batch.created)
        self._batches.clear()

    def _tell(self, keys: list[ReplicaKey]) -> None:
        if len(keys) == 1:
            self._record(f"Created {self._kind.name}: {keys[0].name}")
            return
        names = ranges_of(key.name for key in sorted(keys, key=lambda key: key.index))
        with bound_contextvars(pod=names):  # in the log, in the place of the last one's name
            self._record(f"Created {len(keys)} {self._kind.name}s: {names}")

    def _record(self, message: str) -> None:
        self._events.record(self._job, EventType.NORMAL, self._kind.created, message)
