"""The composition root: builds the operator's object graph from the given transports and clock."""

from __future__ import annotations

import asyncio
import random as stdlib_random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from tfjob_operator.api.client import RestClient, Settings
from tfjob_operator.api.client.http.messages import Origin
from tfjob_operator.api.core import NODES, Node
from tfjob_operator.api.core_messages import BY_RESOURCE
from tfjob_operator.api.v1.constants import EVENT_SOURCE, TFJOBS
from tfjob_operator.controller.config.file import ConfigFile, OwnDeployment
from tfjob_operator.controller.config.values import NO_CONFIG, ConfigSource
from tfjob_operator.controller.jobs.handlers import Feed
from tfjob_operator.controller.jobs.job_metrics import JOBS, WAITING_SINCE, JobMetrics
from tfjob_operator.controller.leaderelection import hostname_uuid
from tfjob_operator.controller.manager import Controller, Manager
from tfjob_operator.controller.manager.parts import Parts, Transports, open_transports
from tfjob_operator.controller.observability.http_server import PageServer
from tfjob_operator.controller.observability.log import LINES_DROPPED, LogWriter
from tfjob_operator.controller.observability.metrics import LoopLag, PrometheusMetrics, new_registry
from tfjob_operator.controller.options import ALPHA_APIS, PROGRAM, V1, VERSION, Options
from tfjob_operator.controller.tensorboard.dialects import TFJOB
from tfjob_operator.controller.tensorboard.tensorboard_controller import TensorBoardControllers
from tfjob_operator.controller.tfjob.caches import TFJobCaches
from tfjob_operator.controller.tfjob.crd_check import check_crds
from tfjob_operator.controller.tfjob.log_reader import READS_PER_S, Limiters, LogReader
from tfjob_operator.controller.tfjob.nodes import NodeCache
from tfjob_operator.controller.tfjob.plan.types import Defaults
from tfjob_operator.controller.tfjob.tfjob_controller import TFJobController
from tfjob_operator.controller.tfjob.view import LeadershipTerm
from tfjob_operator.informers import Codec
from tfjob_operator.workqueue import (
    NO_METRICS,
    Clock,
    LoopClock,
    MetricsProvider,
    RateLimitingQueue,
    TokenBucket,
    default_controller_rate_limiter,
)
from tfjob_operator.workqueue.metrics import Metric

NAME: Final = "tfjob"
"""The controller's name in the metrics of its queue and workers, and in the log events of its syncs."""

METRICS_PREFIX: Final = "tf_operator_"
BUILD_INFO: Final = Metric(
    "tf_operator_build_info", "Always 1; the label is the operator's version", labels=("version",)
)
IS_LEADER: Final = Metric("tf_operator_is_leader", "Whether this process is the leader: 1 or 0", labels=())

log = structlog.get_logger(__name__)


