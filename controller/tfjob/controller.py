"""The TFJob controller: informer events become keys, and workers (`controller.manager`) sync them.

A sync never looks at the event that caused it. It opens a view of the job (`view.py`), computes a plan (`plan/`), and executes
it (`apply/`). If a sync fails, the job is retried with a growing delay; other jobs are not affected. `new_controller` creates
the parts.

Invariants:

- The queue gives a key to at most one worker at a time: the state of a job is not modified concurrently.
"""

from __future__ import annotations

import structlog

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.meta import ObjectMeta, meta_key
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.controller.config.values import NO_CONFIG, ConfigSource
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.jobs.children import ConfigMap, Pod, Service
from tfjob_operator.controller.jobs.expectations import Expectations, Feed, JobHandler
from tfjob_operator.controller.jobs.metrics import JobMetrics
from tfjob_operator.controller.jobs.writes import JobEvents
from tfjob_operator.controller.tfjob.apply.children import CONFIG_MAP, POD, SERVICE, Creator, Deleter
from tfjob_operator.controller.tfjob.apply.confirmer import Confirmer
from tfjob_operator.controller.tfjob.apply.conflicts import BlockedChildren, ChildHandler, ChildRecords, Delays
from tfjob_operator.controller.tfjob.apply.executor import Executor, TFJobStatusWriter
from tfjob_operator.controller.tfjob.apply.ownership import ChildRepairer, RefManager, Takeover
from tfjob_operator.controller.tfjob.caches import TFJobCaches
from tfjob_operator.controller.tfjob.logs import LogReader
from tfjob_operator.controller.tfjob.nodes import LostPods, NodeCache
from tfjob_operator.controller.tfjob.plan.actions import DEFAULTS, Defaults, Plan
from tfjob_operator.controller.tfjob.plan.plan import plan
from tfjob_operator.controller.tfjob.view import JobMemory, LeadershipTerm, PrunedStatus, View, Views
from tfjob_operator.workqueue import Clock, RateLimitingQueue


class TFJobController:
    """Runs TFJobs. Created by `new_controller`."""

    def __init__(
        self,
        *,
        caches: TFJobCaches,
        feed: Feed,
        views: Views,
        takeover: Takeover,
        ref_manager: RefManager,
        executor: Executor,
        records: ChildRecords,
        metrics: JobMetrics,
        leadership_term: LeadershipTerm | None = None,
        nodes: NodeCache | None = None,
        logs: LogReader | None = None,
    ) -> None:
        """Register the handlers. `feed` adds to the workers' queue.

        `leadership_term` is None if other processes may work on jobs at the same time.
        """
        self._caches = caches
        self._feed = feed
        self._views = views
        self._takeover = takeover
        self._ref_manager = ref_manager
        self._executor = executor
        self._records = records
        self._metrics = metrics
        self._leadership_term = leadership_term
        self._nodes = nodes
        if nodes is not None:
            nodes.feed = feed
        self._logs = logs
        if logs is not None:
            logs.feed = feed
        expectations, blocked = records.expectations, records.blocked
        caches.jobs.add_event_handler(JobHandler[TFJob](feed, self._forget))
        caches.pods.add_event_handler(ChildHandler[Pod](POD.name, feed, expectations, blocked))
        caches.services.add_event_handler(ChildHandler[Service](SERVICE.name, feed, expectations, blocked))
        caches.config_maps.add_event_handler(ChildHandler[ConfigMap](CONFIG_MAP.name, feed, expectations, blocked))
        if caches.pod_groups is not None:
            caches.pod_groups.add_handler(feed, expectations, blocked)

    def feed(self) -> None:
        """Queue all cached jobs now, and from now on every job that changes. Repeated calls have no effect."""
        self._feed.open(self._caches.jobs.indexer.list())

    async def begin(self) -> None:
        """Start the work of a leader: queue the jobs and start the leadership term."""
        self.feed()
        if self._leadership_term is not None:
            await self._leadership_term.begin()

    async def sync(self, key: str) -> None:
        """Move one job closer to its spec. Raises ApiError if it must be retried."""
        opened = self._views.open(key)
        if opened is None:
            if self._logs is not None:
                self._logs.forget(key)  # another controller manages it now
            return
        job = opened[0].job.metadata
        structlog.contextvars.bind_contextvars(uid=job.uid)
        try:
            await self._sync(key, *opened)
        finally:
            if not self._caches.jobs.indexer.has(job):
                self._forget(job)  # again: this sync has added state since

    async def _sync(self, key: str, view: View, memory: JobMemory) -> None:
        wait_s = await self._takeover.ensure_labelled(view)
        if wait_s is not None:
            self._feed.after(key, wait_s)
            return  # synced again when the caches contain the labeled children
        adoptions = await self._ref_manager.claim(view)
        self._feed.after(key, adoptions.wait_s)
        if adoptions.any:
            return  # synced again when the caches contain them
        planned: View | None = view
        while planned is not None:  # twice if a child is rejected; nothing is created for a rejected spec
            planned = await self._executor.execute(planned, memory, self._plan(planned, memory))

    def _plan(self, view: View, memory: JobMemory) -> Plan:
        decided = plan(view)
        memory.first_seen = decided.first_seen
        if self._logs is not None:
            self._logs.watch(view.key, decided.log_watch)
        return decided

    def _forget(self, gone: ObjectMeta) -> None:
        if self._nodes is not None:
            self._nodes.forget(meta_key(gone))
        if self._logs is not None:
            self._logs.forget(meta_key(gone))
        self._records.forget(gone)
        self._executor.forget(gone.uid)
        # Only jobs that this process has worked on are counted: standby replicas observe the deletion too, and jobs of another
        # controller are not ours (B75).
        if self._views.forget(gone):
            self._metrics.count("deleted", gone.namespace)


