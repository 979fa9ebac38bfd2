"""The world outside the operator: API server, kubelet, garbage collector, user; and the history that the judge needs.

All functions map worlds to worlds. The server responds like a real one, with the simplifications in `worlds.moves`.
"""

from typing import Any, Final, NamedTuple

from hack.kubernetes_versions import Kubernetes
from judge.jobs import ending_of, finished_of
from tfjob_operator.api.v1.constants import MANAGED_BY_US
from tfjob_operator.api.v1.types import EndRecord, child_name
from worlds.kubelet import OWN_GRACE, asked_to_go, last_delete, stored_spec
from worlds.operator import Mind
from worlds.values import (
    JOB,
    LONG_S,
    NO_STATUS,
    Answer,
    Call,
    Child,
    Event,
    Job,
    Rv,
    body_of,
    policy_of,
    spec_of,
    status_of,
)

PODS: Final = "pods"
SERVICES: Final = "services"
TFJOBS: Final = "tfjobs"

Slot = tuple[str, str, int]
"""UID of a job, replica type, index."""


class Posture(NamedTuple):
    """What the job on the server allows the operator to do at one moment.

    `mode` is live, suspended, ending (its end is decided, but not written), ended, deleting, foreign, held (its specification
    is wrong, and it has begun), invalid (it has not begun) or gone; `finished` are the replicas that have succeeded.
    """

    uid: str
    mode: str
    spec: bytes
    finished: frozenset[Slot]


class State(NamedTuple):
    """One state of everything.

    `kubernetes` is the version of API server and kubelets, or None (see `worlds.kubelet`). The fields `pending_...` are the
    events of each resource that the operator has not heard of yet. Calls of the operator's sync that are in `answered` were
    carried out, and their responses are under way; `adrift` are calls whose response nobody will get: their sender is dead or
    has given up. `births` numbers the children of a name, `script` counts the user's edits, `epoch` the leaps of time.

    Only for judging: `finished`, the replicas that must not run again; `known`, those of them that this life of the operator
    has seen; `done`, the replicas of which a pod has succeeded without being asked to stop, and `lost`, those of which one has
    ended otherwise; `failures`, how often each replica failed by itself; `postures`, those of the job since this sync began;
    `made`, the children (resource, UID) whose creation was confirmed to this life of the operator, but of which no watch has
    told it yet; `untouched`, the postures of jobs without a status; `begun`, the jobs that have had a pod, by their UID, and
    the generation that they had then; `refused`, those of which a pod was refused; `upset`, the attempts (UID of the job,
    number) of which a pod has failed or was taken away. `tenured` says that the operator knows since when it leads: then it may
    act on any version of a job that was created since and is untouched. `won` and `born` are the epochs in which a replica last
    succeeded and in which the operator was last born.

    `ahead` is by how many seconds the clocks of nodes and of the API server are ahead of the operator's.
    """

    mind: Mind
    job: Job | None = None
    head: Rv = Rv(0)
    kubernetes: Kubernetes | None = None
    pods: tuple[Child, ...] = ()
    services: tuple[Child, ...] = ()
    pending_jobs: tuple[Event, ...] = ()
    pending_pods: tuple[Event, ...] = ()
    pending_services: tuple[Event, ...] = ()
    answered: tuple[tuple[int, Answer], ...] = ()
    adrift: tuple[Call, ...] = ()
    births: tuple[tuple[str, int], ...] = ()
    script: int = 0
    epoch: int = 0
    finished: frozenset[Slot] = frozenset()
    known: frozenset[Slot] = frozenset()
    done: frozenset[Slot] = frozenset()
    lost: frozenset[Slot] = frozenset()
    failures: tuple[tuple[Slot, int], ...] = ()
    postures: frozenset[Posture] = frozenset()
    made: frozenset[tuple[str, str]] = frozenset()
    tenured: bool = False
    untouched: frozenset[Posture] = frozenset()
    begun: tuple[tuple[str, int], ...] = ()
    refused: frozenset[str] = frozenset()
    upset: frozenset[tuple[str, int]] = frozenset()
    won: int = 0
    born: int = 0
    ahead: tuple[int, int] = (0, 0)

    @property
    def leapt_s(self) -> int:
        """Now, in seconds since `EPOCH`."""
        return LONG_S * self.epoch

    @property
    def unversioned(self) -> tuple[Any, ...]:
        """All fields that hold no version of the job, except the operator's mind."""
        return (self.pods, self.services, self.pending_pods, self.pending_services, self[11:])


PENDING: Final = {TFJOBS: "pending_jobs", PODS: "pending_pods", SERVICES: "pending_services"}


class WrongError(AssertionError):
    """The operator has done something that it must never do."""


def require(condition: object, message: str) -> None:
    if not condition:
        raise WrongError(message)


def posture(world: State) -> Posture:
    job = world.job
    if job is None:
        return Posture("", "gone", b"", frozenset())
    return Posture(job.uid, mode_of(world, job), job.spec, world.finished)


