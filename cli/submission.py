"""The job that `submit` makes of its options. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tfjob_operator.api.v1.constants import CHIEF, CONTAINER_NAME, EVALUATOR, PS, WORKER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GPU: Final = "nvidia.com/gpu"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True, slots=True)
class Mount:
    """A claim, and where it is mounted."""

    claim: str
    path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Submission:
    """The options; 0, "" and None stand for those not given. `policy` are the fields of `spec.runPolicy` that were given."""

    name: str
    image: str
    command: Sequence[str] = ()
    workers: int = 0
    ps: int = 0
    chief: bool = False
    evaluator: bool = False
    gpus: int = 0
    cpu: str = ""
    memory: str = ""
    mounts: Sequence[Mount] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    restart_policy: str | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)
    queue: str = ""
    priority_class: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def job_of(asked: Submission, namespace: str = "") -> dict[str, Any]:
    """Return the job, in the order in which people write one."""
    labels = {**asked.labels, **({QUEUE_LABEL: asked.queue} if asked.queue else {})}
    meta: dict[str, Any] = {"name": asked.name}
    meta |= {"namespace": namespace} if namespace else {}
    meta |= {"labels": labels} if labels else {}
    sizes = ((CHIEF, int(asked.chief)), (PS, asked.ps), (WORKER, asked.workers), (EVALUATOR, int(asked.evaluator)))
    policy = dict(asked.policy)
    if asked.queue:
        policy["suspend"] = True  # Kueue lets it go on as soon as its queue has room for it
    spec: dict[str, Any] = {"runPolicy": policy} if policy else {}
    spec["tfReplicaSpecs"] = {kind: _replicas(asked, kind, size) for kind, size in sizes if size}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": meta, "spec": spec}


def _replicas(asked: Submission, kind: str, size: int) -> dict[str, Any]:
    restart = {"restartPolicy": asked.restart_policy} if asked.restart_policy else {}
    pod: dict[str, Any] = {"containers": [_container(asked, kind)]}
    if asked.mounts:
        pod["volumes"] = [
            {"name": _volume(number), "persistentVolumeClaim": {"claimName": each.claim}}
            for number, each in enumerate(asked.mounts)
        ]
    if asked.priority_class:
        pod["priorityClassName"] = asked.priority_class
    return {"replicas": size, **restart, "template": {"spec": pod}}


def _container(asked: Submission, kind: str) -> dict[str, Any]:
    container: dict[str, Any] = {"name": CONTAINER_NAME, "image": asked.image}
    if asked.command:
        container["command"] = list(asked.command)
    if asked.env:
        container["env"] = [{"name": name, "value": value} for name, value in asked.env.items()]
    requests = {name: value for name, value in (("cpu", asked.cpu), ("memory", asked.memory)) if value}
    limits: dict[str, Any] = {"memory": asked.memory} if asked.memory else {}
    if asked.gpus and kind != PS:
        limits[GPU] = asked.gpus  # extended resources are requested by their limit
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    if resources:
        container["resources"] = resources
    if asked.mounts:
        container["volumeMounts"] = [
            {"name": _volume(number), "mountPath": each.path, **({"readOnly": True} if each.read_only else {})}
            for number, each in enumerate(asked.mounts)
        ]
    return container


def _volume(number: int) -> str:
    return f"volume-{number}"