def new_controller(
    caches: TFJobCaches,
    client: RestClient,
    recorder: EventRecorder,
    queue: RateLimitingQueue[str],
    *,
    clock: Clock,
    metrics: JobMetrics,
    leadership_term: LeadershipTerm | None = None,
    domain: str = "",
    ignore_alpha: bool = False,
    config: ConfigSource = NO_CONFIG,
    expectations: Expectations | None = None,
    delays: Delays | None = None,
    defaults: Defaults = DEFAULTS,
    nodes: NodeCache | None = None,
    logs: LogReader | None = None,
) -> TFJobController:
    """Return a controller that reads these caches, writes through `client`, and adds keys to `queue`.

    `leadership_term` is None if other processes may work on jobs at the same time; `domain` is the cluster's DNS domain if
    TF_CONFIG needs it. `ignore_alpha` is true if jobs of the alpha dialect have their own controller. `expectations` and
    `delays` are created unless given. Without `nodes`, the state of nodes is ignored, and without `logs`, no job stalls.
    """
    expectations = expectations or Expectations(clock)
    delays = delays or Delays(clock)
    blocked = BlockedChildren(clock, delays)
    feed, events = Feed(queue), JobEvents(TFJOBS, recorder, clock)
    pruned, confirmer = PrunedStatus(events), Confirmer(client)
    gang = caches.pod_groups.scheduler if caches.pod_groups is not None else None
    return TFJobController(
        caches=caches,
        feed=feed,
        views=Views(
            caches,
            expectations,
            pruned,
            blocked,
            clock=clock,
            nodes=nodes,
            logs=logs,
            domain=domain,
            defaults=defaults,
            leadership_term=leadership_term,
            ignore_alpha=ignore_alpha,
        ),
        takeover=Takeover(client, events, expectations),
        ref_manager=RefManager(client, confirmer, events, expectations, delays),
        executor=Executor(
            status_writer=TFJobStatusWriter(client, events, metrics, pruned, feed=feed, clock=clock),
            confirmer=confirmer,
            creator=Creator(
                client,
                events,
                expectations,
                blocked,
                domain=domain,
                gang=gang,
                config=config,
                last_words=defaults.last_words,
                backend_variables=defaults.backend_variables,
            ),
            deleter=Deleter(client, events, expectations, gang=gang),
            repairer=ChildRepairer(client, events, delays),
            events=events,
            metrics=metrics,
            expectations=expectations,
            blocked=blocked,
            feed=feed,
            lost_pods=LostPods(client, events, recorder, feed, clock),
            clock=clock,
        ),
        records=ChildRecords(expectations, delays, blocked),
        metrics=metrics,
        leadership_term=leadership_term,
        nodes=nodes,
        logs=logs,
    )
