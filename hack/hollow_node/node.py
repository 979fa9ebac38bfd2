"""The hollow node as a whole: Node objects, informers on these and on pods, a queue of keys and the workers that empty it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

import structlog

from hack.hollow_node.logs import client_authority, serving_logs
from hack.hollow_node.objects import HollowNodeObject, HollowPod
from hack.hollow_node.registration import NODES, NodeSpec, registered
from hack.hollow_node.runner import PodRunner
from hack.hollow_node.scheduling import Scheduler
from hack.hollow_node.script import ImageScript, with_images
from hack.hollow_node.timing import Timing
from hack.kubernetes_versions import NEWEST, Kubernetes
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.core import PODS
from tfjob_operator.informers import Codec, EventHandlerFuncs, SharedIndexInformer, SharedInformerFactory, key_of
from tfjob_operator.workqueue import Clock, ItemExponentialFailureRateLimiter, LoopClock, RateLimitingQueue, ShutDown

log = structlog.get_logger(__name__)

WORKERS: Final = 16  # status patches in flight: enough to keep an API server on two cores busy without a queue there
SYNC_TIMEOUT_S: Final = 60.0
RETRY_BASE_S: Final = 0.05
RETRY_CAP_S: Final = 10.0
ROOM: Final = ""
"""The key that stands for all pods that wait for room on a node."""
ROOM_S: Final = 0.1
"""After how long they are tried again when something has changed: several changes at once cost one try."""


class HollowNode:
    """Plays scheduler and kubelets for the pods of one API server, while `run` runs or an `async with` block lasts. Used once.

    Invariants: all its tasks live in one TaskGroup and end with it; a failed API call costs its pod a delay and
    nothing else. Everything that must survive a restart is in the pods themselves.
    """

    def __init__(
        self,
        client: RestClient,
        *,
        watch_client: RestClient | None = None,
        name: str = "hollow-node",
        nodes: Sequence[NodeSpec] = (),
        images: Mapping[str, ImageScript] | None = None,
        namespace: str = "",
        label_selector: str = "",
        timing: Timing | None = None,
        kubernetes: Kubernetes = NEWEST,
        workers: int = WORKERS,
        clock: Clock | None = None,
    ) -> None:
        """Take the clients (`watch_client` keeps the watch apart from writes), and which pods are ours to run.

        `nodes` are played; without any, one that is called `name` and has room for everything. `kubernetes` is the version
        whose kubelet and scheduler are played. `images` says what images do whose pods have no annotations about it.
        """
        self._client = client
        self._nodes = nodes or (NodeSpec(name),)
        self._scheduler = Scheduler((node.name for node in self._nodes), kubernetes, roomy=not nodes)
        self._images = images or {}
        self._workers = workers
        self._clock = clock or LoopClock()
        self._factory = SharedInformerFactory(watch_client or client, clock=clock)
        self._pods: SharedIndexInformer[HollowPod] = self._factory.informer(
            Codec(PODS, HollowPod), namespace=namespace, label_selector=label_selector
        )
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
        self._runner = PodRunner(client, self._scheduler, timing or Timing(), self._clock, kubernetes)
        self._kubernetes = kubernetes
        self._task: asyncio.Task[None] | None = None

    async def run(self, on_started: Callable[[], object] = lambda: None) -> None:
        """Run until cancelled; pods then stay as they are, as when a kubelet stops. `on_started` is called once all is set up.

        Raises ApiError when the API server refuses us or is not there at the start, and an ExceptionGroup with a
        CacheSyncTimeoutError when it answers but lists no pods; later such faults are waited out.
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
                    await (
                        registration.wait_for_sync()
                    )  # no pod is scheduled before all nodes, and what they run, are known
                for number in range(self._workers):
                    group.create_task(self._work(), name=f"hollow-node-{number}")
                on_started()
                await asyncio.Event().wait()
            finally:
                self._queue.shut_down()
                await self._factory.shut_down()

    async def __aenter__(self) -> Self:
        """Run beside the caller; return once the node is set up. Raises what `run` raises."""
        started = asyncio.Event()
        self._task = asyncio.create_task(self.run(started.set), name="hollow-node")
        self._task.add_done_callback(lambda _: started.set())
        try:
            await started.wait()
        except asyncio.CancelledError:
            await self._stop()
            raise
        if self._task.done():
            await self._task
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop. Raises what broke the node meanwhile, if anything did."""
        await self._stop()

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()

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
        if key == ROOM:
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
        """Try again later. Log only the first failure, which would be repeated for each pod while the server is away."""
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
            self._queue.add_after(ROOM, ROOM_S)

    def _on_update(self, old: HollowPod, new: HollowPod) -> None:
        """Skip the echoes of our own status patches: the runner remembers what it has reported."""
        if self._scheduler.observe(new):
            self._try_the_unscheduled()
        if (old.metadata.uid, old.spec, _orders(old)) != (new.metadata.uid, new.spec, _orders(new)):
            self._queue.add(key_of(new))


def _orders(pod: HollowPod) -> tuple[object, ...]:
    """Return the metadata through which others tell this node what to do with a pod."""
    meta = pod.metadata
    return meta.deletion_timestamp, meta.deletion_grace_period_seconds, meta.annotations
