"""Builders of jobs of the alpha dialect for tests: an argument that is left out is a field that a user leaves out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from fakes.virtual_loop import EPOCH
from tfjob_operator.api.core import (
    Condition,
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    LastState,
    PodRestartPolicy,
    PodSpec,
    PodStatus,
)
from tfjob_operator.api.meta import ObjectMeta, OwnerReference
from tfjob_operator.api.v1.types import InvalidSpec
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW, Dialect
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaSpec, AlphaStatus
from tfjob_operator.api.v1alpha1.validation import read_spec
from tfjob_operator.controller.alpha.children import (
    BatchJob,
    BatchStatus,
    Children,
    config_map_name,
    replica_key,
)
from tfjob_operator.controller.alpha.plan import keys_of
from tfjob_operator.controller.jobs.children import ChildMeta, ConfigMap, Pod, Service

UID = "e11f9577-b5e5-11e7-8522-42010a8e01a4"


def template(**pod_spec: Any) -> dict[str, Any]:
    """A pod template with one container named tensorflow, as documents of v1alpha1 have it."""
    return {
        "spec": {"containers": [{"name": "tensorflow", "image": "train:1"}], "restartPolicy": "OnFailure", **pod_spec}
    }


def entry(kind: object = None, replicas: object = None, **fields: Any) -> dict[str, Any]:
    """One entry of replicaSpecs; a PS has no template unless it is given one."""
    given: dict[str, Any] = {} if kind == "PS" else {"template": template()}
    if kind is not None:
        given["tfReplicaType"] = kind
    if replicas is not None:
        given["replicas"] = replicas
    return given | fields


def spec(*entries: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A specification of these entries, or of one master."""
    return {"replicaSpecs": list(entries) or [entry()], **fields}


def job(given: object = None, *, name: str = "example-job", status: AlphaStatus | None = None, **meta: Any) -> AlphaJob:
    """A job as the cache holds it. Without a specification it has one master."""
    metadata = ObjectMeta(name=name, namespace="ns", uid=UID, generation=1, resource_version="1")
    return AlphaJob(
        metadata=msgspec.structs.replace(metadata, **meta),
        spec=msgspec.Raw(msgspec.json.encode(spec() if given is None else given)),
        status=status or AlphaStatus(),
    )


def read(given: object, dialect: Dialect = KUBEFLOW, *, name: str = "example-job") -> AlphaSpec | InvalidSpec:
    """Read a specification."""
    return read_spec(dialect, name, msgspec.json.encode(given))


def good(given: object, dialect: Dialect = KUBEFLOW) -> AlphaSpec:
    """A specification that must be valid."""
    found = read(given, dialect)
    assert isinstance(found, AlphaSpec), found
    return found


def mistakes(given: object, dialect: Dialect = KUBEFLOW, *, name: str = "example-job") -> str:
    """The mistakes of a specification that must be invalid, in one line."""
    found = read(given, dialect, name=name)
    assert isinstance(found, InvalidSpec), found
    return found.text


def batch_job(
    kind: str,
    index: int,
    *,
    runtime_id: str,
    succeeded: int = 0,
    failed: str = "",
    uid: str = "",
    terminating: bool = False,
) -> BatchJob:
    """The Job of a replica, as its cache holds it. `failed` is the reason for which the Job controller gave it up."""
    name = replica_key(runtime_id, kind, index).name
    conditions = (Condition(type="Failed", status="True", reason=failed),) if failed else None
    return BatchJob(
        metadata=child_meta(name, uid=uid, terminating=terminating),
        status=BatchStatus(succeeded=succeeded, conditions=conditions),
    )


def child_meta(name: str, *, uid: str = "", terminating: bool = False) -> ChildMeta:
    """Metadata of a child that the job controls."""
    return ChildMeta(
        name=name,
        namespace="ns",
        uid=uid or f"uid-{name}",
        resource_version="5",
        owner_references=(OwnerReference(kind="TFJob", name="example-job", uid=UID, controller=True),),
        deletion_timestamp=EPOCH if terminating else None,
    )


def pod_of(
    found: BatchJob,
    phase: str = "Running",
    exit_code: int | None = None,
    *,
    last: int | None = None,
    reason: str = "",
    pod_reason: str = "",
    number: int = 0,
    policy: str = PodRestartPolicy.ON_FAILURE,
    terminating: bool = False,
) -> Pod:
    """A pod of a Job. With `exit_code` its training has terminated, with `last` it had before it was started again in place."""

    def ended(code: int | None) -> ContainerStateTerminated | None:
        return None if code is None else ContainerStateTerminated(exit_code=code, reason=reason, finished_at=EPOCH)

    name = f"{found.metadata.name}-{number:05}"
    training = ContainerStatus(
        name="tensorflow",
        state=ContainerState(terminated=ended(exit_code)),
        last_state=LastState(terminated=ended(last)),
    )
    owner = OwnerReference(kind="Job", name=found.metadata.name, uid=found.metadata.uid, controller=True)
    meta = msgspec.structs.replace(
        child_meta(name, terminating=terminating),
        owner_references=(owner,),
        creation_timestamp=EPOCH + timedelta(seconds=number),
        deletion_grace_period_seconds=30 if terminating else None,
    )
    knows = phase not in {"", "Pending"}
    return Pod(
        metadata=meta,
        spec=PodSpec(restart_policy=policy, containers=(Container(name="tensorflow"),)),
        status=PodStatus(
            phase=phase or "Pending", reason=pod_reason, container_statuses=(training,) if knows else None
        ),
    )


def service(name: str, *, terminating: bool = False) -> Service:
    """A service of the job."""
    return Service(metadata=child_meta(name, terminating=terminating))


def config_map(name: str) -> ConfigMap:
    """A ConfigMap of the job."""
    return ConfigMap(metadata=child_meta(name))


def children(found: AlphaSpec, runtime_id: str, **fields: Any) -> Children:
    """All that a job of this specification has, with a running pod for each Job; `fields` replace parts of it."""
    keys = keys_of(found, runtime_id)
    jobs = [batch_job(key.type, key.index, runtime_id=runtime_id) for key in keys]
    every: dict[str, Any] = {
        "jobs": jobs,
        "services": [service(key.name) for key in keys],
        "config_maps": [config_map(config_map_name(runtime_id))] if found.has_servers else [],
    }
    every |= fields
    every.setdefault("pods", [pod_of(each) for each in every["jobs"]])
    return Children(**every)
