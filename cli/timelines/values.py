"""The lives of replicas: what a pod did from when to when, and what happened to the job. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """What a pod does at a time."""

    WAITING = "waiting"
    """It has no node."""
    STARTING = "starting"
    """It has a node, and its training does not run yet: images, volumes, init containers."""
    RUNNING = "running"
    RESTARTING = "restarting"
    """Its training has ended, and is to be started again in place."""
    UNSTABLE = "unstable"
    """It ran and was restarted more than once; when is not known, since a pod shows only its last two runs."""
    STOPPING = "stopping"
    """It is being deleted."""


class Ending(StrEnum):
    """How a pod ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DELETED = "deleted"
    """It was deleted before it ended by itself, or it is no longer known how it ended."""


class Interval(NamedTuple):
    """A time in one state; `end` None is now. `reason` is why it waits, or how a run ended."""

    state: State
    start: datetime
    end: datetime | None = None
    reason: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Life:
    """The life of one pod. `intervals` follow on each other, and may be empty; `end` is None while it lives.

    `is_there` is false for a pod of which only events are left. `restarts` are those in place.
    """

    pod: str
    uid: str = ""
    node: str = ""
    start: datetime | None = None
    end: datetime | None = None
    intervals: tuple[Interval, ...] = ()
    ending: Ending | None = None
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    restarts: int = 0
    is_there: bool = True


class ReplicaName(NamedTuple):
    """One numbered member of a job. `type` is that of v1, "" for a pod that does not say what it is; then `number` is -1."""

    type: str = ""
    number: int = -1


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica and the lives of its pods, the oldest first: of several, all but the first are re-creations."""

    name: ReplicaName
    lives: tuple[Life, ...]


class Span(NamedTuple):
    """A time in which the job was suspended or held; `end` None is now."""

    start: datetime
    end: datetime | None
    message: str = ""


class Happening(NamedTuple):
    """Something that happened, last at `at`. `about` is the name of the object. `times` is 1 or more."""

    at: datetime
    about: str
    reason: str
    message: str = ""
    is_warning: bool = False
    times: int = 1


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that is known of a job's life. `end` is None while it goes on, `start` if not even its beginning is known."""

    start: datetime | None = None
    end: datetime | None = None
    replicas: tuple[Replica, ...] = ()
    suspensions: tuple[Span, ...] = ()
    holds: tuple[Span, ...] = ()
    happenings: tuple[Happening, ...] = ()
