"""Carries out what `lifecycle` decides for each pod: binds it, reports its status, confirms its deletion.

In: a pod from the cache. Out: API calls, and when to look at the pod again. Raises ApiError where a call failed and has to
be tried again; a pod that is gone is no failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from hack.hollow_node.addresses import AddressPool
from hack.hollow_node.history import History
from hack.hollow_node.lifecycle import advance
from hack.hollow_node.moment import Place, Removal
from hack.hollow_node.objects import HollowPod, HollowStatus
from hack.hollow_node.script import RUNS_BEFORE, parse_script
from hack.kubernetes_versions import NEWEST
from tfjob_operator.api.client import STRATEGIC_MERGE_PATCH
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import Resource, meta_key

if TYPE_CHECKING:
    from hack.hollow_node.timing import Timing
    from hack.kubernetes_versions import Kubernetes
    from tfjob_operator.api.client import RestClient
    from tfjob_operator.workqueue.clock import Clock

BINDINGS: Final = Resource("", "v1", "bindings", "Binding")
"""The collection form of `pods/<name>/binding`; the server does the same for both."""

SCHEDULER: Final = "default-scheduler"

HOST_IP: Final = "192.0.2.1"  # RFC 5737: an address that no real host has
POD_NETWORK: Final = "10.244.0.0/16"  # 65,534 pods


@dataclass(slots=True)
class _Life:
    """What we remember of a pod of ours: the status that we reported last, which the cache may not show yet."""

    uid: str
    status: HollowStatus


class PodRunner:
    """The pods of one node, each driven by calls of `sync`.

    Invariants: never two `sync` of the same key at once (the queue sees to it); `_lives` has the pods of this node that were
    synced and not forgotten, and each holds an address; everything here can be read again from the API server, except for
    the history of pods that are gone.
    """

    def __init__(
        self, client: RestClient, node: str, timing: Timing, clock: Clock, kubernetes: Kubernetes = NEWEST
    ) -> None:
        self._client = client
        self._node = node
        self._timing = timing
        self._kubernetes = kubernetes
        self._clock = clock
        self._addresses = AddressPool(POD_NETWORK)
        self._history = History()
        self._lives: dict[str, _Life] = {}

    async def sync(self, pod: HollowPod) -> float | None:
        """Let the pod's life go on. Returns the seconds until there will be more to do; None: not without an event."""
        try:
            if pod.spec.node_name == self._node:
                return await self._run(pod)
            if not pod.spec.node_name and pod.spec.scheduler_name == SCHEDULER:
                await self._bind(pod)
        except NotFoundError:
            pass  # the cache will say so in a moment
        return None

    def forget(self, key: str) -> None:
        """Drop what is remembered of a pod that is gone."""
        life = self._lives.pop(key, None)
        if life is not None:
            self._addresses.release(life.uid)

    async def _run(self, pod: HollowPod) -> float | None:
        life = self._life(pod)
        script = parse_script(pod)
        address = self._addresses.lease(life.uid, life.status.pod_ip)
        place = Place(self._node, HOST_IP, address, self._timing, self._kubernetes)
        step = advance(pod, script, life.status, self._clock.now(), place)
        if step.status != life.status:
            await self._patch_status(pod, status_changes(life.status, step.status))
            life.status = step.status
        self._history.observe(pod, script, life.status)
        if step.removal is not Removal.NONE:
            await self._delete(pod, grace_s=0 if step.removal is Removal.FINAL else None)
        return None if step.look_at is None else (step.look_at - self._clock.now()).total_seconds()

    def _life(self, pod: HollowPod) -> _Life:
        key, uid = meta_key(pod.metadata), pod.metadata.uid
        life = self._lives.get(key)
        if life is None or life.uid != uid:
            self.forget(key)
            life = self._lives[key] = _Life(uid, pod.status)
        return life

    async def _bind(self, pod: HollowPod) -> None:
        """Do the scheduler's part. The server copies the annotations of a binding to the pod."""
        meta: dict[str, object] = {"name": pod.metadata.name, "uid": pod.metadata.uid}
        runs = self._history.runs_before(pod)
        if runs:
            meta["annotations"] = {RUNS_BEFORE: msgspec.json.encode(runs).decode()}
        target = {"apiVersion": "v1", "kind": "Node", "name": self._node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        await self._client.create(BINDINGS, pod.metadata.namespace, body)

    async def _patch_status(self, pod: HollowPod, changes: dict[str, object]) -> None:
        """Send our changes; the UID makes the server refuse them for another pod of that name."""
        await self._client.patch(
            PODS,
            pod.metadata.namespace,
            pod.metadata.name,
            {"metadata": {"uid": pod.metadata.uid}, "status": changes},
            subresource="status",
            content_type=STRATEGIC_MERGE_PATCH,
        )

    async def _delete(self, pod: HollowPod, *, grace_s: int | None) -> None:
        meta = pod.metadata
        await self._client.delete(PODS, meta.namespace, meta.name, uid=meta.uid, grace_s=grace_s)


def status_changes(old: HollowStatus, new: HollowStatus) -> dict[str, object]:
    """Return the strategic merge patch that leads from one status to the other.

    Conditions are merged by type on the server, so that only ours are sent, and only if they changed; a field that is
    gone is sent as null.
    """
    changes: dict[str, object] = {}
    for name, wire_name in zip(HollowStatus.__struct_fields__, HollowStatus.__struct_encode_fields__, strict=True):
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        if name == "conditions" and after is not None:
            after = [condition for condition in after if condition not in (before or ())]
        changes[wire_name] = after
    return changes
