"""The world outside the controller of the alpha dialect: API server, user, and what has to be remembered to judge.

Everything here is a function from worlds to worlds, as in `worlds.world`. Jobs and services go as soon as they are deleted; the
pods of a Job are collected after it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tfjob_operator.api.core import CONFIG_MAPS as CONFIG_MAP_RESOURCE
from tfjob_operator.api.core import JOBS as JOB_RESOURCE
from tfjob_operator.api.core import PODS as POD_RESOURCE
from tfjob_operator.api.core import SERVICES as SERVICE_RESOURCE
from tfjob_operator.api.v1.constants import MANAGED_BY_US, ConditionType
from worlds.alpha.values import COMPLETE, read, spec_of, status_of
from worlds.operator import Mind
from worlds.values import NO_STATUS, Answer, Call, Child, Event, Job, Rv
from worlds.world import STRANGER, TFJOBS

JOBS: Final = JOB_RESOURCE.plural
SERVICES: Final = SERVICE_RESOURCE.plural
CONFIG_MAPS: Final = CONFIG_MAP_RESOURCE.plural
PODS: Final = POD_RESOURCE.plural

Slot = tuple[str, str, int]
"""UID of a job, replica type, index."""


class Posture(NamedTuple):
    """What the job on the server allows the operator to do at one moment.

    `mode` is live, ended, foreign, held (its specification is wrong, and it has begun), invalid (it has not begun) or gone;
    `finished` are the replicas that, by its status, have succeeded; `runtime_id` and `begun` are in its status.
    """

    uid: str
    mode: str
    spec: bytes
    finished: frozenset[Slot]
    runtime_id: str
    begun: bool


class State(NamedTuple):
    """One state of everything; the first fields are those of `worlds.world.State`.

    Only for judging: `done`, the replicas of which a pod has succeeded, and `lost`, those of which one has failed for good;
    `postures`, those of the job since this sync began; `made`, the children whose creation was confirmed to this life of the
    operator, but of which no watch has told it yet.
    """

    mind: Mind
    job: Job | None = None
    head: Rv = Rv(0)
    pending_jobs: tuple[Event, ...] = ()
    answered: tuple[tuple[int, Answer], ...] = ()
    adrift: tuple[Call, ...] = ()
    batch_jobs: tuple[Child, ...] = ()
    services: tuple[Child, ...] = ()
    config_maps: tuple[Child, ...] = ()
    pods: tuple[Child, ...] = ()
    pending_batch_jobs: tuple[Event, ...] = ()
    pending_services: tuple[Event, ...] = ()
    pending_config_maps: tuple[Event, ...] = ()
    pending_pods: tuple[Event, ...] = ()
    births: tuple[tuple[str, int], ...] = ()
    script: int = 0
    epoch: int = 0
    done: frozenset[Slot] = frozenset()
    lost: frozenset[Slot] = frozenset()
    postures: frozenset[Posture] = frozenset()
    made: frozenset[tuple[str, str]] = frozenset()

    @property
    def unversioned(self) -> tuple[Any, ...]:
        """All fields that hold no version of the job, except the operator's mind."""
        return self[6:]


_FIELDS: Final = {JOBS: "batch_jobs", SERVICES: "services", CONFIG_MAPS: "config_maps", PODS: "pods"}
PENDING: Final = {TFJOBS: "pending_jobs"} | {resource: f"pending_{name}" for resource, name in _FIELDS.items()}


def posture(world: State) -> Posture:
    """The posture of the job now."""
    job = world.job
    if job is None:
        return Posture("", "gone", b"", frozenset(), "", begun=False)
    status = status_of(job.status)
    begun = status.begun is not None
    return Posture(job.uid, mode_of(job), job.spec, finished_in(job), status.runtime_id, begun)


def mode_of(job: Job) -> str:
    """See `Posture`."""
    status = status_of(job.status)
    if has_ended(job):
        return "ended"
    if read(job.spec).managed_by not in MANAGED_BY_US:
        return "foreign"
    if spec_of(job.spec) is None:
        return "held" if status.begun is not None else "invalid"
    return "live"


def told(job: Job) -> set[str]:
    """The conditions that are True."""
    return {each.type for each in status_of(job.status).conditions or () if each.status == "True"}


def has_ended(job: Job) -> bool:
    """Whether its status says so."""
    return bool({ConditionType.SUCCEEDED, ConditionType.FAILED} & told(job))


_TYPES: Final = {"Master": "MASTER", "Worker": "WORKER", "PS": "PS"}


def finished_in(job: Job) -> frozenset[Slot]:
    """The replicas that a job's status says have succeeded, read without the operator's help."""
    found = set()
    for name, text in status_of(job.status).finished_indices.items():
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            found |= {(job.uid, _TYPES[name], index) for index in range(int(first), int(last or first) + 1)}
    return frozenset(found)


def wanted(spec: bytes, uid: str) -> frozenset[Slot]:
    """The replicas that a specification asks for."""
    found = spec_of(spec)
    if found is None:
        return frozenset()
    return frozenset((uid, each.type.value, index) for each in found.replicas for index in range(each.replicas))