def build(
    options: Options,
    transports: Transports,
    stop: asyncio.Event,
    *,
    identity: str,
    metrics: MetricsProvider = NO_METRICS,
    host: str = "",
    pages: PageServer | None = None,
    background: Mapping[str, Callable[[], Coroutine[object, object, None]]] | None = None,
    clock: Clock | None = None,
    random: Callable[[], float] = stdlib_random.random,
    config: ConfigFile | None = None,
) -> Manager:
    """Build the object graph. Nothing runs yet.

    stop: the operator stops when this is set.
    identity: the identity with which this process acquires the lease; it must be unique.
    host: the API server's name and port, a label of the request metrics.
    pages, background: see `Manager`.
    clock: None for the real clocks.
    config: the configuration file, if any.
    """
    # One rate limit for all requests except those for the lease, which must not be delayed.
    limiter = TokenBucket(options.qps, options.burst, clock=clock or LoopClock()) if options.qps else None
    shared = Parts(
        transports,
        component=EVENT_SOURCE,
        election=options.election,
        identity=identity,
        limiter=limiter,
        metrics=metrics,
        host=host,
        clock=clock,
        random=random,
    )
    clock = shared.clock
    background = dict(background or {})
    pace = TokenBucket(READS_PER_S, 1, clock=clock)
    log_limiter = pace if limiter is None else Limiters(limiter, pace)
    log_client = shared.reading(log_limiter)
    logs = partial(LogReader, log_client, log_limiter, clock=clock, metrics=metrics, quotes=options.quote_log_lines)
    controllers = _Controllers(options, shared, config or NO_CONFIG, background, logs)
    if config is not None:
        own = OwnDeployment(
            shared.reader,
            shared.recorder,
            options.own_namespace,
            options.own_deployment,
            is_leading=lambda: manager.is_leading,
        )
        background["config-file"] = partial(config.follow, own.report)

    def jobs_by_state() -> Mapping[tuple[str, ...], int]:
        # Also in a standby replica: it may become the leader.
        found = controllers.job_metrics.by_state(clock.monotonic())
        return found if manager.is_leading else {}

    def on_synced() -> None:
        jobs_by_state()
        log.info("operator_ready")

    manager = shared.manager(
        *(controllers.tfjobs() if V1 in options.apis else ()),
        *controllers.alpha(),
        stop=stop,
        pages=pages,
        background=background,
        on_synced=on_synced,
    )
    metrics.gauges(BUILD_INFO, lambda: {(VERSION,): 1.0})
    metrics.gauge(IS_LEADER, read=lambda: float(manager.is_leading))
    metrics.gauges(JOBS, jobs_by_state)
    metrics.gauges(WAITING_SINCE, lambda: controllers.job_metrics.waiting_since() if manager.is_leading else {})
    return manager


@dataclass(eq=False)
class _Controllers:
    """Builds the controllers of jobs, which share their metrics."""

    options: Options
    parts: Parts
    config: ConfigSource
    background: dict[str, Callable[[], Coroutine[object, object, None]]]
    logs: Callable[[Feed], LogReader]

    def __post_init__(self) -> None:
        parts = self.parts
        self.job_metrics = JobMetrics(parts.metrics)
        if self.options.namespace:
            self.job_metrics.expect([self.options.namespace])
        self._boards = TensorBoardControllers(
            parts.informers,
            parts.reader,
            parts.writer,
            parts.recorder,
            namespace=self.options.namespace,
            default_image=self.options.tensorboard_image,
            service_types=self.options.tensorboard_service_types,
            metrics=parts.metrics,
            clock=parts.clock,
        )

    def tfjobs(self) -> Iterator[Controller]:
        """Build the controller of TFJobs and that of their TensorBoards."""
        options, parts = self.options, self.parts
        caches = TFJobCaches.of(
            parts.informers,
            options.namespace,
            gang_scheduler_name=options.gang_scheduler_name if options.enable_gang_scheduling else "",
            resync_s=options.resync_s,
        )
        self.job_metrics.indexers.append(caches.jobs.indexer)
        queue: RateLimitingQueue[str] = RateLimitingQueue(
            default_controller_rate_limiter(), name=NAME, metrics=parts.metrics, clock=parts.clock
        )
        feed, has_lease = Feed(queue), options.election is not None
        logs = self.logs(feed)
        nodes = NodeCache(
            lambda: parts.informers.informer(Codec(NODES, Node, message=BY_RESOURCE[NODES]), required=False),
            parts.reader,
            caches.pods.indexer,
            feed,
            parts.clock,
        )
        self.background["nodes"] = nodes.run
        self.background["logs"] = logs.run
        tfjobs = TFJobController(
            caches,
            parts.writer,
            parts.recorder,
            feed,
            clock=parts.clock,
            metrics=self.job_metrics,
            leadership_term=LeadershipTerm(parts.reader, options.namespace) if has_lease else None,
            domain=options.cluster_domain,
            config=self.config,
            ignore_alpha=ALPHA_APIS[0] in options.apis,
            defaults=Defaults(
                delays=options.restart_backoff,
                completion_grace_s=int(options.completion_grace_s),
                node_lost_timeout_s=int(options.node_lost_timeout_s),
                fallback_to_logs=options.fallback_to_logs,
                backend_variables=options.backend_variables,
                retryable=options.retryable_exit_codes,
            ),
            nodes=nodes,
            logs=logs,
        )
        yield Controller(
            NAME,
            tfjobs.sync,
            queue=queue,
            workers=options.threadiness,
            on_start=tfjobs.begin,
            metrics=parts.metrics,
            clock=parts.clock,
        )
        yield self._boards.controller(TFJOB, caches.jobs)

    def alpha(self) -> Iterator[Controller]:
        """Build the controllers of the alpha dialect and their TensorBoards, if enabled; only then are they imported."""
        if not set(ALPHA_APIS).intersection(self.options.apis):
            return
        parts = self.parts
        from tfjob_operator.api.v1alpha1.constants import DIALECTS
        from tfjob_operator.controller.alpha.alpha_controller import new_alpha_part
        from tfjob_operator.controller.tensorboard.dialects import alpha_dialect

        for api, dialect in zip(ALPHA_APIS, DIALECTS, strict=True):
            if api not in self.options.apis:
                continue
            part = new_alpha_part(
                dialect,
                parts.informers,
                parts.writer,
                parts.recorder,
                jobs_metrics=self.job_metrics,
                clock=parts.clock,
                metrics=parts.metrics,
                namespace=self.options.namespace,
                resync_s=self.options.resync_s,
                workers=self.options.threadiness,
                config=self.config,
            )
            if (
                V1 not in self.options.apis or dialect.resource.group != TFJOBS.group
            ):  # else TFJobs would be counted twice
                self.job_metrics.indexers.append(part.caches.jobs.indexer)
            yield part.controller
            name = f"tensorboard-{part.controller.name}"
            yield self._boards.controller(alpha_dialect(dialect), part.caches.jobs, name=name)


