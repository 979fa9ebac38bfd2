"""Executes the decisions of `scheduling` and `lifecycle` for each pod: binds it, reports its status, confirms its deletion.

It returns when to look at the pod again, and raises ApiError if a call must be retried. A deleted pod is no error.
"""

import ipaddress
import itertools
import time
from dataclasses import dataclass
from typing import Final

import msgspec

from hack.hollow_node.lifecycle import advance
from hack.hollow_node.moment import Place, Removal, condition_of
from hack.hollow_node.objects import HOST_IP, Condition, HollowPod, HollowStatus
from hack.hollow_node.scheduling import History, Scheduler, Unschedulable
from hack.hollow_node.script import RUNS_BEFORE, Timing, parse_script
from hack.kubernetes_versions import NEWEST, Kubernetes
from tfjob_operator.api.client import STRATEGIC_MERGE_PATCH, RestClient
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.core import EVENTS, PODS
from tfjob_operator.api.meta import Resource, meta_key, object_key
from tfjob_operator.workqueue.clock import Clock

BINDINGS: Final = Resource("", "v1", "bindings", "Binding")
"""The collection form of `pods/<name>/binding`; the server does the same for both."""

SCHEDULER: Final = "default-scheduler"

POD_NETWORK: Final = "10.244.0.0/16"  # 65,534 pods


class AddressPool:
    """Assigns the addresses of an IPv4 network; invariant: no two owners have the same one.

    Addresses are reused as late as possible, so a slow controller does not reach another pod under an old address.
    """

    def __init__(self, network: str) -> None:
        self._hosts = itertools.cycle(map(str, ipaddress.IPv4Network(network).hosts()))
        self._size = ipaddress.IPv4Network(network).num_addresses
        self._leases: dict[str, str] = {}
        self._taken: set[str] = set()

    def lease(self, owner: str, wanted: str = "") -> str:
        """Return the owner's address: the one it has, or `wanted` if that is free, or the next. Raises LookupError."""
        if owner not in self._leases:
            free = (each for each in itertools.islice(self._hosts, self._size) if each not in self._taken)
            address = wanted if wanted and wanted not in self._taken else next(free, "")
            if not address:
                raise LookupError("the pod network has no free address")
            self._leases[owner] = address
            self._taken.add(address)
        return self._leases[owner]

    def release(self, owner: str) -> None:
        """Release the owner's address, if it has one."""
        self._taken.discard(self._leases.pop(owner, ""))


@dataclass(slots=True)
class _Life:
    """The state of a pod of this node, with the last reported status, which the cache may not show yet."""

    pod: HollowPod
    status: HollowStatus


