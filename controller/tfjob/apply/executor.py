"""Executes a plan, in the order that keeps every fact on the API server before it is acted upon.

Decides nothing about jobs. The order:

1. the status, after a read of the pods to which a restart record moves. In a burst the first status of a new job
   may wait for its pods;
2. events about pods that do not start, and repairs of children that users have edited (`ownership.py`); nothing waits for
   these;
3. the confirmation of the view (`view.py`), unless the status write was one; and before the first pod of an attempt, that no
   pod of an earlier one is left;
4. creates, then deletes, each pod after its last event (`children.py`); then the end of pods whose node is lost (`nodes.py`);
5. the deletion of the job itself, when its TTL is over.

Invariants:

- The status says what a delete destroys the evidence of, before the delete. A job's end is in its status before its pods
  are cleaned up, and an operator that was killed between any two calls finds all that it needs when it starts again.
- A failed create delays no delete: the surplus pod may be what uses up the quota. Only when a child is refused for good is
  nothing else done, since another plan then cleans up.
- Only what is on the API server is counted, logged and recorded: a status write that met a conflict leaves no trace.

A status write costs the API server as much as creating two pods. So a changed condition is written at once, and less
important changes wait for more of them: counters for other counters, and in a burst a job's first status for its pods,
since pods are created first and then Created and Running mostly become one write. When all replicas are active there is
nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.meta import Struct, owner_uid_key
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.conditions import is_finished
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import JobMeta, JobStatus, TFJob
from tfjob_operator.controller.jobs.draft import COUNTER_WINDOW_S, JobEvent, Window
from tfjob_operator.controller.jobs.expectations import Expectations, Feed
from tfjob_operator.controller.jobs.metrics import JobMetrics
from tfjob_operator.controller.jobs.pods import is_rejected
from tfjob_operator.controller.jobs.writes import JobEvents, RefusedError, replace_status
from tfjob_operator.controller.tfjob.apply.children import Creator, Deleter
from tfjob_operator.controller.tfjob.apply.conflicts import BlockedChildren
from tfjob_operator.controller.tfjob.apply.ownership import ChildRepairer
from tfjob_operator.controller.tfjob.nodes import LostPods
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.view import Permission, UnkeptStatus, View
from tfjob_operator.workqueue import Clock


def only_starts(written: JobStatus, status: JobStatus) -> bool:
    """Return whether `status` differs from `written` only in that more pods are active."""
    before, after = written.replica_statuses, status.replica_statuses
    if before.keys() != after.keys() or any(after[name].active < before[name].active for name in before):
        return False
    same = {name: msgspec.structs.replace(found, active=before[name].active) for name, found in after.items()}
    return written == msgspec.structs.replace(
        status, replica_statuses=same, last_reconcile_time=written.last_reconcile_time
    )


def is_beginning(status: JobStatus) -> bool:
    """Return whether the only conditions of `status` are Created and Running."""
    return all(each.type in {ConditionType.CREATED, ConditionType.RUNNING} for each in status.conditions)


def all_active(status: JobStatus, sizes: Mapping[str, int]) -> bool:
    """Return whether as many replicas are active as the specification asks for, by type: no more starts are to come."""
    found = status.replica_statuses
    return all((found[name].active if name in found else 0) >= size for name, size in sizes.items())


class _Written(Struct, frozen=True):
    metadata: JobMeta
    status: JobStatus = JobStatus()


class StatusWriter:
    """Replaces the status of jobs on the API server. It reads nothing from there: the view knows what is being overwritten."""

    def __init__(
        self,
        client: RestClient,
        events: JobEvents,
        metrics: JobMetrics,
        unkept: UnkeptStatus,
        *,
        feed: Feed,
        clock: Clock,
    ) -> None:
        """`feed` queues a job again whose status waits, and knows whether other jobs wait in the queue."""
        self._client = client
        self._events = events
        self._metrics = metrics
        self._unkept = unkept
        self._feed = feed
        self._clock = clock
        self._windows: dict[str, Window] = {}

    async def write_if_due(self, view: View, plan: Plan, *, at_once: bool) -> View:
        """Write the status of the plan if it differs from that on the API server: now if `at_once` or if it is due, else later.

        Returns the view after the write. A status that waits is kept in the view's memory, and its job is queued for when it is
        due. Raises ApiError; ConflictError when the view is not the newest version.
        """
        status = plan.status
        if status is None and view.job.status != view.written:
            status = view.job.status
        view.keep(status, plan.events)
        if status is not None:
            if not (at_once or self._is_due(view, status)):
                return view
            view.writing()
            # The status of `view.job` may have conditions that no write has contained, and so nothing has counted.
            job = msgspec.structs.replace(view.job, status=view.written)
            view = view.wrote(await self.write(job, status, plan.events))
        self.forget(view.job.metadata.uid)
        return view

    async def write(self, job: TFJob, status: JobStatus, events: tuple[JobEvent, ...]) -> TFJob | None:
        """Write `status` over that of `job`. Return the job as the API server has it now, or None when it is gone.

        Fields that the API server dropped are remembered in `unkept`, and are in the returned job.

        Raises ConflictError when `job` is not the newest version: the status must then be computed anew, not written again.
        """
        written = await replace_status(self._client, c.TFJOBS, job, status, _Written)
        if written is None:
            return None
        newest, response = written
        self._unkept.compare(job, status, response.status)
        self._metrics.observe(job.metadata, job.status.conditions, status.conditions)
        self._metrics.ended(job.metadata.namespace, job.status.attempt_history, status.attempt_history)
        for event in events:
            self._events.post(job.metadata, event)
        return newest

    def forget(self, uid: str) -> None:
        """Drop the record of a waiting status: it is written, or the job is gone."""
        self._windows.pop(uid, None)

    def _is_due(self, view: View, status: JobStatus) -> bool:
        busy = self._feed.is_busy
        complete = view.good_spec is not None and all_active(status, view.good_spec.sizes)
        waits_for_pods = view.may_wait and busy and not complete and is_beginning(status)
        if status.conditions != view.written.conditions and not waits_for_pods:
            return True
        starts = waits_for_pods or only_starts(view.written, status)
        if complete and starts:
            return True
        window = self._windows.setdefault(view.job.metadata.uid, Window())
        left_s = window.left_s(self._clock.monotonic(), starts=starts, busy=busy)
        if left_s <= 0:
            return True
        # By then the queue may be empty, and nothing left that would wake the job.
        self._feed.after(view.key, min(left_s, COUNTER_WINDOW_S))
        return False


class Executor:
    """Executes whole plans."""

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
    ) -> None:
        """`feed` brings a job back when time alone changes what there is to do."""
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

    async def execute(self, view: View, plan: Plan) -> View | None:
        """Execute a plan on the job of this view, as far as that is allowed and due now.

        Returns None when that is done; a view to plan for at once when the API server will never accept a child of this
        specification. Raises StaleViewError or ConflictError when the view is stale, else the first ApiError; the job must then
        be synced again.
        """
        job = view.job.metadata
        self._feed.after(view.key, plan.requeue_after_s)
        await view.confirm_restarts(plan.status)
        acts = view.may_act and plan.acts
        at_once = acts and view.permission is not Permission.FIRST
        view = await self._status_writer.write_if_due(view, plan, at_once=at_once)
        self._events.report(job, plan.problems, finished=is_finished(view.job.status))
        if view.good_spec is not None:
            self._feed.after(view.key, await self._repairer.repair(view.job, view.good_spec, plan))
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
        # Nothing wakes the job when its expectations expire (EX-02) or a delay is over (U2), so it is queued for then.
        self._feed.after(
            view.key, self._expectations.expires_in_s(owner_uid_key(job)), self._blocked.next_due_in_s(job)
        )
        if acts and plan.delete_job:
            await self._deleter.delete_job(view.job)
        return None

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a job that is gone."""
        self._status_writer.forget(uid)
        self._events.forget(uid)

    async def _create_and_delete(self, view: View, plan: Plan) -> None:
        failure: ApiError | None = None
        if view.good_spec is not None:
            try:
                await self._creator.create(view.job, view.good_spec, plan)
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
