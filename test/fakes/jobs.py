"""Builders of jobs and pods for tests: omitted arguments are omitted fields."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from fakes.objects import after, changed, labelled
from kit.virtual_loop import EPOCH
from tfjob_operator.api.core import (
    Condition,
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    PodRestartPolicy,
    PodSpec,
    PodStatus,
)
from tfjob_operator.api.meta import OwnerKey, OwnerReference
from tfjob_operator.api.v1.types import IndexRestarts, InvalidSpec, JobMeta, JobStatus, TFJob, TFJobSpec, child_name
from tfjob_operator.controller.jobs.children import (
    ChildMeta,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    ReplicaKey,
    Service,
)
from tfjob_operator.controller.tfjob.plan.clocks import Fact, FirstSeen, Sight
from tfjob_operator.controller.tfjob.plan.plan import plan
from tfjob_operator.controller.tfjob.plan.replicas import Replica, labels_wanted, replicas_of
from tfjob_operator.controller.tfjob.plan.spec import effective_spec, read
from tfjob_operator.controller.tfjob.plan.status import Replacing, count_restarts
from tfjob_operator.controller.tfjob.plan.types import Plan, PlanInput

JOB_UID = "job-uid"
OWNER = OwnerKey(f"ns/{JOB_UID}")
"""The index key of the children of a job."""
CONTROLLER = OwnerReference(kind="TFJob", name="mnist", uid=JOB_UID, controller=True)


def owned_by(uid: str) -> dict[str, Any]:
    """Return metadata of a child of the job with this UID."""
    return {"ownerReferences": [{"kind": "TFJob", "name": "mnist", "uid": uid, "controller": True}]}


def at(seconds: float) -> datetime:
    """Return the time this many seconds after EPOCH."""
    return EPOCH + timedelta(seconds=seconds)


def template(**pod_spec: Any) -> dict[str, Any]:
    """Return a pod template with one container named tensorflow."""
    return container(pod_spec, image="train:1")


def container(pod_spec: dict[str, Any] | None = None, /, **fields: Any) -> dict[str, Any]:
    """Return a pod template with one container named tensorflow that has these fields."""
    return {"spec": {"containers": [{"name": "tensorflow", "image": "i"} | fields], **(pod_spec or {})}}


def replica(replicas: object = None, restart_policy: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return an entry of tfReplicaSpecs."""
    given: dict[str, Any] = {"template": template()}
    if replicas is not None:
        given["replicas"] = replicas
    if restart_policy is not None:
        given["restartPolicy"] = restart_policy
    return given | fields


def spec(policy: str | None = None, /, **fields: Any) -> dict[str, Any]:
    """Return a spec: `Worker=2` are two workers with this restart policy, `PS=replica(...)` is an entry; others are fields."""
    kinds = {name: given for name, given in fields.items() if name[0].isupper()}
    entries = {name: given if isinstance(given, dict) else replica(given, policy) for name, given in kinds.items()}
    return {"tfReplicaSpecs": entries} | {name: given for name, given in fields.items() if name not in kinds}


def all_workers(count: int, policy: str | None = None) -> dict[str, Any]:
    """Return the spec of a job that succeeds when all its workers have."""
    return spec(policy, Worker=count, successPolicy="AllWorkers")


def job(
    spec: dict[str, Any] | None = None, *, name: str = "mnist", status: JobStatus | None = None, **meta: Any
) -> TFJob:
    """Return a job from the cache. By default it has two workers."""
    body = {"tfReplicaSpecs": {"Worker": replica(2)}} if spec is None else spec
    metadata = JobMeta(name=name, namespace="ns", uid=JOB_UID, generation=1, resource_version="1")
    return TFJob(
        metadata=changed(metadata, **meta),
        spec=msgspec.Raw(msgspec.json.encode(body)),
        status=status or JobStatus(),
    )


def good_spec(tfjob: TFJob, *pods: Pod, services: Sequence[Service] = ()) -> TFJobSpec:
    """Return the spec of a valid job."""
    spec = effective_spec(tfjob, read(tfjob), pods, services)
    assert isinstance(spec, TFJobSpec), spec
    return spec


def invalid_spec(tfjob: TFJob) -> InvalidSpec:
    """Return the spec of an invalid job."""
    found = effective_spec(tfjob, read(tfjob), (), ())
    assert isinstance(found, InvalidSpec), found
    return found


