"""Our Node objects: while we run them they are Ready; afterwards those that we created are deleted.

A file of `--nodes` describes them. Whoever edits a Node object meanwhile (labels, taints, `spec.unschedulable`) is heeded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec
import yaml

from hack.hollow_node.objects import HollowNodeObject, Taint
from hack.kubernetes_versions import Kubernetes
from tfjob_operator.api.client import MERGE_PATCH, STRATEGIC_MERGE_PATCH, RestClient
from tfjob_operator.api.client.errors import AlreadyExistsError, ApiError
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.resources import parse_quantity

NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)

HOST_IP: Final = "127.0.0.1"  # where the API server asks for logs

ROOM: Final = {"cpu": "10000", "memory": "40Ti", "ephemeral-storage": "40Ti", "pods": "4096"}
"""Far more than is ever requested, for a node about which nothing else is said."""

LEAVE_S: Final = 0.7  # the whole stop is to take no more than a second

CONDITIONS: Final = (
    ("Ready", "True", "KubeletReady", "the hollow node is posting ready status"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What a node is called, has and refuses. What `allocatable` leaves out of `ROOM` is taken from there."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_labels(self) -> dict[str, str]:
        """The labels with those that every node has."""
        return {"kubernetes.io/hostname": self.name, "type": "hollow", **self.labels}


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One entry of a file of nodes."""

    name: str
    count: int = 1
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    allocatable: dict[str, str | int] = {}


def parse_nodes(text: str) -> tuple[NodeSpec, ...]:
    """Read a file of nodes. With a `count`, a name gets a number: `gpu-0`, `gpu-1`. Raises ValueError."""
    try:
        entries = msgspec.convert(yaml.safe_load(text), list[_Entry])
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(str(error)) from error
    nodes: dict[str, NodeSpec] = {}
    for entry in entries:
        allocatable = {name: str(value) for name, value in entry.allocatable.items()}
        if wrong := [name for name, value in allocatable.items() if parse_quantity(value) is None]:
            raise ValueError(f"node {entry.name}: no quantity: {', '.join(wrong)}")
        for number in range(entry.count):
            name = entry.name if entry.count == 1 else f"{entry.name}-{number}"
            if name in nodes:
                raise ValueError(f"two nodes have the name {name}")
            nodes[name] = NodeSpec(name, entry.labels, entry.taints, allocatable)
    if not nodes:
        raise ValueError("no node")
    return tuple(nodes.values())


@contextlib.asynccontextmanager
async def registered(
    client: RestClient, nodes: Iterable[NodeSpec], port: int, now: datetime, kubernetes: Kubernetes
) -> AsyncIterator[None]:
    """Keep Node objects for as long as the block lasts; logs are served at `port`. Raises ApiError."""
    created: dict[str, str] = {}
    try:
        for node in nodes:
            if uid := await _register(client, node, _status(node, port, now, kubernetes)):
                created[node.name] = uid
        yield
    finally:
        await _delete(client, created)


async def _register(client: RestClient, node: NodeSpec, status: dict[str, object]) -> str:
    """Create a Node, or take over the one that is there; return the UID of one that was created."""
    taints = [msgspec.to_builtins(taint) for taint in node.taints]
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}, "status": status}
    body["metadata"]["labels"] = node.all_labels
    body["spec"] = {"taints": taints}
    try:
        made = msgspec.json.decode(await client.create(NODES, "", body), type=HollowNodeObject)
    except AlreadyExistsError:
        await client.patch(
            NODES, "", node.name, {"status": status}, subresource="status", content_type=STRATEGIC_MERGE_PATCH
        )
        return ""
    if made.spec.taints != node.taints:
        # The API server gives every new node the taint `not-ready`, which the node lifecycle controller would remove.
        await client.patch(NODES, "", node.name, {"spec": {"taints": taints or None}}, content_type=MERGE_PATCH)
    return made.metadata.uid


def _status(node: NodeSpec, port: int, now: datetime, kubernetes: Kubernetes) -> dict[str, object]:
    room = {**ROOM, **node.allocatable}
    return {
        "capacity": room,
        "allocatable": room,
        "addresses": [{"type": "InternalIP", "address": HOST_IP}, {"type": "Hostname", "address": node.name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind, status, reason, message in CONDITIONS
        ],
        "nodeInfo": {"operatingSystem": "linux", "architecture": "amd64", "kubeletVersion": f"v{kubernetes}.0-hollow"},
    }


async def _delete(client: RestClient, created: Mapping[str, str]) -> None:
    """Delete our Nodes if the server lets us, but give up soon: whoever stops us waits, and may have stopped the server."""
    with contextlib.suppress(ApiError, TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            for name, uid in created.items():
                await client.delete(NODES, "", name, uid=uid)