def warn_about_flags(options: Options) -> None:
    """Log a warning for each flag without effect. It is not an error: the same arguments may be in use for years."""
    for flag, required in options.unused_flags:
        log.warning("flag_has_no_effect", flag=flag, requires=required)


async def run(options: Options, settings: Settings, stop: asyncio.Event, logs: LogWriter | None = None) -> None:
    """Run the operator until `stop` is set, then stop it gracefully. Cancelling stops it immediately.

    Raises ConfigFileError if the configuration file is invalid, ListenError if the monitoring port is in use,
    LeadershipLostError if the lease is lost, an ExceptionGroup if a component fails because of a bug.
    """
    clock = LoopClock()
    identity = hostname_uuid()
    server = Origin.of(settings.server)
    log.info(
        "operator_starting", version=VERSION, server=str(server), namespace=options.namespace or "(all)",
        identity=identity, leader_elect=options.election is not None,
    )  # fmt: skip
    warn_about_flags(options)
    registry = new_registry()
    metrics = PrometheusMetrics(registry, prefix=METRICS_PREFIX)
    lag = LoopLag(metrics, clock)
    if logs is not None:
        logs.count_dropped(metrics.counter(LINES_DROPPED))
    config = None
    if options.controller_config_file:
        config = ConfigFile(Path(options.controller_config_file), metrics=metrics)
    pages = None
    if options.monitoring_port:
        pages = PageServer(registry, options.monitoring_address, options.monitoring_port)
    async with open_transports(settings, PROGRAM) as transports:
        background: dict[str, Callable[[], Coroutine[object, object, None]]] = {
            "loop-lag": lag.run,
            "crd-check": lambda: check_crds(RestClient(transports.watches, clock=clock), options.apis),
        }
        manager = build(
            options,
            transports,
            stop,
            identity=identity,
            metrics=metrics,
            host=server.host_header,
            pages=pages,
            background=background,
            config=config,
        )
        await manager.run()
    log.info("operator_stopped")