def mistakes(tfjob: TFJob) -> tuple[str, ...]:
    """Return the errors of an invalid job."""
    return tuple(map(str, invalid_spec(tfjob).mistakes))


def pod(
    replica_type: str,
    index: int,
    phase: str = "Running",
    exit_code: int | None = None,
    *,
    policy: str = PodRestartPolicy.NEVER,
    reason: str = "",
    restarts: int = 0,
    terminating: bool = False,
    grace_s: int = 30,
    ended_s: float | None = None,
    uid: str = "",
    job_name: str = "mnist",
) -> Pod:
    """Return a pod of the job, with the replica's policy Never or ExitCode unless `policy` is given.

    With `exit_code` its main container has terminated, `ended_s` after EPOCH. A `terminating` pod was deleted at EPOCH with the
    grace period `grace_s`; its own grace period is 30 s.
    """
    end = None if ended_s is None else at(ended_s)
    terminated = None if exit_code is None else ContainerStateTerminated(exit_code=exit_code, finished_at=end)
    state = ContainerState(terminated=terminated) if terminated is not None else None
    statuses = None
    if state is not None or phase == "Running":
        statuses = (ContainerStatus(name="tensorflow", restart_count=restarts, state=state or ContainerState()),)
    return Pod(
        metadata=_child_meta(job_name, replica_type, index, uid, terminating=terminating, grace_s=grace_s),
        spec=PodSpec(restart_policy=policy, containers=(Container(name="tensorflow"),)),
        status=PodStatus(phase=phase, reason=reason, container_statuses=statuses),
    )


def workers(count: int = 3, attempt: int | None = None, *, but: Mapping[int, Pod | None] | None = None) -> list[Pod]:
    """Return running workers, each on a node of its own: n0, n1, ...; `but` replaces some of them, None omits one.

    With `attempt` all have this label, also those in `but`.
    """
    suffix = f"-{attempt}" if attempt else ""
    there = {index: changed(pod("Worker", index, uid=f"{index}{suffix}"), node=f"n{index}") for index in range(count)}
    found = [each for each in (there | dict(but or {})).values() if each is not None]
    return found if attempt is None else [labelled(each, attempt=str(attempt)) for each in found]


def with_containers(found: Pod, *statuses: ContainerStatus, **status: Any) -> Pod:
    """Return the pod with these containers; `status` has other fields of its status."""
    return changed(found, status=changed(found.status, container_statuses=statuses, **status))


def with_sidecar(found: Pod) -> Pod:
    """Return the pod with a second container, which runs."""
    return changed(
        found, status__container_statuses=(*(found.status.container_statuses or ()), ContainerStatus("sidecar"))
    )


def with_condition(found: Pod, kind: str, status: str = "True", reason: str = "", message: str = "") -> Pod:
    """Return the pod with this condition alone."""
    return changed(found, status__conditions=(Condition(kind, status, reason, message),))


def disrupted(found: Pod, reason: str) -> Pod:
    """Return the pod with the condition by which the cluster says why it ends the pod."""
    return with_condition(found, "DisruptionTarget", reason=reason)


def service(replica_type: str, index: int, *, job_name: str = "mnist", terminating: bool = False) -> Service:
    """Return a Service of the job."""
    return Service(metadata=_child_meta(job_name, replica_type, index, "", terminating=terminating))


def pod_group(phase: str = "", min_member: int = 1, **spec: Any) -> PodGroup:
    """Return the PodGroup of the job."""
    meta = ChildMeta(name="mnist", namespace="ns", uid="group-uid", owner_references=(CONTROLLER,))
    return PodGroup(meta, PodGroupSpec(min_member=min_member, **spec), PodGroupStatus(phase=phase))


class Punctual(dict[Sight, float]):
    """What a process has seen that runs since long ago and saw each fact at once, while no clocks differ.

    A fact without a time has always been there. Only absences of pods, and facts that are given, are as they would be.
    """

    def get(self, sight: Any, default: Any = None) -> Any:
        """Return the time that the object itself gives."""
        if sight in self or sight.fact in {Fact.WRITTEN, Fact.ABSENT}:
            return super().get(sight, default)
        if sight.fact is Fact.DELETED:
            return (sight.time - EPOCH).total_seconds() - 30  # the grace period of pods here
        return -1e6 if sight.time is None else (sight.time - EPOCH).total_seconds()


