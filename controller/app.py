"""The composition root: builds the operator's graph, on whatever transports and clock it is given."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from tfjob_operator.api.client import HttpTransport, RestClient
from tfjob_operator.api.client.http.origin import Origin
from tfjob_operator.api.v1.constants import EVENT_SOURCE
from tfjob_operator.controller.events import EventRecorder
from tfjob_operator.controller.leaderelection import (
    Fence,
    FencedTransport,
    GatedTransport,
    LeaderElector,
    LeaseLock,
    LeaseWatch,
    hostname_uuid,
)
from tfjob_operator.controller.manager import Controller, Manager
from tfjob_operator.controller.observability.http_server import PageServer
from tfjob_operator.controller.observability.loop_lag import LoopLag
from tfjob_operator.controller.observability.metrics import PrometheusMetrics, new_registry
from tfjob_operator.controller.options import program_version
from tfjob_operator.controller.tfjob.assembly import new_controller
from tfjob_operator.controller.tfjob.caches import Caches
from tfjob_operator.controller.tfjob.crd_check import tell_of_missing_fields
from tfjob_operator.controller.tfjob.leadership_term import LeadershipTerm
from tfjob_operator.controller.tfjob.metrics import JobMetrics
from tfjob_operator.informers import SharedInformerFactory
from tfjob_operator.workqueue import (
    NO_METRICS,
    LoopClock,
    RateLimitingQueue,
    TokenBucket,
    default_controller_rate_limiter,
)
from tfjob_operator.workqueue.metrics import Metric

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Mapping

    from tfjob_operator.api.client import Settings, Transport
    from tfjob_operator.controller.options import ElectionOptions, Options
    from tfjob_operator.workqueue import Clock, MetricsProvider

NAME: Final = "tfjob"
"""The controller's name, on the metrics of its queue and its workers, and on the lines that are logged in its syncs."""

IS_LEADER: Final = Metric("tf_operator_is_leader", "Whether this process does the work: 1 or 0", labels=())

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Transports:
    """One each for what must not wait for the other: watches that stay open, writes that come in thousands, the lease."""

    watches: Transport
    writes: Transport
    lease: Transport


def build(
    options: Options,
    transports: Transports,
    stop: asyncio.Event,
    *,
    identity: str,
    metrics: MetricsProvider = NO_METRICS,
    host: str = "",
    pages: PageServer | None = None,
    beside: Mapping[str, Callable[[], Coroutine[object, object, None]]] | None = None,
    clock: Clock | None = None,
    chance: Callable[[], float] = random.random,
) -> Manager:
    """Build the graph. Nothing runs yet.

    stop: when it is set, the operator stops.
    identity: the name under which this process asks for the lease; no other process may have it.
    host: the API server's name and port, a label of the metrics of requests.
    pages, beside: what else the manager runs.
    """
    clock = clock or LoopClock()
    client = partial(RestClient, metrics=metrics, host=host, clock=clock)
    elector, fenced = None, transports.writes
    if options.election is not None:
        fence = Fence(clock)
        fenced = FencedTransport(transports.writes, fence)
        lease = client(transports.lease, request_s=options.election.times.call_timeout_s)
        elector = _elector(options.election, lease, fence, identity, metrics=metrics, clock=clock, chance=chance)
    # One limit for all requests but the lease's, which must not wait for anything of ours.
    limiter = TokenBucket(options.qps, options.burst, clock=clock) if options.qps else None
    work_gate, event_gate = GatedTransport(fenced), GatedTransport(fenced)
    writing = partial(client, field_manager=EVENT_SOURCE, limiter=limiter)
    reader = client(transports.watches, limiter=limiter)
    informers = SharedInformerFactory(reader, clock=clock, metrics=metrics)
    recorder = EventRecorder(writing(event_gate), component=EVENT_SOURCE, clock=clock, metrics=metrics)
    controller, expect_jobs = _tfjobs(options, informers, reader, writing(work_gate), recorder, metrics, clock)
    manager = Manager(
        informers,
        controller,
        stop=stop,
        elector=elector,
        work_gate=work_gate,
        recorder=recorder,
        event_gate=event_gate,
        pages=pages,
        beside=beside,
        on_synced=expect_jobs,
    )
    metrics.gauge(IS_LEADER).set_function(lambda: float(manager.is_leading))
    return manager


def _elector(
    election: ElectionOptions,
    client: RestClient,
    fence: Fence,
    identity: str,
    *,
    metrics: MetricsProvider,
    clock: Clock,
    chance: Callable[[], float],
) -> LeaderElector:
    return LeaderElector(
        LeaseLock(client, election.namespace, election.name, identity=identity),
        config=election.times,
        fence=fence,
        watch=LeaseWatch(client, election.namespace, election.name),
        metrics=metrics,
        clock=clock,
        chance=chance,
    )


def _tfjobs(  # noqa: PLR0917 - one of each
    options: Options,
    informers: SharedInformerFactory,
    reader: RestClient,
    writer: RestClient,
    recorder: EventRecorder,
    metrics: MetricsProvider,
    clock: Clock,
) -> tuple[Controller, Callable[[], None]]:
    """Build the controller of TFJobs; and what prepares the counters of the namespaces whose jobs are in the cache."""
    counted = JobMetrics(metrics)
    if options.namespace:
        counted.expect([options.namespace])
    caches = Caches.of(
        informers,
        options.namespace,
        gang_scheduler_name=options.gang_scheduler_name if options.enable_gang_scheduling else "",
        resync_s=options.resync_s,
    )
    queue: RateLimitingQueue[str] = RateLimitingQueue(
        default_controller_rate_limiter(), name=NAME, metrics=metrics, clock=clock
    )
    tfjobs = new_controller(
        caches,
        writer,
        recorder,
        queue,
        clock=clock,
        metrics=counted,
        leadership_term=LeadershipTerm(reader, options.namespace) if options.election is not None else None,
        domain=options.cluster_domain,
    )
    controller = Controller(
        NAME,
        tfjobs.sync,
        queue=queue,
        workers=options.threadiness,
        on_start=tfjobs.begin,
        metrics=metrics,
        clock=clock,
    )
    return controller, lambda: counted.expect({job.metadata.namespace for job in caches.jobs.indexer.list()})


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
    metrics = PrometheusMetrics(registry)
    lag = LoopLag(metrics, clock)
    pages = None
    if options.monitoring_port:
        pages = PageServer(registry, options.monitoring_address, options.monitoring_port)
    # Watches each hold a connection as long as they live; a lease needs one for its watch and one for its requests.
    watches, writes = HttpTransport(settings, max_connections=0), HttpTransport(settings)
    lease = HttpTransport(settings, max_connections=2)
    async with contextlib.AsyncExitStack() as stack:
        for transport in (watches, writes, lease):
            await stack.enter_async_context(transport)
        manager = build(
            options,
            Transports(watches, writes, lease),
            stop,
            identity=identity,
            metrics=metrics,
            host=server.host_header,
            pages=pages,
            beside={
                "loop-lag": lag.run,
                "crd-check": lambda: tell_of_missing_fields(RestClient(watches, clock=clock)),
            },
            clock=clock,
        )
        await manager.run()