class PodRunner:
    """The pods of this process's nodes, each driven by calls of `sync`.

    Invariants: the queue never runs two `sync` of the same key concurrently; `_lives` has the pods of these nodes that were
    synced and not forgotten; each such pod has an address; all state can be read again from the API server, except the history
    of deleted pods. `unscheduled` has the keys of the pods that fit on no node.
    """

    def __init__(
        self, client: RestClient, scheduler: Scheduler, timing: Timing, clock: Clock, kubernetes: Kubernetes = NEWEST
    ) -> None:
        self.unscheduled: set[str] = set()
        self._client = client
        self._scheduler = scheduler
        self._timing = timing
        self._kubernetes = kubernetes
        self._clock = clock
        self._addresses = AddressPool(POD_NETWORK)
        self._history = History()
        self._lives: dict[str, _Life] = {}

    async def sync(self, pod: HollowPod) -> float | None:
        """Advance the pod. Return the seconds until the next change; None if only an event can cause one."""
        try:
            if pod.spec.node_name in self._scheduler.names:
                return await self._run(pod)
            if not pod.spec.node_name and pod.spec.scheduler_name == SCHEDULER and not pod.spec.scheduling_gates:
                await self._schedule(pod)
        except NotFoundError:
            pass  # the cache will show it soon
        return None

    def forget(self, key: str) -> None:
        """Forget a deleted pod."""
        self.unscheduled.discard(key)
        life = self._lives.pop(key, None)
        if life is not None:
            self._addresses.release(life.pod.metadata.uid)

    def seen(self, namespace: str, name: str) -> tuple[HollowPod, HollowStatus] | None:
        """Return a pod of these nodes, and its last reported status."""
        life = self._lives.get(object_key(namespace, name))
        return None if life is None else (life.pod, life.status)

    async def _run(self, pod: HollowPod) -> float | None:
        life = self._life(pod)
        script = parse_script(pod)
        address = self._addresses.lease(life.pod.metadata.uid, life.status.pod_ip)
        place = Place(pod.spec.node_name, HOST_IP, address, self._timing, self._kubernetes)
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
        if life is None or life.pod.metadata.uid != uid:
            self.forget(key)
            life = self._lives[key] = _Life(pod, pod.status)
        life.pod = pod
        return life

    async def _schedule(self, pod: HollowPod) -> None:
        """Schedule the pod. A pod that fits nowhere waits in `unscheduled`."""
        key = meta_key(pod.metadata)
        place = self._scheduler.place(pod)
        if isinstance(place, Unschedulable):
            self.unscheduled.add(key)
            await self._report_unschedulable(pod, place.message)
            return
        self.unscheduled.discard(key)
        try:
            await self._bind(pod, place)
        except BaseException:
            self._scheduler.forget(key)
            raise

    async def _report_unschedulable(self, pod: HollowPod, message: str) -> None:
        """Write the condition and the event of kube-scheduler, once for each message."""
        told = condition_of(pod.status.conditions, "PodScheduled")
        if told is not None and told.message == message:
            return
        now = self._clock.now()
        condition = Condition(
            type="PodScheduled", status="False", last_transition_time=now, reason="Unschedulable", message=message
        )
        await self._patch_status(pod, {"conditions": [condition]})
        meta = pod.metadata
        regarding = {"kind": "Pod", "apiVersion": "v1", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        event = {
            "metadata": {"name": f"{meta.name}.{time.time_ns():x}"},
            "involvedObject": regarding,
            "reason": "FailedScheduling",
            "message": message,
            "type": "Warning",
            "action": "Scheduling",
            "eventTime": now,
            "reportingComponent": SCHEDULER,
            "reportingInstance": SCHEDULER,
        }
        await self._client.create(EVENTS, meta.namespace, event)

    async def _bind(self, pod: HollowPod, node: str) -> None:
        """Bind a pod. The server copies the annotations of a binding to the pod."""
        meta: dict[str, object] = {"name": pod.metadata.name, "uid": pod.metadata.uid}
        runs = self._history.runs_before(pod)
        if runs:
            meta["annotations"] = {RUNS_BEFORE: msgspec.json.encode(runs).decode()}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        await self._client.create(BINDINGS, pod.metadata.namespace, body)

    async def _patch_status(self, pod: HollowPod, changes: dict[str, object]) -> None:
        """Send the changes with the UID, so the server rejects them for another pod of that name. As in Go, omit defaults."""
        await self._client.patch(
            PODS,
            pod.metadata.namespace,
            pod.metadata.name,
            msgspec.json.encode({"metadata": {"uid": pod.metadata.uid}, "status": changes}),
            subresource="status",
            content_type=STRATEGIC_MERGE_PATCH,
        )

    async def _delete(self, pod: HollowPod, *, grace_s: int | None) -> None:
        meta = pod.metadata
        await self._client.delete(PODS, meta.namespace, meta.name, uid=meta.uid, grace_s=grace_s)


def status_changes(old: HollowStatus, new: HollowStatus) -> dict[str, object]:
    """Return the strategic merge patch from one status to the other.

    The server merges conditions by type, so only changed ones are sent. A removed field is sent as null.
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
