"""Executes plans, in an order that ensures that every fact is on the API server before it is acted upon.

Decides nothing about jobs. The order:

1. the status. If this write moves restart records to pods, those pods are read first. Before the end of a queued job is
   written, its pods are listed: none but those that the plan names may hold quota. In a burst, the first status of a new job
   may be delayed until its pods exist;
2. events about pods that cannot start, and repairs of edited children (`ownership.py`); their failure delays nothing;
3. the confirmation of the view (`view.py`), unless the status was written; before the first pod of an attempt, a check that no
   pod of an earlier attempt exists;
4. all creates, then all deletes; a pod is deleted only after its last event was written (`children.py`). Then the termination
   of pods on lost nodes (`nodes.py`);
5. the deletion of the job itself when its TTL has expired.

Invariants:

- Facts that a delete would destroy are in the status before the delete. A job's end is in its status before its pods are
  cleaned up, and an operator killed between any two calls can resume.
- A failed create does not delay deletes: a surplus pod that is due for deletion may be what exhausts the quota. The remaining
  steps are skipped only if a child is rejected permanently, since another plan then cleans up.
- Only what is on the API server is counted, logged and recorded: a status write with a conflict has no effect.

A status write costs the API server as much as creating two pods. So only changed conditions, and a decided end, are written
immediately. Changed
counters wait for later changes. In a burst, the first status of a job waits for the status that reports its pods, so Created
and Running are usually written together. Once all replicas are active there is nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.meta import Struct, owner_uid_key
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.conditions import end_record, is_finished
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import JobMeta, JobStatus, TFJob
from tfjob_operator.controller.jobs.draft import COUNTER_WINDOW_S, JobEvent, Window
from tfjob_operator.controller.jobs.expectations import Expectations, Feed
from tfjob_operator.controller.jobs.metrics import JobMetrics, log_finished
from tfjob_operator.controller.jobs.pods import is_rejected
from tfjob_operator.controller.jobs.refusals import StatusRefusals
from tfjob_operator.controller.jobs.writes import JobEvents, RefusedError, replace_status
from tfjob_operator.controller.tfjob.apply.children import Creator, Deleter
from tfjob_operator.controller.tfjob.apply.conflicts import BlockedChildren
from tfjob_operator.controller.tfjob.apply.ownership import ChildRepairer
from tfjob_operator.controller.tfjob.nodes import LostPods
from tfjob_operator.controller.tfjob.plan.accelerators import counts_end
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.view import Permission, PrunedStatus, View
from tfjob_operator.workqueue import Clock


def only_starts(written: JobStatus, status: JobStatus) -> bool:
    """Return True if `status` differs from `written` only by more active pods, and what is recorded about them."""
    before, after = written.replica_statuses, status.replica_statuses
    if before.keys() != after.keys() or any(after[name].active < before[name].active for name in before):
        return False
    same = {name: msgspec.structs.replace(found, active=before[name].active) for name, found in after.items()}
    return written == msgspec.structs.replace(
        status,
        replica_statuses=same,
        last_reconcile_time=written.last_reconcile_time,
        accelerator_pods=written.accelerator_pods,
    )


def has_only_initial_conditions(status: JobStatus) -> bool:
    """Return True if `status` has no conditions besides Created and Running."""
    return all(each.type in {ConditionType.CREATED, ConditionType.RUNNING} for each in status.conditions)


def all_active(status: JobStatus, sizes: Mapping[str, int]) -> bool:
    """Return True if all replicas in the spec are active, so that no more starts are expected."""
    found = status.replica_statuses
    return all((found[name].active if name in found else 0) >= size for name, size in sizes.items())


class _StatusResponse(Struct, frozen=True):
    metadata: JobMeta
    status: JobStatus = JobStatus()


class StatusWriter:
    """Replaces the status of jobs on the API server, without reading: the view contains the current status."""

    def __init__(
        self,
        client: RestClient,
        events: JobEvents,
        metrics: JobMetrics,
        pruned: PrunedStatus,
        *,
        feed: Feed,
        clock: Clock,
    ) -> None:
        """`feed` requeues a job whose status is delayed or refused, and knows whether other jobs are queued."""
        self._client = client
        self._events = events
        self._metrics = metrics
        self._pruned_status = pruned
        self._feed = feed
        self._clock = clock
        self._windows: dict[str, Window] = {}
        self._refusals = StatusRefusals(events, metrics, feed, clock)

    async def write_if_due(self, view: View, plan: Plan, *, at_once: bool) -> View:
        """Write the status of the plan if it has changed: now if `at_once` or due, else later.

        Returns the view after the write. A delayed status is kept in the view's memory, and the job is requeued for the time
        when the write is due. Raises ApiError; ConflictError if the view is not the newest version.
        """
        status = plan.status
        if status is None and view.job.status != view.written:
            status = view.job.status
        view.keep(status, plan.events)
        if status is not None:
            if not (at_once or self._is_due(view, status)):
                return view
            await view.confirm_accelerators(status, plan.vanished)
            view.writing()
            # The status of `view.job` may have conditions that were never written, and so not counted.
            job = msgspec.structs.replace(view.job, status=view.written)
            with self._refusals.writing(job.metadata):
                written = await self.write(job, status, plan.events)
            view = view.wrote(written)
        self.forget(view.job.metadata.uid)
        return view

    async def write(self, job: TFJob, status: JobStatus, events: tuple[JobEvent, ...]) -> TFJob | None:
        """Write `status` to `job`. Return the job as stored by the API server, or None if it is gone.

        Fields pruned by the API server are remembered in `pruned`, and restored in the returned job. Raises ConflictError if
        `job` is not the newest version: the status must then be recomputed.
        """
        written = await replace_status(self._client, c.TFJOBS, job, status, _StatusResponse)
        if written is None:
            return None
        newest, response = written
        self._pruned_status.compare(job, status, response.status)
        self._metrics.observe(job.metadata, job.status.conditions, status.conditions)
        self._metrics.ended(job.metadata.namespace, job.status.attempt_history, status.attempt_history)
        self._metrics.spent(job.metadata.namespace, job.status.accelerator_seconds, status.accelerator_seconds)
        for event in events:
            self._events.post(job.metadata, event)
        return newest

    def forget(self, uid: str) -> None:
        """Forget a delayed or refused status: it was written, or the job is gone."""
        self._windows.pop(uid, None)
        self._refusals.forget(uid)

    def _is_due(self, view: View, status: JobStatus) -> bool:
        busy = self._feed.is_busy
        if end_record(status) != end_record(view.written):
            return True
        if counts_end(view.written, status):
            return True
        complete = view.valid_spec is not None and all_active(status, view.valid_spec.sizes)
        waits_for_pods = view.may_wait and busy and not complete and has_only_initial_conditions(status)
        if status.conditions != view.written.conditions and not waits_for_pods:
            return True
        starts = waits_for_pods or only_starts(view.written, status)
        if complete and starts:
            return True
        window = self._windows.setdefault(view.job.metadata.uid, Window())
        left_s = window.left_s(self._clock.monotonic(), starts=starts, busy=busy)
        if left_s <= 0:
            return True
        # By then the queue may be empty, and nothing else would wake the job.
        self._feed.after(view.key, min(left_s, COUNTER_WINDOW_S))
        return False


class Executor:
    """Executes plans."""

    def __init__(
        self,
        *,
        status_writer: StatusWriter,
        creator: Creator,
        deleter: Deleter,
        repairer: ChildRepairer,
        events: JobEvents,
        metrics: JobMetrics,
        expectations: Expectations,
        blocked: BlockedChildren,
        feed: Feed,
        lost_pods: LostPods,
        clock: Clock,
    ) -> None:
        """`feed` requeues jobs that depend on the passage of time."""
        self._status_writer = status_writer
        self._creator = creator
        self._deleter = deleter
        self._repairer = repairer
        self._events = events
        self._metrics = metrics
        self._expectations = expectations
        self._blocked = blocked
        self._feed = feed
        self._lost_pods = lost_pods
        self._clock = clock

    async def execute(self, view: View, plan: Plan) -> View | None:
        """Execute a plan on the job of this view, as far as is allowed and due.

        Returns None, or a view that must be planned immediately because the API server permanently rejects a child of this
        spec. Raises StaleViewError or ConflictError if the view is stale, else the first ApiError; the job must then be synced
        again.
        """
        job = view.job.metadata
        self._feed.after(view.key, plan.requeue_after_s)
        await view.confirm_restarts(plan.status)
        if plan.may_outlive is not None:
            await self._creator.wait_for_gone(job, await view.quota_holders(plan.may_outlive))
        acts = view.may_act and plan.acts
        at_once = acts and view.permission is not Permission.FIRST
        view = await self._status_writer.write_if_due(view, plan, at_once=at_once)
        finished = is_finished(view.job.status)
        self._events.report(job, plan.problems, finished=finished)
        if finished and view.logs_end(self._clock.now()):
            log_finished(view.job)
        if view.valid_spec is not None:
            self._feed.after(view.key, await self._repairer.repair(view.job, view.valid_spec, plan))
        if acts:
            await view.before_acting()
            if plan.begins_attempt:
                await self._creator.wait_for_gone(job, await view.earlier_pods())
            try:
                await self._create_and_delete(view, plan)
            except RefusedError as error:
                return view.refused(error.message, plan.events)
            if plan.lost_pods:
                await self._lost_pods.end(view.key, job, plan.lost_pods)
        # No event occurs when expectations expire (EX-02) or a delay ends (U2), so the job is requeued for that time.
        self._feed.after(
            view.key, self._expectations.expires_in_s(owner_uid_key(job)), self._blocked.next_due_in_s(job)
        )
        if acts and plan.delete_job:
            await self._deleter.delete_job(view.job)
        return None

    def forget(self, uid: str) -> None:
        """Forget all state of a deleted job."""
        self._status_writer.forget(uid)
        self._events.forget(uid)

    async def _create_and_delete(self, view: View, plan: Plan) -> None:
        failure: ApiError | None = None
        if view.valid_spec is not None:
            try:
                await self._creator.create(view.job, view.valid_spec, plan)
            except RefusedError:
                raise
            except ApiError as error:
                failure = error
        for deletion in plan.delete_pods:
            if deletion.restarts and is_rejected(deletion.pod):
                self._blocked.rejected(view.job.metadata, deletion.pod.metadata.name)
        await self._deleter.delete(view.job, plan)
        for deletion in plan.delete_pods:
            if deletion.decision is not None:
                self._metrics.decided(view.job.metadata.namespace, *deletion.decision)
        if failure is not None:
            raise failure
