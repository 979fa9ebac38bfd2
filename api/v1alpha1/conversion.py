"""Converts the spec of an alpha job to v1, so that the v1 controller creates the same replicas. Pure.

What v1 cannot express is reported in `differences`, as sentences for users.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tfjob_operator.api.meta import JSON
from tfjob_operator.api.v1 import constants as v1
from tfjob_operator.api.v1.constants import RestartPolicy
from tfjob_operator.api.v1.types import InvalidSpec, Mistake
from tfjob_operator.api.v1alpha1.constants import DEFAULT_PORT, V1_TYPES, Dialect, ReplicaType
from tfjob_operator.api.v1alpha1.types import AlphaReplicas, AlphaSpec
from tfjob_operator.api.v1alpha1.validation import canonical_spec, read_spec, split_server, templates_of

SERVER: Final = """\
import json, os
import tensorflow as tf
config = json.loads(os.environ["TF_CONFIG"])
server = getattr(getattr(tf, "distribute", None), "Server", None) or tf.train.Server
cluster, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
server(cluster, job_name=task["type"], task_index=task["index"]).join()
"""
"""The program of a parameter server without its own container. In v1 it reads its task from TF_CONFIG only."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A v1 spec, and how its jobs behave differently from the alpha job."""

    spec: JSON
    differences: tuple[str, ...] = ()


def to_v1(dialect: Dialect, name: str, raw: bytes | msgspec.Raw) -> Conversion | tuple[Mistake, ...]:
    """Convert the spec of the job called `name`; return its errors if it is invalid."""
    spec = read_spec(dialect, name, raw)
    if isinstance(spec, InvalidSpec):
        return spec.mistakes
    templates = templates_of(dialect, raw)
    replicas = {V1_TYPES[replica.type]: _replicas(replica, spec, templates[replica.type]) for replica in spec.replicas}
    converted: dict[str, Any] = {"runPolicy": {"cleanPodPolicy": spec.cleanup_policy}, "tfReplicaSpecs": replicas}
    if spec.managed_by:
        converted["runPolicy"]["managedBy"] = spec.managed_by
    if spec.tensorboard is not None:
        converted["tensorBoard"] = {"image": spec.image} | dict(spec.tensorboard)
    fields: JSON = canonical_spec(dialect, msgspec.json.decode(raw))
    return Conversion(converted, tuple(_differences(spec, fields)))


def _replicas(each: AlphaReplicas, spec: AlphaSpec, template: JSON) -> dict[str, Any]:
    """Return an entry of `tfReplicaSpecs`: its restartPolicy is ExitCode for the chief, OnFailure for all others."""
    pod: Any = dict(template.get("spec") or {})  # type: ignore[call-overload]
    containers = pod.get("containers") or []
    if each.gets_server:
        containers, stored = split_server(template)
        server = {"name": v1.CONTAINER_NAME, "image": spec.image, "command": ["python", "-c", SERVER]}
        containers.append(server | stored)
    pod["containers"] = [_with_port(container, each.port) for container in containers]
    pod.pop("restartPolicy", None)
    if spec.scheduler_name:
        pod["schedulerName"] = spec.scheduler_name
    policy = RestartPolicy.EXIT_CODE if each.type is spec.chief.type else RestartPolicy.ON_FAILURE
    return {"replicas": each.replicas, "restartPolicy": policy, "template": dict(template) | {"spec": pod}}


def _with_port(container: dict[str, Any], port: int) -> dict[str, Any]:
    """Return a container with the replica's port, under the name that v1 expects."""
    ports = container.get("ports") or []
    others = [each for each in ports if each.get("name") != v1.PORT_NAME]
    if container.get("name") != v1.CONTAINER_NAME or (port == DEFAULT_PORT and len(others) == len(ports)):
        return container
    return container | {"ports": [*others, {"name": v1.PORT_NAME, "containerPort": port}]}


def _differences(spec: AlphaSpec, fields: JSON) -> Iterator[str]:
    """Yield the differences in behavior."""
    has_master = ReplicaType.MASTER in spec.sizes
    if has_master and spec.chief.type is not ReplicaType.MASTER:
        yield "the outcome of the Master decides about the job, whatever terminationPolicy specifies"
    elif spec.chief.type is ReplicaType.PS:
        yield "the outcome of worker 0 decides about the job, or that of all parameter servers if there are no workers"
    elif spec.chief.index > 0:
        yield f"the outcome of worker 0 decides about the job, not that of worker {spec.chief.index}"
    if spec.chief.type is not ReplicaType.MASTER and spec.sizes[spec.chief.type] > 1:
        yield f"any {V1_TYPES[spec.chief.type]} that fails permanently fails the job"
    yield "a process that runs out of memory is restarted, because its exit code is 137"
    if sum(spec.sizes.values()) == 1:
        yield "a job with a single replica has no TF_CONFIG"
    if fields.get("RuntimeId"):
        yield "pods and Services are named after the job, not after its RuntimeId"
