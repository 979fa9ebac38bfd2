"""The TFJob controller: events of the informers become keys, and workers (`controller.manager`) sync the keys.

A sync never looks at the event that woke it. It opens a view of the job (`view.py`), computes a plan (`plan/`), and executes it
(`apply/`). Whatever fails in one sync costs that job a retry after a growing delay, and no other job anything. `new_controller`
puts the parts together.

Invariants:

- A key is held by one worker at most (the queue sees to it), so nothing else changes what is remembered of a job while it
  is synced.
"""

from __future__ import annotations

import structlog

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.meta import ObjectMeta, meta_key
from tfjob_operator.api.v1.conditions import is_finished
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1.tf_config import too_long
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.api.v1.validation import BOUNDS
from tfjob_operator.controller.config.values import NO_CONFIG, ConfigSource
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.jobs.children import ConfigMap, Pod, Service
from tfjob_operator.controller.jobs.expectations import Expectations, Feed, JobHandler
from tfjob_operator.controller.jobs.metrics import JobMetrics
from tfjob_operator.controller.jobs.writes import JobEvents
from tfjob_operator.controller.tfjob.apply.children import CONFIG_MAP, POD, SERVICE, Creator, Deleter
from tfjob_operator.controller.tfjob.apply.conflicts import BlockedChildren, ChildHandler, ChildRecords, Delays
from tfjob_operator.controller.tfjob.apply.executor import Executor, StatusWriter
from tfjob_operator.controller.tfjob.apply.ownership import ChildRepairer, RefManager, Takeover
from tfjob_operator.controller.tfjob.caches import Caches
from tfjob_operator.controller.tfjob.nodes import LostPods, NodeCache
from tfjob_operator.controller.tfjob.plan.actions import DEFAULTS, Defaults, Plan
from tfjob_operator.controller.tfjob.plan.nodes import Nodes
from tfjob_operator.controller.tfjob.plan.plan import node_lost_after_s, plan
from tfjob_operator.controller.tfjob.view import Confirmer, LeadershipTerm, UnkeptStatus, View, Views
from tfjob_operator.workqueue import Clock, RateLimitingQueue


