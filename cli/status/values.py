"""How a job and its replicas stand, as `status -o json` prints it. Pure."""

from __future__ import annotations

from datetime import datetime

from tfjob_operator.api.meta import Struct


class ReplicaStanding(Struct, frozen=True, omit_defaults=False):
    """A replica's newest pod, or several replicas without a pod in one state: then `pod` is "" and `count` is how many.

    `replica` is `worker-0`, or `worker-[3,5-9]`. `restarts` are all that the job has a record of.
    """

    replica: str
    state: str
    pod: str = ""
    count: int = 1
    node: str = ""
    created: datetime | None = None
    restarts: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""


class TypeStanding(Struct, frozen=True, omit_defaults=False):
    """The replicas of one type: how many there should be, how many have a pod that runs, and which have none but should."""

    type: str
    wanted: int
    running: int
    succeeded: int
    failed: int
    missing: str = ""
    replicas: tuple[ReplicaStanding, ...] = ()


class ConditionStanding(Struct, frozen=True, omit_defaults=False):
    """A condition of the job."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


class JobStanding(Struct, frozen=True, omit_defaults=False):
    """A job. `state` is that of the STATE column."""

    namespace: str
    name: str
    state: str
    created: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    conditions: tuple[ConditionStanding, ...] = ()
    types: tuple[TypeStanding, ...] = ()
