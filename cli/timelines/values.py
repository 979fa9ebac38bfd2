"""The values of a timeline: the fields used from a job of either dialect, and the histories of its replicas. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec

from tfjob_operator.api.meta import Struct
from tfjob_operator.api.v1.types import AvoidedNode, IndexRestarts, JobAttempt, StartRecord, with_readable_status
from tfjob_operator.cli.model.objects import ConditionDetails, LifetimeMeta
from tfjob_operator.cli.model.replica_names import ReplicaName


class TimelineJobStatus(Struct, frozen=True):
    """Times, ordered conditions, restart counts, and attempts; the last three exist in the alpha dialect only."""

    conditions: tuple[ConditionDetails, ...] | None = None
    start_time: datetime | None = None
    completion_time: datetime | None = None
    restarts: tuple[IndexRestarts, ...] | None = None
    attempt: int = 0
    counted_restarts: int = 0
    execution_attempt: int = 0
    next_restart_time: datetime | None = None
    attempt_history: tuple[JobAttempt, ...] | None = None
    avoided_nodes: tuple[AvoidedNode, ...] | None = None
    accelerator_seconds: dict[str, dict[str, int]] | None = None
    begun: StartRecord | None = None
    phase: str = ""
    state: str = ""
    runtime_id: str = msgspec.field(default="", name="runtimeId")


class TimelineJob(Struct, frozen=True):
    """A job."""

    metadata: LifetimeMeta = LifetimeMeta()
    status: TimelineJobStatus = TimelineJobStatus()


def job_of(raw: bytes | msgspec.Raw) -> TimelineJob:
    """Decode a job; of an invalid status, the readable fields are kept. Raises ValidationError for invalid metadata."""
    try:
        return msgspec.json.decode(raw, type=TimelineJob, strict=False)
    except msgspec.ValidationError:
        return with_readable_status(bytes(raw), TimelineJob, *TimelineJobStatus.__struct_encode_fields__)


class PodState(StrEnum):
    """The state of a pod during an interval."""

    WAITING = "waiting"
    """Not scheduled."""
    STARTING = "starting"
    """Scheduled, but the training is not running yet: images, volumes, init containers."""
    RUNNING = "running"
    RESTARTING = "restarting"
    """The training has terminated, and will be restarted in place."""
    UNSTABLE = "unstable"
    """Restarted more than once at unknown times, since a pod shows only its last two runs."""
    STOPPING = "stopping"
    """Being deleted."""


class PodOutcome(StrEnum):
    """How a pod ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DELETED = "deleted"
    """Deleted before it ended, or its end is unknown."""


class Interval(NamedTuple):
    """A time in one state; `end` None means now. `reason` is why the pod waits, or how a run ended."""

    state: PodState
    start: datetime
    end: datetime | None = None
    reason: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class PodHistory:
    """The history of a pod that ended at `end`; `restarts` are in place. If not `is_there`, only events show the pod."""

    pod: str
    uid: str = ""
    node: str = ""
    start: datetime | None = None
    end: datetime | None = None
    intervals: tuple[Interval, ...] = ()
    ending: PodOutcome | None = None
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    restarts: int = 0
    is_there: bool = True


@dataclass(frozen=True, slots=True)
class ReplicaTimeline:
    """A replica, the histories of its pods, oldest first, and its restarts; recreation after suspension does not count."""

    name: ReplicaName
    lives: tuple[PodHistory, ...]
    restarts: int = 0


class Span(NamedTuple):
    """A time in which the job was suspended or on hold; `end` None means now."""

    start: datetime
    end: datetime | None
    message: str = ""


class AttemptSpan(NamedTuple):
    """An attempt at the whole job; `end` None means now, and `message` is why it ended, "" for the last one."""

    number: int
    start: datetime
    end: datetime | None = None
    message: str = ""


class Happening(NamedTuple):
    """A condition or an event, which last occurred at `at`. `about` is the name of the object. `times` is 1 or more."""

    at: datetime
    about: str
    reason: str
    message: str = ""
    is_warning: bool = False
    times: int = 1


@dataclass(frozen=True, slots=True)
class Timeline:
    """The history of a job. `end` is None while the job is unfinished; `start` is None if even the job's beginning is unknown.

    `attempts` are the last six, if the whole job was restarted. `ending` is the time between decision and end, while pods of a
    queued job still held its quota; None if the end did not wait. `state` is the job's, "" if it is unknown.
    """

    start: datetime | None = None
    end: datetime | None = None
    replicas: tuple[ReplicaTimeline, ...] = ()
    suspensions: tuple[Span, ...] = ()
    holds: tuple[Span, ...] = ()
    attempts: tuple[AttemptSpan, ...] = ()
    happenings: tuple[Happening, ...] = ()
    ending: Span | None = None
    state: str = ""
