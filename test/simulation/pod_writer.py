"""Writes about pods by kubelets and controllers, which have no network faults."""

import re
from typing import Any, Final

import msgspec

from hack.hollow_node.moment import DISRUPTED
from hack.hollow_node.runner import status_changes
from hack.kubernetes_versions import DISRUPTION_TARGET
from simulation.lives import Life
from simulation.world import World
from tfjob_operator.api.client.http import Request
from tfjob_operator.api.core import PODS

STRATEGIC: Final = "application/strategic-merge-patch+json"
_FRACTION: Final = re.compile(rb"(?<=:\d\d)\.\d+(?=Z\")")
"""The fraction of a second, which the server drops."""


class PodWriter:
    """Writes to pods. Invariant: a status accepted by the server is the pod's fate."""

    def __init__(self, world: World) -> None:
        self._world = world

    def bind(self, life: Life) -> None:
        self._send(
            "POST", life, {"metadata": {"name": life.key[1]}, "target": {"kind": "Node", "name": life.node}}, "binding"
        )

    def tell(self, life: Life, client: str = "kubelet") -> bool:
        """Write the status of a pod. Return whether the pod still existed."""
        body = {"metadata": {"uid": life.fate.uid}, "status": status_changes(life.told, life.status)}
        if not self._send("PATCH", life, body, "status", client=client):
            return False
        life.told = life.status
        life.settle(self._world.time)
        return True

    def announce(self, life: Life, reason: str, client: str) -> None:
        """Set the condition that announces a disruption, in versions that have it (KEP-3329)."""
        if self._world.kubernetes.has(DISRUPTION_TARGET):
            status = {"conditions": [{"type": DISRUPTED, "status": "True", "reason": reason}]}
            self._send("PATCH", life, {"metadata": {"uid": life.fate.uid}, "status": status}, "status", client=client)

    def delete(self, life: Life, client: str, *, grace: int | None = None) -> None:
        """Delete a pod, by default with its own grace period."""
        options: dict[str, Any] = {"preconditions": {"uid": life.fate.uid}}
        self._send("DELETE", life, options if grace is None else options | {"gracePeriodSeconds": grace}, client=client)

    def _send(
        self, method: str, life: Life, body: dict[str, Any], subresource: str = "", *, client: str = "kubelet"
    ) -> bool:
        content_type = STRATEGIC if method == "PATCH" else "application/json"
        path = PODS.path(*life.key, subresource or None)
        content = (
            self._world.clocks.stamped(life.node, msgspec.json.encode(body)) if life.node else msgspec.json.encode(body)
        )
        content = _FRACTION.sub(b"", content)
        status = self._world.server.exchange(Request(method, path, {}, content, content_type), client).status
        self._world.note(client, method, path, content.decode(), status)
        return status < 300
