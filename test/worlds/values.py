"""The parts of a world: objects, events and calls as small hashable tuples, and the structs that the operator sees.

Worlds are compared with each other, so their parts are plain tuples. Versions of the job are `Rv`s: operator and API server
compare them only for equality, so worlds that differ only in their numbers are equal.
"""

from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from judge.jobs import INVALID, QUEUE, REQUEST
from kit.virtual_loop import EPOCH
from tfjob_operator.api.core import (
    Condition,
    ContainerState,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    PodPhase,
    PodSpec,
    PodStatus,
)
from tfjob_operator.api.meta import OwnerReference
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import InvalidSpec, JobAnnotations, JobMeta, JobStatus, TFJob, TFJobSpec
from tfjob_operator.api.v1.validation import read_spec
from tfjob_operator.controller.jobs.children import ChildLabels, ChildMeta, Pod, Service
from worlds.kubelet import has_sidecar, spec_of_pod

NAMESPACE: Final = "ns"
JOB: Final = "j"
KEY: Final = f"{NAMESPACE}/{JOB}"
LONG_S: Final = 400
"""A leap in time, in seconds: longer than expectations live, and than the limits of the jobs here."""

NO_STATUS: Final = b"{}"
SIDECAR: Final = "sidecar"
"""The container that some pods have beside `tensorflow`."""


class Rv(int):
    """A version of the job. Its number has no meaning, so `shape` removes it from what is compared."""

    __slots__ = ()


class Job(NamedTuple):
    """The job on the server. `spec` is the JSON of its specification, `status` that of its status.

    `requested` is the value of the annotation that requests a restart of the whole job; `queued` is whether the job has the
    label that names its queue.
    """

    rv: Rv
    uid: str
    generation: int
    spec: bytes
    status: bytes
    deleting: bool
    requested: str = ""
    queued: bool = False


class Child(NamedTuple):
    """A pod or a service on the server. `owner` is the UID of its controller, `place` its index; services have no `phase`.

    The service of all replicas has no `type`.

    `exit_code` and `ended` are how and when the container `tensorflow` terminated, as long as its state says so; `asked` is
    the grace of the first delete of the pod, `grace` the present one, `leaves` its deletionTimestamp; `targeted` and
    `restarting` are the conditions DisruptionTarget and AllContainersRestarting. `left`: by the pod's policies this end of
    `tensorflow` is final, which the status does not say. `attempt` is that of its label. Times are seconds since `EPOCH`;
    `ended_ahead` and `leaves_ahead` are by how much the clocks of node and API server were ahead when they wrote these two.
    """

    name: str
    uid: str
    owner: str
    owner_kind: str
    type: str
    place: int
    phase: str = ""
    exit_code: int | None = None
    reason: str = ""
    restarts: int = 0
    asked: int | None = None
    grace: int | None = None
    leaves: int = 0
    ended: int = 0
    targeted: bool = False
    restarting: bool = False
    left: bool = False
    ended_ahead: int = 0
    leaves_ahead: int = 0
    attempt: int = 0
    spec: bytes = b""

    @property
    def terminating(self) -> bool:
        return self.asked is not None

    @property
    def slot(self) -> tuple[str, str, int]:
        return self.owner, self.type, self.place

    @property
    def version(self) -> str:
        """Its resource version, made from its content: with a number, worlds that are the same would differ."""
        return ".".join(str(part) for part in self[6:-1])


class Event(NamedTuple):
    """An event of a watch: ADDED, MODIFIED or DELETED."""

    type: str
    item: Job | Child


class Call(NamedTuple):
    """A request of the operator, the `number`th of its sync. `body` is what is written: a status, or owner, type and index;
    for the delete of a child, its version. `spec` and `attempt` are those of a pod that is created.
    """

    number: int
    verb: str
    resource: str
    name: str
    uid: str | None = None
    rv: Rv | None = None
    body: Any = None
    spec: bytes = b""
    attempt: int = 0


class Answer(NamedTuple):
    """What the operator hears: an error by the name of its class, or a value."""

    error: str = ""
    value: Any = None


def now_at(epoch: int) -> datetime:
    """The wall clock after so many leaps. Otherwise it stands still, so that no two worlds differ only in a time stamp."""
    return EPOCH + timedelta(seconds=LONG_S * epoch)


@cache
def policy_of(spec: bytes) -> TFJobSpec | InvalidSpec:
    """What can be read of a specification, with or without mistakes."""
    return read_spec(JOB, spec)


@cache
def spec_of(spec: bytes) -> TFJobSpec | None:
    """What the API says that a specification means; None if it is invalid, or if there is none."""
    if not spec:
        return None
    found = read_spec(JOB, spec)
    return found if isinstance(found, TFJobSpec) else None


