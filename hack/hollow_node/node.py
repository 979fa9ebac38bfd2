"""The hollow node as a whole: Node objects, informers on these and on pods, a queue of keys and the workers that empty it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog
import yaml
from msgspec.structs import replace

from hack.hollow_node.logs import client_authority, serving_logs
from hack.hollow_node.objects import HOST_IP, HollowNodeObject, HollowPod, Taint
from hack.hollow_node.runner import PodRunner
from hack.hollow_node.scheduling import Scheduler
from hack.hollow_node.script import ImageScript, Timing, with_images
from hack.kubernetes_versions import Kubernetes
from tfjob_operator.api.client import MERGE_PATCH, STRATEGIC_MERGE_PATCH, RestClient
from tfjob_operator.api.client.errors import AlreadyExistsError, ApiError
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.resources import parse_quantity
from tfjob_operator.informers import Codec, EventHandlerFuncs, SharedIndexInformer, SharedInformerFactory, key_of
from tfjob_operator.workqueue import ItemExponentialFailureRateLimiter, LoopClock, RateLimitingQueue, ShutDown

# The Node objects of this process: Ready while it runs, deleted afterwards if it created them.
#
# A file of `--nodes` describes them. Edits of a Node object (labels, taints, `spec.unschedulable`) take effect.


NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)


ROOM: Final = {"cpu": "10000", "memory": "40Ti", "ephemeral-storage": "40Ti", "pods": "4096"}
"""More than is ever requested, for a node without `allocatable`."""

LEAVE_S: Final = 0.7  # stopping must take at most a second

CONDITIONS: Final = (
    ("Ready", "True", "KubeletReady", "the hollow node is posting ready status"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


class NodeSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of a file of nodes: name, resources and taints. `ROOM` replaces what `allocatable` omits."""

    name: str
    count: int = 1
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    allocatable: dict[str, str | int] = {}

    @property
    def all_labels(self) -> dict[str, str]:
        """The labels, including those of every node."""
        return {"kubernetes.io/hostname": self.name, "type": "hollow", **self.labels}

    @property
    def room(self) -> dict[str, str]:
        """All resources of the node."""
        return ROOM | {name: str(value) for name, value in self.allocatable.items()}


def parse_nodes(text: str) -> tuple[NodeSpec, ...]:
    """Read a file of nodes. With a `count`, a name gets a number: `gpu-0`, `gpu-1`. Raises ValueError."""
    try:
        entries = msgspec.convert(yaml.safe_load(text), list[NodeSpec])
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(str(error)) from error
    nodes: dict[str, NodeSpec] = {}
    for entry in entries:
        if wrong := [name for name, value in entry.allocatable.items() if parse_quantity(str(value)) is None]:
            raise ValueError(f"node {entry.name}: no quantity: {', '.join(wrong)}")
        for number in range(entry.count):
            name = entry.name if entry.count == 1 else f"{entry.name}-{number}"
            if name in nodes:
                raise ValueError(f"two nodes have the name {name}")
            nodes[name] = replace(entry, name=name)
    if not nodes:
        raise ValueError("no node")
    return tuple(nodes.values())


@contextlib.asynccontextmanager
async def registered(
    client: RestClient, nodes: Iterable[NodeSpec], port: int, now: datetime, kubernetes: Kubernetes
) -> AsyncIterator[None]:
    """Maintain the Node objects until the end of the block; logs are served at `port`. Raises ApiError."""
    created: dict[str, str] = {}
    try:
        for node in nodes:
            if uid := await _register(client, node, _status(node, port, now, kubernetes)):
                created[node.name] = uid
        yield
    finally:
        await _delete(client, created)