def mode_of(world: State, job: Job) -> str:
    policy, spec = policy_of(job.spec), spec_of(job.spec)
    if job.deleting:
        return "deleting"
    if ending_of(body_of(job)) is not None:
        return "ended"
    if policy.managed_by not in MANAGED_BY_US:
        return "foreign"
    if record_of(job) is not None:
        return "ending"
    if spec is None and not has_started(world, job):
        return "invalid"
    if policy.suspend:
        return "suspended"
    return "held" if spec is None else "live"


def record_of(job: Job) -> EndRecord | None:
    """What the job's status says about how it ends, whether or not that is written as a condition."""
    begun = status_of(job.status).begun
    return None if begun is None else begun.ending


def has_started(world: State, job: Job) -> bool:
    """Whether the job has had a pod, or the operator has written that it is about to create one."""
    return job.uid in dict(world.begun) or status_of(job.status).begun is not None


def observed(world: State) -> State:
    """Note the job's posture while a sync is under way, and which children the operator has heard of."""
    if world.made:
        unheard = {(PODS, event.item.uid) for event in world.pending_pods if event.type == "ADDED"}
        unheard |= {(SERVICES, event.item.uid) for event in world.pending_services if event.type == "ADDED"}
        if not world.made <= unheard:
            world = world._replace(made=world.made & unheard)
    if world.tenured and world.job is not None:
        world = _noted_as_untouched(world, world.job)
    if world.mind.calls is None:
        return world._replace(postures=frozenset()) if world.postures else world
    now = posture(world)
    return world if now in world.postures else world._replace(postures=world.postures | {now})


def _noted_as_untouched(world: State, job: Job) -> State:
    """Note the postures of a job as long as it has no status."""
    if job.status == NO_STATUS:
        noted = world.untouched | {posture(world)._replace(finished=frozenset())}
    else:
        noted = frozenset(each for each in world.untouched if each.uid != job.uid)
    return world if noted == world.untouched else world._replace(untouched=noted)


# The user.


def create_job(world: State, uid: str, spec: bytes, *, queued: bool = False) -> State:
    job = Job(_next(world), uid, 1, spec, NO_STATUS, deleting=False, queued=queued)
    return _with_job(world, job, "ADDED")


def edit_job(world: State, spec: bytes) -> State:
    job = world.job
    if job is None or job.spec == spec:
        return world
    return _with_job(world, job._replace(rv=_next(world), generation=job.generation + 1, spec=spec), "MODIFIED")


def request_restart(world: State, value: str) -> State:
    """Set the annotation that requests a restart of the whole job."""
    job = world.job
    return world if job is None else _with_job(world, job._replace(rv=_next(world), requested=value), "MODIFIED")


def remove_from_queue(world: State) -> State:
    """Remove the label that names the queue of the job."""
    job = world.job
    if job is None or not job.queued:
        return world
    return _with_job(world, job._replace(rv=_next(world), queued=False), "MODIFIED")


def delete_job(world: State, *, foreground: bool = False) -> State:
    """Delete the job: at once, or once its children are gone, which the garbage collector sees to in either case."""
    job = world.job
    if job is None or (foreground and job.deleting):
        return world
    if foreground and any(child.owner == job.uid for child in (*world.pods, *world.services)):
        return _with_job(world, job._replace(rv=_next(world), deleting=True), "MODIFIED")
    rv = _next(world)
    gone = Event("DELETED", job._replace(rv=rv))
    return world._replace(job=None, head=rv, pending_jobs=(*world.pending_jobs, gone))


def _next(world: State) -> Rv:
    return Rv(world.head + 1)


def _with_job(world: State, job: Job, event: str) -> State:
    return world._replace(job=job, head=job.rv, pending_jobs=(*world.pending_jobs, Event(event, job)))


# Children.


def children(world: State, resource: str) -> tuple[Child, ...]:
    return world.pods if resource == PODS else world.services


def put_child(world: State, resource: str, child: Child) -> State:
    others = tuple(other for other in children(world, resource) if other.name != child.name)
    child = _timed(world, next((other for other in children(world, resource) if other.uid == child.uid), child), child)
    event = "MODIFIED" if len(others) < len(children(world, resource)) else "ADDED"
    return _with_children(world, resource, (*others, child), Event(event, child))


def _timed(world: State, before: Child, child: Child) -> Child:
    """The child with its new times by the clocks that write them."""
    nodes, server = world.ahead
    if child.exit_code is None or before.exit_code is None:
        child = child._replace(ended_ahead=0 if child.exit_code is None else nodes)
    return child if child.leaves == before.leaves else child._replace(leaves_ahead=server)


def remove_child(world: State, resource: str, child: Child) -> State:
    """Remove a child. If it had succeeded and nobody has noted that, nobody can know it any more."""
    others = tuple(other for other in children(world, resource) if other != child)
    world = _with_children(world, resource, others, Event("DELETED", child))
    if child.slot in world.finished and child.slot not in written_as_finished(world) | world.known:
        return world._replace(finished=world.finished - {child.slot})
    return world