class TFJobController:
    """Runs TFJobs. `new_controller` puts one together."""

    def __init__(
        self,
        *,
        caches: Caches,
        feed: Feed,
        views: Views,
        takeover: Takeover,
        ref_manager: RefManager,
        executor: Executor,
        records: ChildRecords,
        metrics: JobMetrics,
        clock: Clock,
        leadership_term: LeadershipTerm | None = None,
        domain: str = "",
        defaults: Defaults = DEFAULTS,
        nodes: NodeCache | None = None,
    ) -> None:
        """Register the handlers. `feed` leads into the queue of the workers.

        `domain` is the cluster's DNS domain where TF_CONFIG needs it. `leadership_term` is None where others may work on jobs
        at the same time.
        """
        self._caches = caches
        self._feed = feed
        self._views = views
        self._takeover = takeover
        self._ref_manager = ref_manager
        self._executor = executor
        self._records = records
        self._metrics = metrics
        self._clock = clock
        self._leadership_term = leadership_term
        self._domain = domain
        self._defaults = defaults
        self._nodes = nodes
        if nodes is not None:
            nodes.feed = feed
        expectations, blocked = records.expectations, records.blocked
        caches.jobs.add_event_handler(JobHandler[TFJob](feed, self._forget))
        caches.pods.add_event_handler(ChildHandler[Pod](POD.name, feed, expectations, blocked))
        caches.services.add_event_handler(ChildHandler[Service](SERVICE.name, feed, expectations, blocked))
        caches.config_maps.add_event_handler(ChildHandler[ConfigMap](CONFIG_MAP.name, feed, expectations, blocked))
        if caches.pod_groups is not None:
            caches.pod_groups.add_handler(feed, expectations, blocked)

    def feed(self) -> None:
        """Queue all jobs of the cache now, and from now on every job that changes. Repeated calls do nothing."""
        self._feed.open(self._caches.jobs.indexer.list())

    async def begin(self) -> None:
        """Start the work of a leader: queue the jobs, and begin the leadership term."""
        self.feed()
        if self._leadership_term is not None:
            await self._leadership_term.begin()

    async def sync(self, key: str) -> None:
        """Bring one job closer to what its specification asks for. Raises ApiError when it must be tried again."""
        view = self._views.open(key)
        if view is None:
            return
        job = view.job.metadata
        structlog.contextvars.bind_contextvars(uid=job.uid)
        try:
            await self._sync(key, view)
        finally:
            if not self._caches.jobs.indexer.has(job):
                self._forget(job)  # again: this sync has written down more about it since

    async def _sync(self, key: str, view: View) -> None:
        wait_s = await self._takeover.settle(view)
        if wait_s is not None:
            self._feed.after(key, wait_s)
            return  # what another operator made is on its way into the caches, which brings another sync
        adoptions = await self._ref_manager.claim(view)
        self._feed.after(key, adoptions.wait_s)
        if adoptions.any:
            return  # the caches will show them, which brings another sync
        planned: View | None = view
        while (
            planned is not None
        ):  # once, or twice if a child is refused: for a refused specification nothing is created
            planned = await self._executor.execute(planned, self._plan(planned))

    def _plan(self, view: View) -> Plan:
        return plan(
            view.job,
            view.spec,
            view.pods,
            view.services,
            self._clock.now(),
            config_maps=view.config_maps,
            gang=view.gang,
            domain=self._domain,
            blocked=view.blocked,
            unreported=view.unreported,
            defaults=self._defaults,
            nodes=self._nodes_of(view),
        )

    def _nodes_of(self, view: View) -> Nodes | None:
        """Return what is known of the nodes of a job's pods; None if they do not concern it."""
        spec = view.good_spec
        if self._nodes is None or spec is None or not (spec.has_node_rules or node_lost_after_s(spec, self._defaults)):
            return None
        if is_finished(view.job.status) and all(pod.metadata.deletion_timestamp is None for pod in view.pods):
            return None
        return self._nodes.of(view.key, view.pods)

    def _forget(self, gone: ObjectMeta) -> None:
        if self._nodes is not None:
            self._nodes.forget(meta_key(gone))
        self._records.forget(gone)
        self._executor.forget(gone.uid)
        # Only jobs that this process has worked on are counted: replicas that wait for the lease see the deletion too, and jobs
        # of another controller are not ours (B75).
        if self._views.forget(gone):
            self._metrics.count("deleted", gone.namespace)


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
    defaults: Defaults = DEFAULTS,
    nodes: NodeCache | None = None,
) -> TFJobController:
    """Return a controller that works on these caches, writes through `client`, and puts its keys into `queue`.

    `leadership_term` is None where others may work on jobs at the same time; `domain` is the cluster's DNS domain where
    TF_CONFIG needs it. `leaves_alpha`: jobs of the alpha dialect have a controller of their own. `expectations` and `delays`
    are new and empty unless they are given. Without `nodes` jobs run as if no node were ever sick or lost.
    """
    expectations = expectations or Expectations(clock)
    delays = delays or Delays(clock)
    blocked = BlockedChildren(clock, delays)
    feed, events = Feed(queue), JobEvents(TFJOBS, recorder, clock)
    unkept = UnkeptStatus(events)
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
            blocked,
            leadership_term=leadership_term,
            bounds=bounds,
            leaves_alpha=leaves_alpha,
        ),
        takeover=Takeover(client, events, expectations),
        ref_manager=RefManager(client, events, expectations, delays),
        executor=Executor(
            status_writer=StatusWriter(client, events, metrics, unkept, feed=feed, clock=clock),
            creator=Creator(
                client,
                events,
                expectations,
                blocked,
                domain=domain,
                gang=gang,
                config=config,
                last_words=defaults.last_words,
            ),
            deleter=Deleter(client, events, expectations, gang=gang),
            repairer=ChildRepairer(client, events, delays),
            events=events,
            metrics=metrics,
            expectations=expectations,
            blocked=blocked,
            feed=feed,
            lost_pods=LostPods(client, events, recorder, feed, clock),
        ),
        records=ChildRecords(expectations, delays, blocked),
        metrics=metrics,
        clock=clock,
        leadership_term=leadership_term,
        domain=domain,
        defaults=defaults,
        nodes=nodes,
    )
