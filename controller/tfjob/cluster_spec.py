"""TF_CONFIG: what TensorFlow in each replica needs to know of the others. Pure.

The text is API: cluster types in alphabetical order, then the task, then `environment`, as every operator before wrote it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from api.v1 import constants as c
from api.v1.validation import child_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.meta import JSON, ObjectMeta
    from api.v1.types import ReplicaSpec, TFJobSpec
    from controller.tfjob.actions import Slot


def tf_config(job: ObjectMeta, spec: TFJobSpec, slot: Slot, *, domain: str = "") -> str | None:
    """The value of TF_CONFIG for one replica, or None for a job of one replica, which would wait for nobody (B59).

    `domain` is the cluster's DNS domain, appended to host names where the pods' resolver needs it.
    """
    if spec.total_replicas == 1:
        return None
    suffix = f".{domain}" if domain else ""
    cluster = {
        replica.type.lower(): _hosts(job, replica, suffix)
        for replica in sorted(spec.replicas.values(), key=lambda replica: replica.type.lower())
        if replica.replicas > 0
    }
    task = {"type": slot.type.lower(), "index": slot.index}
    if spec.dynamic_workers and slot.type in {c.WORKER, c.PS}:
        return msgspec.json.encode({"cluster": _sparse(cluster, slot), "task": task}).decode()
    return msgspec.json.encode({"cluster": cluster, "task": task, "environment": "cloud"}).decode()


def _sparse(cluster: Mapping[str, list[str]], slot: Slot) -> dict[str, object]:
    """What a replica of an elastic job needs to know: a worker itself and the parameter servers, one of those only itself.

    So nobody has to be restarted when workers come and go (B60). TensorFlow reads a list, or an object from index to host.
    """
    servers = cluster.get("ps", [])
    if slot.type == c.PS:
        # A list of one says index 0; the Go operators write it for every server, which TensorFlow then does not find.
        own = servers[slot.index]
        return {"ps": [own] if slot.index == 0 else {str(slot.index): own}, "worker": {}}
    return {"ps": servers, "worker": {str(slot.index): cluster["worker"][slot.index]}}


def _hosts(job: ObjectMeta, replica: ReplicaSpec, suffix: str) -> list[str]:
    # This is done for every pod of a job, so all that is the same for its hosts is made once.
    prefix, tail = child_name(job.name, replica.type, 0)[:-1], f".{job.namespace}.svc{suffix}:{port_of(replica)}"
    return [f"{prefix}{index}{tail}" for index in range(replica.replicas)]


def port_of(replica: ReplicaSpec) -> int:
    """The port on which this replica listens: the training container's port named `tfjob-port`, or 2222."""
    return next(port.number for port in named_ports(replica) if port.name == c.PORT_NAME)


class Port(NamedTuple):
    """A port of the training container."""

    name: str
    number: int
    protocol: str = c.TCP


def named_ports(replica: ReplicaSpec) -> list[Port]:
    """All named ports of the training container in their order, with `tfjob-port` added where it is missing (B61)."""
    ports: list[Port] = []
    given = training_container(replica.template).get("ports") or []
    if isinstance(given, list):
        for port in given:
            name, number = port.get("name"), port.get("containerPort")
            if isinstance(name, str) and isinstance(number, int):
                ports.append(Port(name, number, port.get("protocol") or c.TCP))
    if all(port.name != c.PORT_NAME for port in ports):
        ports.append(Port(c.PORT_NAME, c.DEFAULT_PORT))
    return ports


def training_container(template: JSON) -> JSON:
    """The container named `tensorflow` of a checked template."""
    spec = template["spec"]
    containers = spec["containers"] if isinstance(spec, dict) else []
    return next(container for container in containers if container.get("name") == c.CONTAINER_NAME)
