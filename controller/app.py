"""The composition root: builds the graph of the operator, starts it in order, stops it in order.

Start: event recorder, informers, and when their caches are filled the workers. Stop: the queue takes nothing more and the
workers finish the keys in work, then the informers, then the recorder writes what it still has, then the connections close.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from api.client import HttpTransport, RestClient
from api.core import PODS, SERVICES, Pod, Service
from api.v1.constants import CHILD_SELECTOR, EVENT_SOURCE, TFJOBS
from api.v1.types import TFJob, tfjob_with_unreadable_status
from controller.events.recorder import EventRecorder
from controller.tfjob.controller import CHILD_INDEXERS, TFJobController
from controller.tfjob.executor import Executor
from controller.tfjob.expectations import Expectations
from controller.tfjob.gang import gang_scheduler
from controller.tfjob.metrics import NoJobMetrics
from controller.tfjob.pod_group_cache import PodGroupCache
from controller.tfjob.ref_manager import RefManager
from controller.tfjob.status_writer import StatusWriter
from informers import Codec, SharedInformerFactory
from workqueue import LoopClock, RateLimitingQueue, default_controller_rate_limiter

if TYPE_CHECKING:
    from api.client import Settings, Transport
    from controller.options import Options
    from controller.tfjob.metrics import JobMetrics
    from workqueue import Clock

DRAIN_S: Final = 6.0
"""How long syncs in work may take to end after SIGTERM; with the recorder's share it stays under ten seconds."""
FLUSH_S: Final = 2.0
"""How long the recorder may take to write what it has queued."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """The operator's graph on one pair of transports: everything above the wire."""

    factory: SharedInformerFactory
    queue: RateLimitingQueue[str]
    controller: TFJobController
    recorder: EventRecorder


def build(
    options: Options,
    *,
    watches: Transport,
    writes: Transport,
    clock: Clock | None = None,
    metrics: JobMetrics | None = None,
) -> Parts:
    """Build the graph. Nothing runs yet."""
    clock = clock or LoopClock()
    metrics = metrics or NoJobMetrics()
    writer = RestClient(writes, field_manager=EVENT_SOURCE, clock=clock)
    factory = SharedInformerFactory(RestClient(watches, clock=clock), clock=clock)
    namespace = options.namespace
    gang = gang_scheduler(options.gang_scheduler_name) if options.enable_gang_scheduling else None
    recorder = EventRecorder(writer, component=EVENT_SOURCE, clock=clock)
    expectations = Expectations(clock)
    queue: RateLimitingQueue[str] = RateLimitingQueue(default_controller_rate_limiter(), name="tfjob", clock=clock)
    controller = TFJobController(
        jobs=factory.informer(Codec(TFJOBS, TFJob, on_undecodable=tfjob_with_unreadable_status), namespace=namespace),
        pods=factory.informer(
            Codec(PODS, Pod), namespace=namespace, label_selector=CHILD_SELECTOR, indexers=CHILD_INDEXERS
        ),
        services=factory.informer(
            Codec(SERVICES, Service), namespace=namespace, label_selector=CHILD_SELECTOR, indexers=CHILD_INDEXERS
        ),
        pod_groups=PodGroupCache.of(gang, factory, namespace) if gang is not None else None,
        queue=queue,
        executor=Executor(writer, recorder, expectations, domain=options.cluster_domain, gang=gang),
        ref_manager=RefManager(writer, expectations),
        status_writer=StatusWriter(writer, recorder, metrics),
        expectations=expectations,
        metrics=metrics,
        clock=clock,
    )
    return Parts(factory, queue, controller, recorder)


async def run(options: Options, settings: Settings, stop: asyncio.Event) -> None:
    """Run the operator until `stop` is set, then stop it cleanly. Cancelling stops it at once."""
    async with HttpTransport(settings) as watches, HttpTransport(settings) as writes:
        await run_parts(build(options, watches=watches, writes=writes), options, stop)


async def run_parts(parts: Parts, options: Options, stop: asyncio.Event) -> None:
    """Start the parts, wait for `stop`, stop them."""
    async with asyncio.TaskGroup() as group:
        recording = group.create_task(parts.recorder.run(), name="event-recorder")
        parts.factory.start(group)
        log.info("operator_starting", namespace=options.namespace or "(all)")
        if await _synced(parts.factory, stop):
            working = group.create_task(parts.controller.run(options.threadiness), name="tfjob-controller")
            log.info("operator_ready", workers=options.threadiness)
            await stop.wait()
            log.info("operator_stopping", queued=len(parts.queue))
            await _drain(parts.queue, working)
        await parts.factory.shut_down()
        parts.recorder.stop()
        await asyncio.wait([recording], timeout=FLUSH_S)
        recording.cancel()
    log.info("operator_stopped")


async def _synced(factory: SharedInformerFactory, stop: asyncio.Event) -> bool:
    """Wait until the caches are filled, however long the API server is away. False when told to stop before."""
    async with asyncio.TaskGroup() as group:
        syncing = group.create_task(factory.wait_for_cache_sync(math.inf), name="wait-for-cache-sync")
        stopping = group.create_task(stop.wait(), name="wait-for-stop")
        await asyncio.wait([syncing, stopping], return_when=asyncio.FIRST_COMPLETED)
        syncing.cancel()
        stopping.cancel()
    return not stop.is_set()


async def _drain(queue: RateLimitingQueue[str], working: asyncio.Task[None]) -> None:
    """Let the syncs in work come to their end; cancel those that do not in time."""
    try:
        async with asyncio.timeout(DRAIN_S):
            queue.shut_down()
            await asyncio.shield(working)
    except TimeoutError:
        log.warning("sync_cut_short", limit_s=DRAIN_S)
        working.cancel()