@cache
def status_of(status: bytes) -> JobStatus:
    return msgspec.json.decode(status, type=JobStatus)


def body_of(job: Job) -> dict[str, Any]:
    """The job as a judge reads it."""
    return _body(job._replace(rv=Rv(0)))


@cache
def _body(job: Job) -> dict[str, Any]:
    annotations = {INVALID: "yes"} if spec_of(job.spec) is None else {}
    meta = {"uid": job.uid, "generation": job.generation, "annotations": annotations | {REQUEST: job.requested}}
    if job.queued:
        meta["labels"] = {QUEUE: "q"}
    if job.deleting:
        meta["deletionTimestamp"] = f"{EPOCH:%Y-%m-%dT%H:%M:%SZ}"
    return {"metadata": meta, "spec": msgspec.json.decode(job.spec), "status": msgspec.json.decode(job.status)}


@cache
def job_struct(job: Job) -> TFJob:
    meta = JobMeta(
        name=JOB,
        namespace=NAMESPACE,
        uid=job.uid,
        resource_version=f"rv{job.rv}",
        generation=job.generation,
        deletion_timestamp=EPOCH if job.deleting else None,
        labels={c.LABEL_QUEUE: "q"} if job.queued else None,
        annotations=JobAnnotations(job.requested) if job.requested else None,
    )
    return TFJob(metadata=meta, spec=msgspec.Raw(job.spec), status=status_of(job.status))


@cache
def pod_struct(child: Child) -> Pod:
    conditions = tuple(
        Condition(type=name, status="True" if holds else "False")
        for name, holds in (("DisruptionTarget", child.targeted), ("AllContainersRestarting", child.restarting))
        if holds or name == "AllContainersRestarting"
    )
    status = PodStatus(
        phase=child.phase, reason=child.reason, conditions=conditions, container_statuses=_container_statuses(child)
    )
    return Pod(metadata=_meta(child), spec=spec_of_pod(child.spec) if child.spec else PodSpec(), status=status)


def _container_statuses(child: Child) -> tuple[ContainerStatus, ...] | None:
    """The container statuses; None before containers run, and for a pod that the cluster took away."""
    if child.exit_code is None and (
        child.phase == PodPhase.FAILED or (child.phase == PodPhase.PENDING and not child.restarts)
    ):
        return None
    state = ContainerState()
    if child.exit_code is not None:
        finished_at = EPOCH + timedelta(seconds=child.ended + child.ended_ahead)
        state = ContainerState(terminated=ContainerStateTerminated(exit_code=child.exit_code, finished_at=finished_at))
    elif child.phase == PodPhase.PENDING:
        state = ContainerState(waiting=ContainerStateWaiting(reason="RestartingAllContainers"))
    mine = ContainerStatus(name=c.CONTAINER_NAME, restart_count=child.restarts, state=state)
    if not child.spec or not has_sidecar(child):
        return (mine,)
    ended = (
        ContainerState(terminated=ContainerStateTerminated(exit_code=0))
        if child.phase != PodPhase.RUNNING
        else ContainerState()
    )
    return mine, ContainerStatus(name=SIDECAR, state=ended)


@cache
def service_struct(child: Child) -> Service:
    return Service(metadata=_meta(child))


def _meta(child: Child) -> ChildMeta:
    return ChildMeta(
        name=child.name,
        namespace=NAMESPACE,
        uid=child.uid,
        resource_version=child.version,
        labels=_labels(child),
        owner_references=(OwnerReference(kind=child.owner_kind, name=JOB, uid=child.owner, controller=True),),
        deletion_timestamp=None
        if child.grace is None
        else EPOCH + timedelta(seconds=child.leaves + child.leaves_ahead),
        deletion_grace_period_seconds=child.grace,
    )


def _labels(child: Child) -> ChildLabels:
    kind, index = child.type.lower(), str(child.place) if child.type else ""
    return ChildLabels(
        group_name="kubeflow.org",
        job_name=JOB,
        replica_type=kind,
        replica_index=index,
        operator_name="tfjob-controller",
        prefixed_job_name=JOB,
        prefixed_replica_type=kind,
        prefixed_replica_index=index,
        attempt=str(child.attempt) if child.attempt else "",
    )


def shape(value: Any, rvs: list[Rv]) -> Any:
    """Return the value without its versions, which are appended to `rvs` in their order."""
    if isinstance(value, Rv):
        rvs.append(value)
        return Rv
    if isinstance(value, tuple):
        return tuple([shape(part, rvs) for part in value])
    return value
