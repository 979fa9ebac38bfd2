"""Builders of jobs and pods for tests: an argument that is left out is a field that a user leaves out."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec

from fakes.virtual_loop import EPOCH
from tfjob_operator.api.core import (
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    PodRestartPolicy,
    PodSpec,
    PodStatus,
)
from tfjob_operator.api.meta import ObjectMeta, OwnerKey, OwnerReference
from tfjob_operator.api.v1.types import IndexRestarts, InvalidSpec, JobStatus, TFJob, TFJobSpec, child_name
from tfjob_operator.controller.jobs.children import ChildMeta, Pod, ReplicaKey, Service
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.plan.replicas import Replica, labels_wanted, replicas_of
from tfjob_operator.controller.tfjob.plan.status import in_force, read

JOB_UID = "job-uid"
OWNER = OwnerKey(f"ns/{JOB_UID}")
"""The key under which the children of a job are found."""


def template(**pod_spec: Any) -> dict[str, Any]:
    """A pod template with one container named tensorflow."""
    return {"spec": {"containers": [{"name": "tensorflow", "image": "train:1"}], **pod_spec}}


def replica(replicas: int | None = None, restart_policy: str | None = None, **fields: Any) -> dict[str, Any]:
    """One entry of tfReplicaSpecs."""
    given: dict[str, Any] = {"template": template()}
    if replicas is not None:
        given["replicas"] = replicas
    if restart_policy is not None:
        given["restartPolicy"] = restart_policy
    return given | fields


def job(
    spec: dict[str, Any] | None = None, *, name: str = "mnist", status: JobStatus | None = None, **meta: Any
) -> TFJob:
    """A job as the cache holds it. Without `spec` it has two workers."""
    body = {"tfReplicaSpecs": {"Worker": replica(2)}} if spec is None else spec
    metadata = ObjectMeta(name=name, namespace="ns", uid=JOB_UID, generation=1, resource_version="1")
    return TFJob(
        metadata=msgspec.structs.replace(metadata, **meta),
        spec=msgspec.Raw(msgspec.json.encode(body)),
        status=status or JobStatus(),
    )


def good_spec(tfjob: TFJob) -> TFJobSpec:
    """The specification of a job that must be valid."""
    spec = in_force(tfjob, read(tfjob))
    assert isinstance(spec, TFJobSpec), spec
    return spec


def invalid_spec(tfjob: TFJob) -> InvalidSpec:
    """The specification of a job that must be invalid."""
    found = in_force(tfjob, read(tfjob))
    assert isinstance(found, InvalidSpec), found
    return found


def mistakes(tfjob: TFJob) -> tuple[str, ...]:
    """The mistakes of a job that must be invalid."""
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
    """A pod of the job, whose replica has the policy Never or ExitCode unless `policy` says otherwise.

    With `exit_code` its training container has terminated, `ended_s` after EPOCH. One that is `terminating` was deleted at
    EPOCH with the grace `grace_s`; its own grace is 30 s.
    """
    at = None if ended_s is None else EPOCH + timedelta(seconds=ended_s)
    terminated = None if exit_code is None else ContainerStateTerminated(exit_code=exit_code, finished_at=at)
    state = ContainerState(terminated=terminated) if terminated is not None else None
    statuses = None
    if state is not None or phase == "Running":
        statuses = (ContainerStatus(name="tensorflow", restart_count=restarts, state=state or ContainerState()),)
    return Pod(
        metadata=_child_meta(job_name, replica_type, index, uid, terminating=terminating, grace_s=grace_s),
        spec=PodSpec(restart_policy=policy, containers=(Container(name="tensorflow"),)),
        status=PodStatus(phase=phase, reason=reason, container_statuses=statuses),
    )


def service(replica_type: str, index: int, *, job_name: str = "mnist", terminating: bool = False) -> Service:
    """A service of the job."""
    return Service(metadata=_child_meta(job_name, replica_type, index, "", terminating=terminating))


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
        owner_references=(OwnerReference(kind="TFJob", name=job_name, uid=JOB_UID, controller=True),),
        deletion_timestamp=EPOCH + timedelta(seconds=grace_s) if terminating else None,
        deletion_grace_period_seconds=grace_s if terminating else None,
    )


def observed(pods: Iterable[Pod], records: Iterable[IndexRestarts] = ()) -> list[Replica]:
    """The replicas for which these pods of the job stand."""
    return replicas_of("mnist", pods, records)[0]


def names(plan: Plan) -> dict[str, list[str]]:
    """What a plan does to which children, by name."""
    return {
        "create pods": [slot.name for slot in plan.create_pods],
        "create services": [slot.name for slot in plan.create_services],
        "delete pods": [deletion.pod.metadata.name for deletion in plan.delete_pods],
        "delete services": [service.metadata.name for service in plan.delete_services],
    }
