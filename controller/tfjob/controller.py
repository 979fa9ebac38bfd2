"""The TFJob controller: what the informers see becomes keys, and a key becomes a sync (by the workers of `controller.manager`).

A sync never looks at what woke it. It opens a view of the job (`view.py`), has a plan made (`decide/`), and has it carried out
(`executor.py`). What goes wrong in one sync costs that job a retry after a growing delay, and nobody else anything.

Invariants:

- A key is in the hands of one worker at most. The queue sees to it, so nothing else touches what is remembered of a job while
  it is synced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from tfjob_operator.controller.tfjob.children import ConfigMap, Pod, Service, owner_key
from tfjob_operator.controller.tfjob.creator import RefusedError
from tfjob_operator.controller.tfjob.decide.plan import plan
from tfjob_operator.controller.tfjob.handlers import ChildHandler, JobHandler
from tfjob_operator.controller.tfjob.kinds import CONFIG_MAP, POD, SERVICE

if TYPE_CHECKING:
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.controller.tfjob.adoption import RefManager
    from tfjob_operator.controller.tfjob.blocked import BlockedChildren
    from tfjob_operator.controller.tfjob.caches import Caches
    from tfjob_operator.controller.tfjob.decide.actions import Plan
    from tfjob_operator.controller.tfjob.delays import Delays
    from tfjob_operator.controller.tfjob.executor import Executor
    from tfjob_operator.controller.tfjob.expectations import Expectations
    from tfjob_operator.controller.tfjob.handlers import Feed
    from tfjob_operator.controller.tfjob.leadership_term import LeadershipTerm
    from tfjob_operator.controller.tfjob.metrics import JobMetrics
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
        ref_manager: RefManager,
        executor: Executor,
        expectations: Expectations,
        delays: Delays,
        blocked: BlockedChildren,
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
        self._ref_manager = ref_manager
        self._executor = executor
        self._expectations = expectations
        self._delays = delays
        self._blocked = blocked
        self._metrics = metrics
        self._clock = clock
        self._leadership_term = leadership_term
        self._domain = domain
        caches.jobs.add_event_handler(JobHandler(feed, self._forget))
        caches.pods.add_event_handler(ChildHandler[Pod](POD, feed, expectations, blocked))
        caches.services.add_event_handler(ChildHandler[Service](SERVICE, feed, expectations, blocked))
        caches.config_maps.add_event_handler(ChildHandler[ConfigMap](CONFIG_MAP, feed, expectations, blocked))
        if caches.pod_groups is not None:
            caches.pod_groups.add_handler(feed, expectations, blocked)

    def feed(self) -> None:
        """Queue all jobs of the cache, and from now on those that change. Does it once, however often it is called."""
        self._feed.open(self._caches.jobs.indexer.list())

    async def begin(self) -> None:
        """Begin to work: from now on this process is the one that does."""
        self.feed()
        if self._leadership_term is not None:
            await self._leadership_term.begin()

    async def sync(self, key: str) -> None:
        """Bring one job closer to what its specification asks for. Raises ApiError when it must be tried again."""
        view = self._views.open(key)
        if view is None:
            return
        structlog.contextvars.bind_contextvars(uid=view.job.metadata.uid)
        adoptions = await self._ref_manager.claim(view)
        self._feed.after(key, adoptions.wait_s)
        if adoptions.any:
            return  # the caches will show them, and with that comes another sync
        decided = self._plan(view)
        try:
            await self._executor.carry_out(view, decided)
        except RefusedError as error:
            # A first status that waits for the pods goes with the last one, and so do its events.
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
        owner = owner_key(gone)
        self._expectations.forget(owner)
        self._delays.forget(owner)
        self._blocked.forget(gone)
        self._executor.forget(gone.uid)
        # Jobs that this process has worked on: a replica that waits for the lease sees deletions too, and must not count them
        # a second time; a job that another controller manages is not ours to count (B75).
        if self._views.forget(gone):
            self._metrics.job_deleted(gone.namespace)
