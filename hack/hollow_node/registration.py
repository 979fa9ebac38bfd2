"""Our Node object: while we run it is Ready and has plenty of room; afterwards it is deleted if we created it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

from tfjob_operator.api.client import STRATEGIC_MERGE_PATCH
from tfjob_operator.api.client.errors import AlreadyExistsError, ApiError
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from hack.kubernetes_versions import Kubernetes
    from tfjob_operator.api.client import RestClient

NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)

ROOM: Final = {"cpu": "10000", "memory": "40Ti", "ephemeral-storage": "40Ti", "pods": "4096"}
"""Far more than is ever requested: this node does not model how full a node is."""

LEAVE_S: Final = 0.7  # the whole stop is to take no more than a second

CONDITIONS: Final = (
    ("Ready", "True", "KubeletReady", "the hollow node is posting ready status"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


class _Node(Struct, frozen=True):
    metadata: ObjectMeta


@contextlib.asynccontextmanager
async def registered(
    client: RestClient, name: str, address: str, now: datetime, kubernetes: Kubernetes
) -> AsyncIterator[None]:
    """Keep a Node object called `name` for as long as the block lasts. Raises ApiError."""
    status = _status(name, address, now, kubernetes)
    labels = {"kubernetes.io/hostname": name, "type": "hollow"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}
    created_uid = None
    try:
        created_uid = msgspec.json.decode(await client.create(NODES, "", body), type=_Node).metadata.uid
    except AlreadyExistsError:
        await client.patch(
            NODES, "", name, {"status": status}, subresource="status", content_type=STRATEGIC_MERGE_PATCH
        )
    try:
        yield
    finally:
        if created_uid is not None:
            await _delete(client, name, created_uid)


def _status(name: str, address: str, now: datetime, kubernetes: Kubernetes) -> dict[str, object]:
    return {
        "capacity": ROOM,
        "allocatable": ROOM,
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
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


async def _delete(client: RestClient, name: str, uid: str) -> None:
    """Delete our Node if the server lets us, but give up soon: whoever stops us waits, and may have stopped the server."""
    with contextlib.suppress(ApiError, TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            await client.delete(NODES, "", name, uid=uid)
