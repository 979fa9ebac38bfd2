"""The composition root: builds the operator's graph, on whatever transports and clock it is given."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from tfjob_operator.api.client import HttpTransport, RestClient
from tfjob_operator.api.client.http.origin import Origin
from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1.constants import EVENT_SOURCE
from tfjob_operator.controller.crd_check import tell_of_missing_fields
from tfjob_operator.controller.events import Drop, EventRecorder
from tfjob_operator.controller.leaderelection import (
    Fence,
    FencedTransport,
    GatedTransport,
    LeaderElector,
    LeaderHealth,
    LeaseLock,
    LeaseWatch,
    hostname_uuid,
)
from tfjob_operator.controller.observability.controller_metrics import EventMetrics, JobCounters, add_leader_gauge
from tfjob_operator.controller.observability.controller_metrics import ReconcileMetrics as PrometheusReconcileMetrics
from tfjob_operator.controller.observability.http_server import make_app, serving
from tfjob_operator.controller.observability.loop_lag import LoopLag
from tfjob_operator.controller.observability.metrics import SeriesProvider, new_registry
from tfjob_operator.controller.observability.request_metrics import PrometheusRequestMetrics
from tfjob_operator.controller.operator import Operator
from tfjob_operator.controller.options import program_version
from tfjob_operator.controller.tfjob.assembly import new_controller
from tfjob_operator.controller.tfjob.caches import Caches
from tfjob_operator.controller.tfjob.leadership_term import LeadershipTerm
from tfjob_operator.controller.tfjob.metrics import NoJobMetrics, NoReconcileMetrics
from tfjob_operator.informers import SharedInformerFactory
from tfjob_operator.workqueue import LoopClock, RateLimitingQueue, TokenBucket, default_controller_rate_limiter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tfjob_operator.api.client import RequestMetrics, Settings, Transport
    from tfjob_operator.controller.events import RecorderMetrics
    from tfjob_operator.controller.options import ElectionOptions, Options
    from tfjob_operator.controller.tfjob.metrics import JobMetrics, ReconcileMetrics
    from tfjob_operator.workqueue import Clock
    from tfjob_operator.workqueue.metrics import QueueMetricsProvider

NAME: Final = "tfjob"
"""The controller's name, on the metrics of its queue and its workers."""

FRAMEWORK: Final = "tensorflow"
"""The label that tells our jobs from those of other kinds in the family `training_operator_jobs_*`."""
EVENT_TYPES: Final = (EventType.NORMAL, EventType.WARNING, "Unknown")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Transports:
    """One each for what must not wait for the other: watches that stay open, writes that come in thousands, the lease."""

    watches: Transport
    writes: Transport
    lease: Transport


@dataclass(frozen=True, slots=True)
class Metrics:
    """What the parts count into; None, and the default, count nothing."""

    series: QueueMetricsProvider | None = None
    requests: RequestMetrics | None = None
    events: RecorderMetrics | None = None
    jobs: JobMetrics = field(default_factory=NoJobMetrics)
    reconciles: ReconcileMetrics = field(default_factory=NoReconcileMetrics)


