"""The TFJob controller: informer events become keys, and workers (`controller.manager`) sync them.

A sync (`controller.jobs.reconciler`) opens a view of the job (`view.py`), computes a plan from it (`plan/`), and executes the
plan (`apply/`). If it fails, the job is retried with a growing delay; other jobs are not affected.

In addition to what both dialects do:

- If the status moves restart records to pods, those pods are read before it is written. Before the end of a queued job is
  written, its pods are listed: none but those that the plan names may hold quota.
- Before the first pod of an attempt, the API server is asked whether a pod of an earlier attempt exists.
- After the deletes, each of which follows the last event of its pod (`apply/creator.py`), pods on lost nodes are terminated
  (`nodes.py`). The job itself is deleted last, when its TTL has expired.
"""

from __future__ import annotations

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.meta import ObjectMeta, meta_key, owner_uid_key
from tfjob_operator.api.v1.conditions import is_finished
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.controller.config.values import NO_CONFIG, ConfigSource
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.jobs.blocked import BlockedChildren, Delays
from tfjob_operator.controller.jobs.children import ConfigMap, Pod, Service
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.handlers import ChildHandler, Feed, JobHandler
from tfjob_operator.controller.jobs.job_metrics import JobMetrics, log_finished
from tfjob_operator.controller.jobs.pods import is_rejected
from tfjob_operator.controller.jobs.reconciler import Ownership, Reconciler
from tfjob_operator.controller.jobs.writes import JobEvents
from tfjob_operator.controller.tfjob.apply.confirmer import Confirmer
from tfjob_operator.controller.tfjob.apply.creator import CONFIG_MAP, POD, SERVICE, Creator, Deleter
from tfjob_operator.controller.tfjob.apply.ownership import ChildRepairer, RefManager, Takeover
from tfjob_operator.controller.tfjob.apply.status_writer import TFJobStatusWriter
from tfjob_operator.controller.tfjob.caches import TFJobCaches
from tfjob_operator.controller.tfjob.log_reader import LogReader
from tfjob_operator.controller.tfjob.nodes import LostPods, NodeCache
from tfjob_operator.controller.tfjob.plan.plan import plan
from tfjob_operator.controller.tfjob.plan.types import DEFAULTS, Defaults, Plan
from tfjob_operator.controller.tfjob.view import JobMemory, LeadershipTerm, Permission, PrunedStatus, View, Views
from tfjob_operator.workqueue import Clock


