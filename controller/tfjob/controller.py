"""The TFJob controller: events of the informers become keys, and workers (`controller.manager`) sync the keys.

A sync never looks at the event that woke it. It opens a view of the job (`view.py`), has a plan made (`decide/`), and has
the plan executed (`executor.py`). Whatever fails in one sync costs that job a retry after a growing delay, and no other job
anything.

Invariants:

- A key is held by one worker at most (the queue sees to it), so nothing else changes what is remembered of a job while it
  is synced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from tfjob_operator.controller.jobs.children import ConfigMap, Pod, Service
from tfjob_operator.controller.jobs.refusals import RefusedError
from tfjob_operator.controller.tfjob.decide.plan import plan
from tfjob_operator.controller.tfjob.handlers import ChildHandler, JobHandler
from tfjob_operator.controller.tfjob.kinds import CONFIG_MAP, POD, SERVICE

if TYPE_CHECKING:
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.controller.jobs.feed import Feed
    from tfjob_operator.controller.jobs.metrics import JobMetrics
    from tfjob_operator.controller.tfjob.adoption import RefManager
    from tfjob_operator.controller.tfjob.caches import Caches
    from tfjob_operator.controller.tfjob.child_records import ChildRecords
    from tfjob_operator.controller.tfjob.decide.actions import Plan
    from tfjob_operator.controller.tfjob.executor import Executor
    from tfjob_operator.controller.tfjob.leadership_term import LeadershipTerm
    from tfjob_operator.controller.tfjob.takeover import Takeover
    from tfjob_operator.controller.tfjob.view import View, Views
    from tfjob_operator.workqueue import Clock


class TFJobController:
    """Runs TFJobs. `assembly.new_controller` puts one together."""

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
        expectations, blocked = records.expectations, records.blocked
        caches.jobs.add_event_handler(JobHandler(feed, self._forget))
        caches.pods.add_event_handler(ChildHandler[Pod](POD, feed, expectations, blocked))
        caches.services.add_event_handler(ChildHandler[Service](SERVICE, feed, expectations, blocked))
        caches.config_maps.add_event_handler(ChildHandler[ConfigMap](CONFIG_MAP, feed, expectations, blocked))
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
        structlog.contextvars.bind_contextvars(uid=view.job.metadata.uid)
        wait_s = await self._takeover.settle(view)
        if wait_s is not None:
            self._feed.after(key, wait_s)
            return  # what another operator made is on its way into the caches, which brings another sync
        adoptions = await self._ref_manager.claim(view)
        self._feed.after(key, adoptions.wait_s)
        if adoptions.any:
            return  # the caches will show them, which brings another sync
        decided = self._plan(view)
        try:
            await self._executor.carry_out(view, decided)
        except RefusedError as error:
            # A first status may still wait for the pods. It is then part of the new status, and so are its events.
            unsaid = decided.events if view.unwritten is not None else ()
            view = view.refused(error.message)
            decided = self._plan(view)
            await self._executor.carry_out(view, replace(decided, events=unsaid + decided.events))

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
        )

    def _forget(self, gone: ObjectMeta) -> None:
        self._records.forget(gone)
        self._executor.forget(gone.uid)
        # Only jobs that this process has worked on are counted: replicas that wait for the lease see the deletion too, and jobs
        # of another controller are not ours (B75).
        if self._views.forget(gone):
            self._metrics.job_deleted(gone.namespace)
