"""Executes a plan, in the order that keeps every fact on the API server before it is acted upon.

Decides nothing about jobs. The order:

1. the status (`status.py`), after a read of the pods to which a restart record moves. In a burst the first status of a new job
   may wait for its pods;
2. events about pods that do not start, and repairs of children that users have edited (`ownership.py`); nothing waits for
   these;
3. the confirmation of the view (`view.py`), unless the status write was one;
4. creates, then deletes, each pod after its last event (`children.py`);
5. the deletion of the job itself, when its TTL is over.

Invariants:

- The status says what a delete destroys the evidence of, before the delete. A job's end is in its status before its pods
  are cleaned up, and an operator that was killed between any two calls finds all that it needs when it starts again.
- A failed create delays no delete: the surplus pod may be what uses up the quota. Only when a child is refused for good is
  nothing else done, since another plan then cleans up.
"""

from __future__ import annotations

from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.meta import owner_uid_key
from tfjob_operator.api.v1.conditions import is_finished
from tfjob_operator.controller.jobs.expectations import Expectations, Feed
from tfjob_operator.controller.jobs.pod_end import is_rejected
from tfjob_operator.controller.jobs.refusals import RefusedError
from tfjob_operator.controller.jobs.reporting import JobEvents
from tfjob_operator.controller.tfjob.apply.children import Creator, Deleter
from tfjob_operator.controller.tfjob.apply.conflicts import BlockedChildren
from tfjob_operator.controller.tfjob.apply.ownership import ChildRepairer
from tfjob_operator.controller.tfjob.apply.status import StatusWriter
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.view import Permission, View


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
        expectations: Expectations,
        blocked: BlockedChildren,
        feed: Feed,
    ) -> None:
        """`feed` brings a job back when time alone changes what there is to do."""
        self._status_writer = status_writer
        self._creator = creator
        self._deleter = deleter
        self._repairer = repairer
        self._events = events
        self._expectations = expectations
        self._blocked = blocked
        self._feed = feed

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
            try:
                await self._create_and_delete(view, plan)
            except RefusedError as error:
                return view.refused(error.message, plan.events)
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
        if failure is not None:
            raise failure