class TFJobController(Reconciler[TFJob, JobMemory, View, Plan]):
    """Runs TFJobs."""

    def __init__(
        self,
        caches: TFJobCaches,
        client: RestClient,
        recorder: EventRecorder,
        feed: Feed,
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
    ) -> None:
        """Read these caches, write through `client`, and queue keys through `feed`. Registers the handlers.

        `leadership_term` is None if other processes may work on jobs at the same time; `domain` is the cluster's DNS domain if
        TF_CONFIG needs it. `ignore_alpha` is true if jobs of the alpha dialect have their own controller. `expectations` and
        `delays` are created unless given. Without `nodes`, the state of nodes is ignored, and without `logs`, no job stalls.
        """
        events = JobEvents(TFJOBS, recorder, clock)
        expectations = expectations or Expectations(clock)
        self._pruned_status = pruned = PrunedStatus(events, feed, clock)
        self._confirmer = confirmer = Confirmer(client)
        self._status_writer = TFJobStatusWriter(client, events, metrics, clock, confirmer=confirmer, pruned=pruned)
        self._delays = delays = delays or Delays(clock)
        blocked = BlockedChildren(clock, delays)
        super().__init__(
            caches.jobs,
            self._status_writer,
            feed=feed,
            events=events,
            expectations=expectations,
            blocked=blocked,
            metrics=metrics,
        )
        self._caches = caches
        self._clock = clock
        self._leadership_term = leadership_term
        self._nodes, self._logs = nodes, logs
        self._views = Views(
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
        )
        gang = caches.pod_groups.scheduler if caches.pod_groups is not None else None
        self._takeover = Takeover(client, events, expectations)
        self._ref_manager = RefManager(client, confirmer, events, expectations, delays)
        self._creator = Creator(
            client,
            events,
            expectations,
            blocked,
            domain=domain,
            gang=gang,
            config=config,
            fallback_to_logs=defaults.fallback_to_logs,
            backend_variables=defaults.backend_variables,
        )
        self._deleter = Deleter(client, events, expectations, gang=gang)
        self._repairer = ChildRepairer(client, events, delays)
        self._lost_pods = LostPods(client, events, recorder, clock)
        caches.jobs.add_event_handler(JobHandler[TFJob](feed, self.forget))
        caches.pods.add_event_handler(ChildHandler[Pod](POD.name, feed, expectations, blocked))
        caches.services.add_event_handler(ChildHandler[Service](SERVICE.name, feed, expectations, blocked))
        caches.config_maps.add_event_handler(ChildHandler[ConfigMap](CONFIG_MAP.name, feed, expectations, blocked))
        if caches.pod_groups is not None:
            caches.pod_groups.add_handler(feed, expectations, blocked)

    def queue_jobs(self) -> None:
        """Queue all cached jobs now, and from now on every job that changes. Repeated calls have no effect."""
        self._feed.open(self._caches.jobs.indexer.list())

    async def begin(self) -> None:
        """Start the work of a leader: queue the jobs and start the leadership term."""
        self.queue_jobs()
        if self._leadership_term is not None:
            await self._leadership_term.begin()

    def forget(self, gone: ObjectMeta) -> None:
        """Forget all state of a deleted job, and count its deletion."""
        if self._nodes is not None:
            self._nodes.forget(meta_key(gone))
        if self._logs is not None:
            self._logs.forget(meta_key(gone))
        self._delays.forget(owner_uid_key(gone))
        self._pruned_status.forget(gone.uid)
        super().forget(gone)

    def _new_memory(self) -> JobMemory:
        return JobMemory()

    def _view(self, key: str, cached: TFJob, memory: JobMemory) -> View | None:
        view = self._views.open(key, cached, memory)
        if view is None and self._logs is not None:
            self._logs.forget(key)
        return view

    async def _own(self, view: View) -> Ownership:
        wait_s = await self._takeover.ensure_labelled(view)
        if wait_s is not None:
            return Ownership(may_plan=False, retry_in_s=wait_s)
        adoptions = await self._ref_manager.claim(view)
        return Ownership(may_plan=not adoptions.adopted, retry_in_s=adoptions.wait_s)

    def _plan(self, view: View, memory: JobMemory) -> Plan:
        decided = plan(view)
        memory.first_seen = decided.first_seen
        if self._logs is not None:
            self._logs.watch(view.key, decided.log_watch)
        return decided

    async def _write_status(
        self, view: View, memory: JobMemory, plan: Plan, *, acts: bool
    ) -> tuple[View, float | None]:
        await self._confirmer.confirm_restarts(view, plan.status)
        if plan.may_outlive is not None:
            holders = await self._confirmer.quota_holders(view.job, plan.may_outlive)
            await self._creator.require_gone(view.job.metadata, holders)
        # Nobody else can have worked on a new job, so its pods may precede its status.
        at_once = acts and view.permission is not Permission.FIRST
        busy = self._feed.is_busy
        return await self._status_writer.write_if_due(view, memory, plan, at_once=at_once, busy=busy)

    def _is_finished(self, view: View) -> bool:
        return is_finished(view.job.status)

    async def _maintain(self, view: View, memory: JobMemory, plan: Plan) -> float | None:
        if self._is_finished(view) and memory.logs_end(view.job, self._clock.now()):
            log_finished(view.job)
        return None if view.valid_spec is None else await self._repairer.repair(view.job, view.valid_spec, plan)

    async def _before_acting(self, view: View, memory: JobMemory, plan: Plan) -> None:
        if view.permission is Permission.UNCONFIRMED:
            await self._confirmer.confirm(view.job)
        # FIRST holds once: on a view that stays stale, children deleted by the garbage collector would be recreated for ever.
        memory.acted = True
        if plan.begins_attempt:
            await self._creator.require_gone(view.job.metadata, await self._confirmer.earlier_pods(view.job))

    async def _create(self, view: View, plan: Plan) -> None:
        if view.valid_spec is not None:
            await self._creator.create(view.job, view.valid_spec, plan)

    async def _delete(self, view: View, plan: Plan) -> None:
        job = view.job.metadata
        for deletion in plan.delete_pods:
            if deletion.restarts and is_rejected(deletion.pod):
                self._blocked.rejected(job, deletion.pod.metadata.name)
        await self._deleter.delete(view.job, plan)
        for deletion in plan.delete_pods:
            if deletion.decision is not None:
                self._metrics.decided(job.namespace, *deletion.decision)

    async def _after_acting(self, view: View, plan: Plan) -> float | None:
        wait_s = await self._lost_pods.end(view.job.metadata, plan.lost_pods) if plan.lost_pods else None
        if plan.delete_job:
            await self._deleter.delete_job(view.job)
        return wait_s

    def _after_refusal(self, view: View, memory: JobMemory, message: str) -> View:
        return view.after_refusal(message, memory.status)