def build(
    options: Options,
    transports: Transports,
    stop: asyncio.Event,
    *,
    identity: str,
    metrics: Metrics | None = None,
    clock: Clock | None = None,
    chance: Callable[[], float] = random.random,
) -> Operator:
    """Build the graph. Nothing runs yet.

    stop: when it is set, the operator stops.
    identity: the name under which this process asks for the lease; no other process may have it.
    """
    clock = clock or LoopClock()
    metrics = metrics or Metrics()
    fence = Fence(clock)
    # One limit for all requests but the lease's, which must not wait for anything of ours.
    limiter = TokenBucket(options.qps, options.burst, clock=clock) if options.qps else None
    fenced = FencedTransport(transports.writes, fence) if options.election is not None else transports.writes
    work_gate, event_gate = GatedTransport(fenced), GatedTransport(fenced)

    def writing(transport: Transport) -> RestClient:
        return RestClient(transport, field_manager=EVENT_SOURCE, limiter=limiter, metrics=metrics.requests, clock=clock)

    writer = writing(work_gate)
    reader = RestClient(transports.watches, limiter=limiter, metrics=metrics.requests, clock=clock)
    factory = SharedInformerFactory(reader, clock=clock, metrics=metrics.series)
    namespace = options.namespace
    recorder = EventRecorder(writing(event_gate), component=EVENT_SOURCE, clock=clock, metrics=metrics.events)
    queue: RateLimitingQueue[str] = RateLimitingQueue(
        default_controller_rate_limiter(), name=NAME, metrics=metrics.series, clock=clock
    )
    caches = Caches.of(
        factory,
        namespace,
        gang_scheduler_name=options.gang_scheduler_name if options.enable_gang_scheduling else "",
        resync_s=options.resync_s,
    )
    controller = new_controller(
        caches,
        writer,
        recorder,
        queue,
        clock=clock,
        metrics=metrics.jobs,
        reconciles=metrics.reconciles,
        leadership_term=LeadershipTerm(reader, namespace) if options.election is not None else None,
        domain=options.cluster_domain,
    )

    def elector(
        election: ElectionOptions, work: Callable[[], Coroutine[object, object, None]], stopped: Callable[[], None]
    ) -> LeaderElector:
        limit_s = election.times.call_timeout_s
        client = RestClient(transports.lease, metrics=metrics.requests, clock=clock, request_s=limit_s)
        return LeaderElector(
            LeaseLock(client, election.namespace, election.name, identity=identity),
            on_started_leading=work,
            on_stopped_leading=stopped,
            config=election.times,
            fence=fence,
            watch=LeaseWatch(client, election.namespace, election.name),
            metrics=metrics.series,
            clock=clock,
            chance=chance,
        )

    return Operator(
        factory=factory,
        queue=queue,
        controller=controller,
        recorder=recorder,
        work_gate=work_gate,
        event_gate=event_gate,
        workers=options.threadiness,
        stop=stop,
        on_synced=lambda: metrics.jobs.expect({job.metadata.namespace for job in caches.jobs.indexer.list()}),
        elect=functools.partial(elector, options.election) if options.election is not None else None,
    )


async def run(options: Options, settings: Settings, stop: asyncio.Event) -> None:
    """Run the operator until `stop` is set, then stop it cleanly. Cancelling stops it at once.

    Raises ListenError when the port for metrics is taken, LeadershipLostError when the lease is lost, an ExceptionGroup when a
    part fails by a bug.
    """
    clock = LoopClock()
    identity = hostname_uuid()
    server = Origin.of(settings.server)
    log.info(
        "operator_starting", version=program_version(), server=str(server), namespace=options.namespace or "(all)",
        identity=identity, leader_elect=options.election is not None,
    )  # fmt: skip
    registry = new_registry()
    reconciles = PrometheusReconcileMetrics(registry, NAME, workers=options.threadiness, clock=clock)
    jobs = JobCounters(registry, framework=FRAMEWORK)
    if options.namespace:
        jobs.expect([options.namespace])
    metrics = Metrics(
        series=SeriesProvider(registry),
        requests=PrometheusRequestMetrics(registry, server.host_header),
        events=EventMetrics(registry, types=EVENT_TYPES, reasons=Drop),
        jobs=jobs,
        reconciles=reconciles,
    )
    lag = LoopLag(registry, clock)
    # Watches each hold a connection as long as they live; a lease needs one for its watch and one for its requests.
    watches, writes = HttpTransport(settings, max_connections=0), HttpTransport(settings)
    lease = HttpTransport(settings, max_connections=2)
    operator = build(options, Transports(watches, writes, lease), stop, identity=identity, metrics=metrics, clock=clock)
    add_leader_gauge(registry, lambda: operator.is_leading)
    leadership = LeaderHealth()
    if operator.elector is not None:
        leadership.watch(operator.elector)
    pages = make_app(
        registry,
        healthz={"lease": leadership.check, "workers": reconciles.check},
        readyz={"operator": operator.why_not_ready},
    )
    async with contextlib.AsyncExitStack() as stack:
        if options.monitoring_port:
            await stack.enter_async_context(serving(pages, options.monitoring_address, options.monitoring_port))
        for transport in (watches, writes, lease):
            await stack.enter_async_context(transport)
        beside = [
            asyncio.create_task(lag.run(), name="loop-lag"),
            asyncio.create_task(tell_of_missing_fields(RestClient(watches, clock=clock)), name="crd-check"),
        ]
        try:
            await operator.run()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