def end_child(world: State, resource: str, child: Child, grace: int = OWN_GRACE) -> State:
    """Delete a child: a running pod has to be ended by its kubelet first, one that has ended is removed at once."""
    if resource != PODS or child.uid == STRANGER:
        return remove_child(world, resource, child)
    if child.phase == "Running" and grace:
        asked = asked_to_go(child, grace, world.kubernetes, world.leapt_s)
        return world if asked is None else put_child(world, resource, asked)
    if child.phase == "Pending" or world.kubernetes is None:
        return remove_child(world, resource, child)
    gone = last_delete(child, world.kubernetes, world.leapt_s)
    return remove_child(put_child(world, resource, gone), resource, gone)


def _with_children(world: State, resource: str, found: tuple[Child, ...], event: Event) -> State:
    ordered = tuple(sorted(found))
    if event.item.uid == STRANGER:
        return world._replace(pods=ordered)  # it lacks our labels, so our watches do not show it
    if resource == PODS:
        return world._replace(pods=ordered, pending_pods=(*world.pending_pods, event))
    return world._replace(services=ordered, pending_services=(*world.pending_services, event))


STRANGER: Final = "stranger"
"""The UID of a pod that has the name of one of ours and belongs to another owner."""


def stranger(replica_type: str, index: int) -> Child:
    """A pod of another owner with the name that a replica needs."""
    name = child_name(JOB, replica_type, index)
    return Child(name, STRANGER, "another", "ReplicaSet", replica_type, index, "Running")


def written_as_finished(world: State) -> frozenset[Slot]:
    if world.job is None:
        return frozenset()
    return finished_in(world.job)


def finished_in(job: Job) -> frozenset[Slot]:
    """The replicas that a job's status says have succeeded, read without the operator's help."""
    return frozenset((job.uid, *slot) for slot in finished_of(body_of(job)))


def attempt_of(job: Job | None) -> int:
    return 0 if job is None else status_of(job.status).attempt


def _keeps_finished(job: Job) -> bool:
    spec = spec_of(job.spec)
    return spec is not None and spec.failure_policy is not None and spec.failure_policy.keeps_finished


def _of_others(slots: frozenset[Slot], job: Job) -> frozenset[Slot]:
    """The replicas of other jobs: all of this one run again."""
    return frozenset(slot for slot in slots if slot[0] != job.uid)


# The server.


def carry_out(world: State, call: Call) -> tuple[State, Answer]:
    """Carry out a request; return the world after it, and the response."""
    if call.resource == TFJOBS:
        return _on_job(world, call)
    if call.verb == "list":
        return world, Answer(value=tuple(child for child in children(world, call.resource) if child.uid != STRANGER))
    present = next((child for child in children(world, call.resource) if child.name == call.name), None)
    if call.verb == "create":
        if present is not None:
            return world, Answer("AlreadyExistsError")
        owner, replica_type, index = call.body
        older = [
            pod.name
            for pod in world.pods
            if pod.owner == owner and pod.attempt < call.attempt and pod.phase not in {"Succeeded", "Failed"}
        ]
        require(not older, f"{call.name} of attempt {call.attempt} is created, and {older} of an earlier one may run")
        births = dict(world.births)
        what = f"{call.resource}/{call.name}"
        number = births.get(what, 0)
        phase = "Pending" if call.resource == PODS else ""
        child = Child(call.name, f"{call.name}.{number}", owner, "TFJob", replica_type, index, phase)
        if call.resource == PODS:
            child = child._replace(spec=stored_spec(call.spec, world.kubernetes), attempt=call.attempt)
            generation = world.job.generation if world.job is not None else 0
            world = world._replace(begun=tuple(sorted(({owner: generation} | dict(world.begun)).items())))
        world = world._replace(births=tuple(sorted((births | {what: number + 1}).items())))
        return put_child(world, call.resource, child), Answer()
    if present is None:
        return world, Answer("NotFoundError")
    if call.verb == "get":
        return world, Answer(value=present)
    if (call.uid is not None and call.uid != present.uid) or (call.body is not None and call.body != present.version):
        return world, Answer("ConflictError")
    return end_child(world, call.resource, present), Answer()


def _on_job(world: State, call: Call) -> tuple[State, Answer]:
    job = world.job
    if job is None:
        return world, Answer("NotFoundError")
    if call.verb == "get":
        return world, Answer(value=job.rv)
    if (call.rv is not None and call.rv != job.rv) or (call.uid is not None and call.uid != job.uid):
        return world, Answer("ConflictError")
    if call.verb == "delete":
        return delete_job(world), Answer()
    if call.body == job.status:
        return world, Answer(value=job.rv)
    written = job._replace(rv=_next(world), status=call.body)
    if attempt_of(written) > attempt_of(job) and not _keeps_finished(job):
        world = world._replace(finished=_of_others(world.finished, job), known=_of_others(world.known, job))
        world = world._replace(done=_of_others(world.done, job))
    world = world._replace(finished=world.finished | finished_in(written))
    return _with_job(world, written, "MODIFIED"), Answer(value=written.rv)
