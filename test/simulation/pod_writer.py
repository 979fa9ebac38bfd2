"""What kubelets and controllers write about pods, as clients of the server that no fault of the network reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from hack.kubernetes_versions import DISRUPTION_TARGET
from tfjob_operator.api.client.http import Request
from tfjob_operator.api.core import PODS

if TYPE_CHECKING:
    from simulation.lives import Life
    from simulation.model.storage import Body
    from simulation.world import World

STRATEGIC: Final = "application/strategic-merge-patch+json"


def condition(kind: str, reason: str = "", *, status: str = "True") -> Body:
    """A condition of a pod."""
    return {"type": kind, "status": status} | ({"reason": reason} if reason else {})


class PodWriter:
    """Invariant: what the server accepts of a pod's status is the pod's fate from then on."""

    def __init__(self, world: World) -> None:
        self._world = world

    def bind(self, life: Life) -> None:
        """Say on which node a pod is."""
        self._send(
            "POST", life, {"metadata": {"name": life.key[1]}, "target": {"kind": "Node", "name": life.node}}, "binding"
        )

    def tell(self, life: Life, status: dict[str, Any], client: str = "kubelet") -> bool:
        """Write a status. Answers whether the pod was still there."""
        body = {"metadata": {"uid": life.fate.uid}, "status": status}
        if not self._send("PATCH", life, body, "status", client=client):
            return False
        life.settle(status["phase"], self._world.time)
        return True

    def announce(self, life: Life, reason: str, client: str) -> None:
        """Say that a pod is about to be taken away by the cluster, where this version does (KEP-3329)."""
        if self._world.kubernetes.has(DISRUPTION_TARGET):
            status = {"conditions": [condition("DisruptionTarget", reason)]}
            self._send("PATCH", life, {"metadata": {"uid": life.fate.uid}, "status": status}, "status", client=client)

    def delete(self, life: Life, client: str, *, grace: int | None = None) -> None:
        """Delete a pod, with its own grace if none is given."""
        options: dict[str, Any] = {"preconditions": {"uid": life.fate.uid}}
        self._send("DELETE", life, options if grace is None else options | {"gracePeriodSeconds": grace}, client=client)

    def _send(
        self, method: str, life: Life, body: dict[str, Any], subresource: str = "", *, client: str = "kubelet"
    ) -> bool:
        content_type = STRATEGIC if method == "PATCH" else "application/json"
        path = PODS.path(*life.key, subresource or None)
        request = Request(method, path, {}, msgspec.json.encode(body), content_type)
        status = self._world.server.exchange(request, client).status
        self._world.note(client, method, path, body.get("status", ""), status)
        return status < 300