async def _register(client: RestClient, node: NodeSpec, status: dict[str, object]) -> str:
    """Create a Node, or use an existing one; return the UID if it was created."""
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
    return {
        "capacity": node.room,
        "allocatable": node.room,
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
    """Delete the created Nodes, but give up soon: the caller waits, and may have stopped the server."""
    with contextlib.suppress(ApiError, TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            for name, uid in created.items():
                await client.delete(NODES, "", name, uid=uid)


log = structlog.get_logger(__name__)

WORKERS: Final = 16  # concurrent status patches: enough to keep an API server on two cores busy without a queue there
SYNC_TIMEOUT_S: Final = 60.0
RETRY_BASE_S: Final = 0.05
RETRY_CAP_S: Final = 10.0
POD_ROOM: Final = ""
"""The key for all pods that wait for room on a node."""
ROOM_S: Final = 0.1
"""The delay between a change and the next attempt, so several changes cause one attempt."""


class HollowNode:
    """Simulates scheduler and kubelets for the pods of one API server, while `run` runs. Used once.

    Invariants: all tasks belong to one TaskGroup and end with it; a failed API call only delays its pod.
    Everything that must survive a restart is in the pods.
    """

    def __init__(
        self,
        client: RestClient,
        *,
        watch_client: RestClient,
        name: str,
        nodes: Sequence[NodeSpec],
        images: Mapping[str, ImageScript],
        namespace: str,
        timing: Timing,
        kubernetes: Kubernetes,
    ) -> None:
        """`watch_client` is a separate client for the watch.

        Without `nodes`, one node called `name` has room for everything. `kubernetes` is the version of kubelet and scheduler.
        `images` defines what images do in pods without annotations.
        """
        self._client = client
        self._nodes = nodes or (NodeSpec(name),)
        self._scheduler = Scheduler((node.name for node in self._nodes), kubernetes, roomy=not nodes)
        self._images = images
        self._clock = LoopClock()
        self._factory = SharedInformerFactory(watch_client)
        self._pods: SharedIndexInformer[HollowPod] = self._factory.informer(Codec(PODS, HollowPod), namespace=namespace)
        of_pods: EventHandlerFuncs[HollowPod] = EventHandlerFuncs(
            on_add=lambda pod, _: self._on_add(pod),
            on_update=self._on_update,
            on_delete=lambda pod: self._on_delete(key_of(pod)),
        )
        of_nodes: EventHandlerFuncs[HollowNodeObject] = EventHandlerFuncs(
            on_add=lambda node, _: self._on_node(node),
            on_update=lambda _, node: self._on_node(node),
            on_delete=lambda node: self._scheduler.forget_node(key_of(node)),
        )
        self._registrations = (
            self._factory.informer(Codec(NODES, HollowNodeObject)).add_event_handler(of_nodes),
            self._pods.add_event_handler(of_pods),
        )
        limiter: ItemExponentialFailureRateLimiter = ItemExponentialFailureRateLimiter(RETRY_BASE_S, RETRY_CAP_S)
        self._queue: RateLimitingQueue[str] = RateLimitingQueue(limiter)
        self._runner = PodRunner(client, self._scheduler, timing, self._clock, kubernetes)
        self._kubernetes = kubernetes

    async def run(self, on_started: Callable[[], object]) -> None:
        """Run until cancelled; pods then stay unchanged, as when a kubelet stops. `on_started` is called when all is ready.

        Raises ApiError if the API server rejects requests or is unreachable at the start, and an ExceptionGroup with a
        CacheSyncTimeoutError if it does not list pods. Later failures are retried.
        """
        authority = await client_authority(self._client)
        async with (
            serving_logs(self._runner.seen, self._clock, authority) as port,
            registered(self._client, self._nodes, port, self._clock.now(), self._kubernetes),
            asyncio.TaskGroup() as group,
        ):
            self._factory.start(group)
            try:
                await self._factory.wait_for_cache_sync(SYNC_TIMEOUT_S)
                for registration in self._registrations:
                    # No pod is scheduled before all nodes and their pods are known.
                    await registration.wait_for_sync()
                for number in range(WORKERS):
                    group.create_task(self._work(), name=f"hollow-node-{number}")
                on_started()
                await asyncio.Event().wait()
            finally:
                self._queue.shut_down()
                await self._factory.shut_down()

    async def _work(self) -> None:
        """Sync keys until the queue is shut down."""
        while True:
            try:
                key = await self._queue.get()
            except ShutDown:
                return
            try:
                await self._sync(key)
            except Exception as error:  # noqa: BLE001 - a pod that cannot be synced must not stop the others
                self._retry(key, error)
            else:
                self._queue.forget(key)
            finally:
                self._queue.done(key)

    async def _sync(self, key: str) -> None:
        if key == POD_ROOM:
            for waiting in sorted(self._runner.unscheduled):
                self._queue.add(waiting)
            return
        pod = self._pods.indexer.get(key)
        if pod is None:
            self._runner.forget(key)
            return
        delay = await self._runner.sync(with_images(pod, self._images))
        if delay is not None:
            self._queue.add_after(key, delay)

    def _retry(self, key: str, error: Exception) -> None:
        """Try again later. Log only the first failure of a pod: while the server is unreachable, every pod fails."""
        if self._queue.num_requeues(key) == 0:
            ours = isinstance(error, ApiError)
            log.warning("pod_sync_failed", pod=key, error=str(error), exc_info=None if ours else error)
        self._queue.add_rate_limited(key)

    def _on_add(self, pod: HollowPod) -> None:
        self._scheduler.observe(pod)
        self._queue.add(key_of(pod))

    def _on_delete(self, key: str) -> None:
        if self._scheduler.forget(key):
            self._try_the_unscheduled()
        self._queue.add(key)

    def _on_node(self, node: HollowNodeObject) -> None:
        if self._scheduler.observe_node(node):
            self._try_the_unscheduled()

    def _try_the_unscheduled(self) -> None:
        if self._runner.unscheduled:
            self._queue.add_after(POD_ROOM, ROOM_S)

    def _on_update(self, old: HollowPod, new: HollowPod) -> None:
        """Skip the events of the node's own status patches: the runner remembers what it reported."""
        if self._scheduler.observe(new):
            self._try_the_unscheduled()
        if (old.metadata.uid, old.spec, _orders(old)) != (new.metadata.uid, new.spec, _orders(new)):
            self._queue.add(key_of(new))


def _orders(pod: HollowPod) -> tuple[object, ...]:
    """Return the metadata by which others control the pod."""
    meta = pod.metadata
    return meta.deletion_timestamp, meta.deletion_grace_period_seconds, meta.annotations