def observed(world: State) -> State:
    """Note the job's posture while a sync is under way, and which children the operator has heard of."""
    if world.made:
        unheard = {
            (resource, event.item.uid)
            for resource, field in PENDING.items()
            for event in getattr(world, field)
            if event.type == "ADDED"
        }
        if not world.made <= unheard:
            world = world._replace(made=world.made & unheard)
    if world.mind.calls is None:
        return world._replace(postures=frozenset()) if world.postures else world
    now = posture(world)
    return world if now in world.postures else world._replace(postures=world.postures | {now})


# The user.


def create_job(world: State, uid: str, spec: bytes) -> State:
    """A user creates the job."""
    return _with_job(world, Job(_next(world), uid, 1, spec, NO_STATUS, deleting=False), "ADDED")


def edit_job(world: State, spec: bytes) -> State:
    """A user edits the specification."""
    job = world.job
    if job is None or job.spec == spec:
        return world
    return _with_job(world, job._replace(rv=_next(world), generation=job.generation + 1, spec=spec), "MODIFIED")


def delete_job(world: State) -> State:
    """A user deletes the job."""
    job = world.job
    if job is None:
        return world
    rv = _next(world)
    gone = Event("DELETED", job._replace(rv=rv))
    return world._replace(job=None, head=rv, pending_jobs=(*world.pending_jobs, gone))


def _next(world: State) -> Rv:
    return Rv(world.head + 1)


def _with_job(world: State, job: Job, event: str) -> State:
    return world._replace(job=job, head=job.rv, pending_jobs=(*world.pending_jobs, Event(event, job)))


# Children.


def children(world: State, resource: str) -> tuple[Child, ...]:
    """The Jobs, services, ConfigMaps or pods."""
    found: tuple[Child, ...] = getattr(world, _FIELDS[resource])
    return found


def put_child(world: State, resource: str, child: Child) -> State:
    """Store a child; it replaces the one of that name."""
    others = tuple(other for other in children(world, resource) if other.name != child.name)
    event = "MODIFIED" if len(others) < len(children(world, resource)) else "ADDED"
    return _with_children(world, resource, (*others, child), Event(event, child))


def remove_child(world: State, resource: str, child: Child) -> State:
    """A child is gone."""
    others = tuple(other for other in children(world, resource) if other != child)
    return _with_children(world, resource, others, Event("DELETED", child))


def _with_children(world: State, resource: str, found: tuple[Child, ...], event: Event) -> State:
    fields: dict[str, Any] = {_FIELDS[resource]: tuple(sorted(found))}
    if event.item.uid != STRANGER:  # our watches do not show objects without our labels
        field = PENDING[resource]
        fields[field] = (*getattr(world, field), event)
    return world._replace(**fields)


def born(world: State, resource: str, name: str) -> tuple[State, str]:
    """Number a new object of this name; return the world in which the number is used, and the UID."""
    births = dict(world.births)
    what = f"{resource}/{name}"
    number = births.get(what, 0)
    after = world._replace(births=tuple(sorted((births | {what: number + 1}).items())))
    return after, f"{name}.{number}"


def has_active_pod(world: State, batch_job: Child) -> bool:
    """Whether a pod of a Job runs."""
    return any(pod.owner == batch_job.uid and pod.phase == "Running" for pod in world.pods)


def has_good_pod(world: State, batch_job: Child) -> bool:
    """Whether a pod of a Job has succeeded, or the Job controller says so."""
    return batch_job.phase == COMPLETE or any(
        pod.owner == batch_job.uid and pod.phase == "Succeeded" for pod in world.pods
    )


# The server.


def carry_out(world: State, call: Call) -> tuple[State, Answer]:
    """Carry out a request; return the world after it, and the response."""
    if call.resource == TFJOBS:
        return _on_job(world, call)
    present = next((child for child in children(world, call.resource) if child.name == call.name), None)
    if call.verb == "create":
        if present is not None:
            return world, Answer("AlreadyExistsError")
        owner, replica_type, index = call.body
        world, uid = born(world, call.resource, call.name)
        return put_child(world, call.resource, Child(call.name, uid, owner, "TFJob", replica_type, index)), Answer()
    if present is None:
        return world, Answer("NotFoundError")
    if call.verb == "get":
        return world, Answer(value=present)
    if call.uid is not None and call.uid != present.uid:
        return world, Answer("ConflictError")
    return remove_child(world, call.resource, present), Answer()


def _on_job(world: State, call: Call) -> tuple[State, Answer]:
    job = world.job
    if job is None:
        return world, Answer("NotFoundError")
    if call.verb == "get":
        return world, Answer(value=job.rv)
    if call.rv is not None and call.rv != job.rv:
        return world, Answer("ConflictError")
    if call.body == job.status:
        return world, Answer(value=job.rv)
    written = job._replace(rv=_next(world), status=call.body)
    return _with_job(world, written, "MODIFIED"), Answer(value=written.rv)
