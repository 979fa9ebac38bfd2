"""Puts a TFJob controller together out of its parts: all that those who run one need of this package, beside `Caches`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.v1.bounds import BOUNDS
from tfjob_operator.controller.config.values import NO_CONFIG
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.feed import Feed
from tfjob_operator.controller.tfjob.adoption import RefManager
from tfjob_operator.controller.tfjob.blocked import BlockedChildren
from tfjob_operator.controller.tfjob.build.tf_config import too_long
from tfjob_operator.controller.tfjob.child_records import ChildRecords
from tfjob_operator.controller.tfjob.confirmation import Confirmer
from tfjob_operator.controller.tfjob.controller import TFJobController
from tfjob_operator.controller.tfjob.creator import Creator
from tfjob_operator.controller.tfjob.delays import Delays
from tfjob_operator.controller.tfjob.deleter import Deleter
from tfjob_operator.controller.tfjob.executor import Executor
from tfjob_operator.controller.tfjob.job_events import JobEvents
from tfjob_operator.controller.tfjob.mender import Mender
from tfjob_operator.controller.tfjob.status_writer import StatusWriter
from tfjob_operator.controller.tfjob.takeover import Takeover
from tfjob_operator.controller.tfjob.unkept import UnkeptStatus
from tfjob_operator.controller.tfjob.view import Views

if TYPE_CHECKING:
    from tfjob_operator.api.client import RestClient
    from tfjob_operator.controller.config.values import ConfigSource
    from tfjob_operator.controller.events.recorder import EventRecorder
    from tfjob_operator.controller.jobs.metrics import JobMetrics
    from tfjob_operator.controller.tfjob.caches import Caches
    from tfjob_operator.controller.tfjob.leadership_term import LeadershipTerm
    from tfjob_operator.workqueue import Clock, RateLimitingQueue


def new_controller(
    caches: Caches,
    client: RestClient,
    recorder: EventRecorder,
    queue: RateLimitingQueue[str],
    *,
    clock: Clock,
    metrics: JobMetrics,
    leadership_term: LeadershipTerm | None = None,
    domain: str = "",
    leaves_alpha: bool = False,
    config: ConfigSource = NO_CONFIG,
    expectations: Expectations | None = None,
    delays: Delays | None = None,
) -> TFJobController:
    """Return a controller that works on these caches, writes through `client`, and puts its keys into `queue`.

    `leadership_term` is None where others may work on jobs at the same time; `domain` is the cluster's DNS domain where
    TF_CONFIG needs it. `leaves_alpha`: jobs of the alpha dialect have a controller of their own. `expectations` and `delays`
    are new and empty unless they are given.
    """
    expectations = expectations or Expectations(clock)
    delays = delays or Delays(clock)
    blocked = BlockedChildren(clock, delays)
    feed, events, unkept = Feed(queue), JobEvents(recorder), UnkeptStatus(recorder)
    gang = caches.pod_groups.scheduler if caches.pod_groups is not None else None
    bounds = (*BOUNDS, lambda meta, spec: too_long(meta, spec, domain))
    return TFJobController(
        caches=caches,
        feed=feed,
        views=Views(
            caches,
            expectations,
            Confirmer(client),
            unkept,
            leadership_term=leadership_term,
            bounds=bounds,
            leaves_alpha=leaves_alpha,
        ),
        takeover=Takeover(client, events, expectations),
        ref_manager=RefManager(client, events, expectations, delays),
        executor=Executor(
            status_writer=StatusWriter(client, recorder, metrics, unkept, feed=feed, clock=clock),
            creator=Creator(client, events, expectations, blocked, domain=domain, gang=gang, config=config),
            deleter=Deleter(client, events, expectations, gang=gang),
            mender=Mender(client, events, delays),
            events=events,
            expectations=expectations,
            blocked=blocked,
            feed=feed,
        ),
        records=ChildRecords(expectations, delays, blocked),
        metrics=metrics,
        clock=clock,
        leadership_term=leadership_term,
        domain=domain,
    )
