"""The objects of a world of the alpha dialect, as the operator's informers would decode them.

They are the tuples of `worlds.values`, with these differences: a Job is a `Child` whose phase is empty or `COMPLETE`; a pod is
owned by a Job, and its `spec` is the reason with which its container ended.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Final

import msgspec

from fakes.virtual_loop import EPOCH
from tfjob_operator.api.core import (
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    PodPhase,
    PodRestartPolicy,
    PodSpec,
    PodStatus,
)
from tfjob_operator.api.meta import ObjectMeta, OwnerReference
from tfjob_operator.api.v1.types import InvalidSpec
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW, OPERATOR_NAME
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaSpec, AlphaStatus
from tfjob_operator.api.v1alpha1.validation import read_spec
from tfjob_operator.controller.alpha.children import BatchJob, BatchStatus
from tfjob_operator.controller.jobs.children import ChildLabels, ChildMeta, ConfigMap, Pod, Service
from worlds.values import JOB, NAMESPACE, Child, Job
from worlds.world import STRANGER

COMPLETE: Final = "Complete"
OOM_KILLED: Final = b"OOMKilled"


@cache
def read(spec: bytes) -> AlphaSpec | InvalidSpec:
    """What can be read of a specification."""
    return read_spec(KUBEFLOW, JOB, spec)


@cache
def spec_of(spec: bytes) -> AlphaSpec | None:
    """What the API says that a specification means; None if it is invalid, or if there is none."""
    found = read(spec) if spec else None
    return found if isinstance(found, AlphaSpec) else None


@cache
def status_of(status: bytes) -> AlphaStatus:
    """A status as the operator reads it."""
    return msgspec.json.decode(status, type=AlphaStatus)


@cache
def job_struct(job: Job) -> AlphaJob:
    """The job as the informer would decode it."""
    meta = ObjectMeta(
        name=JOB,
        namespace=NAMESPACE,
        uid=job.uid,
        resource_version=f"rv{job.rv}",
        generation=job.generation,
        deletion_timestamp=EPOCH if job.deleting else None,
    )
    return AlphaJob(metadata=meta, spec=msgspec.Raw(job.spec), status=status_of(job.status))


@cache
def batch_struct(child: Child) -> BatchJob:
    """The Job of a replica."""
    return BatchJob(metadata=meta_of(child), status=BatchStatus(succeeded=int(child.phase == COMPLETE)))


@cache
def service_struct(child: Child) -> Service:
    """A service."""
    return Service(metadata=meta_of(child))


@cache
def config_map_struct(child: Child) -> ConfigMap:
    """The ConfigMap."""
    return ConfigMap(metadata=meta_of(child))


@cache
def pod_struct(child: Child) -> Pod:
    """A pod, which is never started again in place."""
    ended = None
    if child.exit_code is not None:
        at = EPOCH + timedelta(seconds=child.ended)
        ended = ContainerStateTerminated(exit_code=child.exit_code, reason=child.spec.decode(), finished_at=at)
    mine = ContainerStatus(name="tensorflow", state=ContainerState(terminated=ended))
    told = child.phase == PodPhase.RUNNING or ended is not None
    status = PodStatus(phase=child.phase, reason=child.reason, container_statuses=(mine,) if told else None)
    spec = PodSpec(restart_policy=PodRestartPolicy.NEVER, containers=(Container(name="tensorflow"),))
    return Pod(metadata=meta_of(child), spec=spec, status=status)


def meta_of(child: Child) -> ChildMeta:
    """The metadata of a child, or of a pod."""
    names = {"Job": batch_job_of(child), "TFJob": JOB}
    name = names.get(child.owner_kind, child.owner)
    return ChildMeta(
        name=child.name,
        namespace=NAMESPACE,
        uid=child.uid,
        resource_version=child.version,
        labels=None if child.uid == STRANGER else ChildLabels(operator_name=OPERATOR_NAME),
        owner_references=(OwnerReference(kind=child.owner_kind, name=name, uid=child.owner, controller=True),),
    )


def batch_job_of(pod: Child) -> str:
    """The name of a pod's Job."""
    return pod.name.rpartition(".")[0]
