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
from tfjob_operator.controller.jobs.expectations import Expectations, Feed
from tfjob_operator.controller.jobs.metrics import JobMetrics, log_finished
from tfjob_operator.controller.jobs.pending import COUNTER_WINDOW_S, PendingStatus
from tfjob_operator.controller.jobs.pods import is_rejected
from tfjob_operator.controller.jobs.status_writer import StatusWriter
from tfjob_operator.controller.jobs.writes import JobEvents, RefusedError, replace_status
from tfjob_operator.controller.tfjob.apply.children import Creator, Deleter
from tfjob_operator.controller.tfjob.apply.confirmer import Confirmer
from tfjob_operator.controller.tfjob.apply.conflicts import BlockedChildren
from tfjob_operator.controller.tfjob.apply.ownership import ChildRepairer
from tfjob_operator.controller.tfjob.nodes import LostPods
from tfjob_operator.controller.tfjob.plan.accelerators import counts_accelerators, counts_end
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.view import JobMemory, Permission, PrunedStatus, View
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


class TFJobStatusWriter(StatusWriter[TFJob, JobStatus]):
    """Writes the statuses of TFJobs, when they are due."""

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
        """`pruned` remembers the fields that the API server prunes, which are restored in the job as stored."""
        super().__init__(events, metrics, feed=feed, clock=clock)
        self._client = client
        self._confirmer = Confirmer(client)
        self._pruned_status = pruned

    async def write_if_due(self, view: View, memory: JobMemory, plan: Plan, *, at_once: bool) -> View:
        """Write the status of the plan if it has changed: now if `at_once` or due, else later.

        Returns the view after the write. A delayed status is kept in `memory`, and the job is requeued for the time when the
        write is due. Raises ApiError; ConflictError if the view is not the newest version.
        """
        status, pending = plan.status, memory.status
        if status is None and view.job.status != view.written:
            status = view.job.status
        pending.computed(status, plan.events)
        if status is None:
            self.forget(view.job.metadata.uid)
            return view
        if not (at_once or self._is_due(view, pending, status)):
            return view
        if not memory.accelerators_confirmed and counts_accelerators(view.written, status):
            await self._confirmer.confirm_accelerators(view, plan.vanished)
            memory.accelerators_confirmed = True
        # The status of `view.job` may have conditions that were never written, and so not counted.
        job = msgspec.structs.replace(view.job, status=view.written)
        return view.after_write(await self.write(job, status, plan.events, pending))

    async def _replace(self, job: TFJob, status: JobStatus) -> TFJob | None:
        written = await replace_status(self._client, c.TFJOBS, job, status, _StatusResponse)
        if written is None:
            return None
        newest, response = written
        self._pruned_status.compare(job, status, response.status)
        self._metrics.ended(job.metadata.namespace, job.status.attempt_history, status.attempt_history)
        self._metrics.spent(job.metadata.namespace, job.status.accelerator_seconds, status.accelerator_seconds)
        return newest

    def _is_due(self, view: View, pending: PendingStatus[TFJob, JobStatus], status: JobStatus) -> bool:
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
        left_s = pending.delayed_s(self._clock.monotonic(), starts=starts, busy=busy)
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
        status_writer: TFJobStatusWriter,
        confirmer: Confirmer,
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
        self._confirmer = confirmer
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

    async def execute(self, view: View, memory: JobMemory, plan: Plan) -> View | None:
        """Execute a plan on the job of this view, as far as is allowed and due.

        Returns None, or a view that must be planned immediately because the API server permanently rejects a child of this
        spec. Raises StaleViewError or ConflictError if the view is stale, else the first ApiError; the job must then be synced
        again.
        """
        job = view.job.metadata
        self._feed.after(view.key, plan.requeue_after_s)
        await self._confirmer.confirm_restarts(view, plan.status)
        if plan.may_outlive is not None:
            holders = await self._confirmer.quota_holders(view.job, plan.may_outlive)
            await self._creator.wait_for_gone(job, holders)
        acts = view.may_act and plan.acts
        at_once = acts and view.permission is not Permission.FIRST
        view = await self._status_writer.write_if_due(view, memory, plan, at_once=at_once)
        finished = is_finished(view.job.status)
        self._events.report(job, plan.problems, finished=finished)
        if finished and memory.logs_end(view.job, self._clock.now()):
            log_finished(view.job)
        if view.valid_spec is not None:
            self._feed.after(view.key, await self._repairer.repair(view.job, view.valid_spec, plan))
        if acts:
            if view.permission is Permission.UNCONFIRMED:
                await self._confirmer.confirm(view.job)
            # Only once: on a view that stays stale, children deleted by the garbage collector would be recreated repeatedly.
            memory.acted = True
            if plan.begins_attempt:
                await self._creator.wait_for_gone(job, await self._confirmer.earlier_pods(view.job))
            try:
                await self._create_and_delete(view, plan)
            except RefusedError as error:
                return view.after_refusal(error.message, memory.status)
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