def decide(
    tfjob: TFJob,
    *pods: Pod,
    services: Sequence[Service] = (),
    at_s: float = 60,
    first_seen: FirstSeen | None = None,
    **more: Any,
) -> Plan:
    """Return the controller's plan for a job, a minute after EPOCH."""
    spec = effective_spec(tfjob, read(tfjob), pods, services)
    seen = Punctual() if first_seen is None else first_seen
    return planned(tfjob, spec, pods, services, at(at_s), first_seen=seen, monotonic_s=at_s, **more)


def planned(
    tfjob: TFJob,
    spec: TFJobSpec | InvalidSpec,
    pods: Sequence[Pod],
    services: Sequence[Service],
    now: datetime,
    **more: Any,
) -> Plan:
    """Return the controller's plan for what was observed of a job."""
    return plan(PlanInput(job=tfjob, spec=spec, pods=pods, services=services, now=now, **more))


def synced(tfjob: TFJob, *pods: Pod, at_s: float = 60, **more: Any) -> TFJob:
    """Return the job after the status of its plan was written."""
    return after(tfjob, decide(tfjob, *pods, at_s=at_s, **more))


def started(given: dict[str, Any], *pods: Pod, at_s: float = 0, after_s: float = 1, **meta: Any) -> TFJob:
    """Return the job after a plan without pods, and `after_s` later one with these."""
    return synced(synced(job(given, **meta), at_s=at_s), *pods, at_s=at_s + after_s)


class PlannedJob:
    """A job whose plans' statuses are written, one after the other.

    Its process keeps `first_seen` from one plan to the next if it is given, and is punctual otherwise. Plans are made at
    `at_s` unless they have another time.
    """

    def __init__(self, found: TFJob, first_seen: FirstSeen | None = None, *, at_s: float = 0) -> None:
        self.job = found
        self.first_seen = first_seen
        self._at_s = at_s

    def sync(self, *pods: Pod, at_s: float | None = None, **more: Any) -> Plan:
        """Plan at that time, and write the status."""
        now = self._at_s if at_s is None else at_s
        decided = decide(self.job, *pods, at_s=now, first_seen=self.first_seen, **more)
        self.job = after(self.job, decided)
        if self.first_seen is not None:
            self.first_seen = decided.first_seen
        return decided

    def edit(self, policy: dict[str, Any] | None = None, /, **fields: Any) -> None:
        """Replace these fields of the spec, and those in `policy` of its runPolicy."""
        given = msgspec.json.decode(self.job.spec)
        fields["runPolicy"] = given.get("runPolicy", {}) | (policy or {})
        self.job = changed(self.job, spec=job(given | fields).spec)

    @property
    def true(self) -> list[str]:
        return true_of(self.job)


def accounted(
    records: Iterable[IndexRestarts], replicas: Iterable[Replica], failed: Collection[str]
) -> tuple[IndexRestarts, ...]:
    """Return the records after these pods were observed at EPOCH; `failed` has the UIDs of pods that failed by themselves."""
    return count_restarts(records, replicas, Replacing(failed), at(0))


def true_of(tfjob: TFJob) -> list[str]:
    """Return the types of the True conditions, in order."""
    return [each.type for each in tfjob.status.conditions if each.status == "True"]


def _child_meta(
    job_name: str, replica_type: str, index: int, uid: str, *, terminating: bool, grace_s: int = 30
) -> ChildMeta:
    name = child_name(job_name, replica_type, index)
    return ChildMeta(
        name=name,
        namespace="ns",
        uid=uid or f"uid-{name}",
        resource_version="5",
        labels=labels_wanted(job_name, ReplicaKey(replica_type, index, name)),
        owner_references=(changed(CONTROLLER, name=job_name),),
        deletion_timestamp=at(grace_s) if terminating else None,
        deletion_grace_period_seconds=grace_s if terminating else None,
    )


def observed(pods: Iterable[Pod], records: Iterable[IndexRestarts] = ()) -> list[Replica]:
    """Return the replicas of these pods of the job."""
    return replicas_of("mnist", pods, records)[0]


def names(plan: Plan) -> dict[str, list[str]]:
    """Return the actions of a plan, with the names of the children; a missing action reads as an empty list."""
    found = {
        "create pods": [slot.name for slot in plan.create_pods],
        "create services": [slot.name for slot in plan.create_services],
        "delete pods": [deletion.pod.metadata.name for deletion in plan.delete_pods],
        "delete services": [service.metadata.name for service in plan.delete_services],
    }
    return defaultdict(list, {what: which for what, which in found.items() if which})
