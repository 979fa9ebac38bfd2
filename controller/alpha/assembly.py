"""Puts the controllers of the alpha dialect together: all of this package that its callers need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfjob_operator.controller.alpha.caches import AlphaCaches
from tfjob_operator.controller.alpha.controller import AlphaController
from tfjob_operator.controller.alpha.executor import AlphaExecutor
from tfjob_operator.controller.alpha.status_writer import AlphaStatusWriter
from tfjob_operator.controller.alpha.takeover import AlphaTakeover
from tfjob_operator.controller.config.values import NO_CONFIG
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.feed import Feed
from tfjob_operator.controller.jobs.told import Told
from tfjob_operator.controller.manager import Controller
from tfjob_operator.workqueue import NO_METRICS, RateLimitingQueue, default_controller_rate_limiter

if TYPE_CHECKING:
    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.v1alpha1.constants import Dialect
    from tfjob_operator.controller.config.values import ConfigSource
    from tfjob_operator.controller.events.recorder import EventRecorder
    from tfjob_operator.controller.jobs.metrics import JobMetrics
    from tfjob_operator.informers import SharedInformerFactory
    from tfjob_operator.workqueue import Clock, MetricsProvider


@dataclass(frozen=True, slots=True)
class AlphaPart:
    """The controller of one dialect, ready to be run, and its caches."""

    controller: Controller
    caches: AlphaCaches


def new_alpha_part(
    dialect: Dialect,
    informers: SharedInformerFactory,
    writer: RestClient,
    recorder: EventRecorder,
    *,
    jobs_metrics: JobMetrics,
    clock: Clock,
    metrics: MetricsProvider = NO_METRICS,
    namespace: str = "",
    resync_s: float = 0.0,
    workers: int = 1,
    config: ConfigSource = NO_CONFIG,
) -> AlphaPart:
    """Return the controller of the jobs of `namespace`, "" for all, which writes through `writer`.

    `config` says what accelerators need.
    """
    name = f"tfjob-{dialect.resource.group.replace('.', '-')}-v1alpha1"
    queue: RateLimitingQueue[str] = RateLimitingQueue(
        default_controller_rate_limiter(), name=name, metrics=metrics, clock=clock
    )
    caches = AlphaCaches.of(dialect, informers, namespace, resync_s=resync_s)
    alpha = new_alpha_controller(
        dialect, caches, writer, recorder, queue, clock=clock, metrics=jobs_metrics, config=config
    )
    controller = Controller(
        name, alpha.sync, queue=queue, workers=workers, on_start=alpha.begin, metrics=metrics, clock=clock
    )
    return AlphaPart(controller, caches)


def new_alpha_controller(
    dialect: Dialect,
    caches: AlphaCaches,
    client: RestClient,
    recorder: EventRecorder,
    queue: RateLimitingQueue[str],
    *,
    clock: Clock,
    metrics: JobMetrics,
    config: ConfigSource = NO_CONFIG,
) -> AlphaController:
    """Return what syncs keys of jobs: it works on these caches, writes through `client`, and puts its keys into `queue`."""
    expectations = Expectations(clock)
    return AlphaController(
        dialect,
        caches=caches,
        client=client,
        feed=Feed(queue),
        takeover=AlphaTakeover(dialect, client, recorder),
        executor=AlphaExecutor(dialect, client, recorder, expectations, Told(clock), config=config),
        status_writer=AlphaStatusWriter(dialect, client, recorder, metrics, clock=clock),
        expectations=expectations,
        metrics=metrics,
        clock=clock,
    )
