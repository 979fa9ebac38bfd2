"""Carries out a plan, in the order that keeps every fact that matters on the server before it is acted upon.

Decides nothing about jobs. The order:

1. the status (`status_writer.py`);
2. what keeps pods from starting is told, and what users have edited of children is set right (`mender.py`); nothing waits for
   either;
3. the confirmation of the view (`view.py`), where the status write was not one;
4. creates (`creator.py`), then deletes (`deleter.py`);
5. the deletion of the job itself, when it has outlived its TTL.

Invariants:

- What a delete destroys the evidence of is in the status before. A job's end stands there before its pods are cleaned up, and
  an operator that is killed between any two calls finds, when it starts again, all that it needs.
- A create that fails keeps no delete waiting: the surplus pod may be what uses up the quota. Only when a child is refused for
  good is nothing else done, since another plan then cleans up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.controller.tfjob.children import owner_key
from tfjob_operator.controller.tfjob.creator import RefusedError
from tfjob_operator.controller.tfjob.view import Permission

if TYPE_CHECKING:
    from tfjob_operator.controller.tfjob.blocked import BlockedChildren
    from tfjob_operator.controller.tfjob.creator import Creator
    from tfjob_operator.controller.tfjob.decide.actions import Plan
    from tfjob_operator.controller.tfjob.deleter import Deleter
    from tfjob_operator.controller.tfjob.expectations import Expectations
    from tfjob_operator.controller.tfjob.handlers import Feed
    from tfjob_operator.controller.tfjob.job_events import JobEvents
    from tfjob_operator.controller.tfjob.mender import Mender
    from tfjob_operator.controller.tfjob.status_writer import StatusWriter
    from tfjob_operator.controller.tfjob.view import View


class Executor:
    """Carries out whole plans."""

    def __init__(
        self,
        *,
        status_writer: StatusWriter,
        creator: Creator,
        deleter: Deleter,
        mender: Mender,
        events: JobEvents,
        expectations: Expectations,
        blocked: BlockedChildren,
        feed: Feed,
    ) -> None:
        """`feed` brings a job back when time alone changes what there is to do."""
        self._status_writer = status_writer
        self._creator = creator
        self._deleter = deleter
        self._mender = mender
        self._events = events
        self._expectations = expectations
        self._blocked = blocked
        self._feed = feed

    async def carry_out(self, view: View, plan: Plan) -> None:
        """Do what a plan says about the job of this view, as far as that is allowed and due now.

        Raises StaleViewError or ConflictError when the view is old, RefusedError when the API server will never take a child of
        this specification, and else the first ApiError: the job must then be tried again.
        """
        job = view.job.metadata
        self._feed.after(view.key, plan.requeue_after_s)
        await view.confirm_restarts(plan.status)
        plan = self._blocked.due(job, plan)
        acts = view.may_act and plan.acts
        await self._status_writer.settle(view, plan, at_once=acts and view.permission is not Permission.FIRST)
        self._events.report(view.job, plan.problems)
        if view.good_spec is not None:
            self._feed.after(view.key, await self._mender.carry_out(view.job, view.good_spec, plan))
        if acts:
            await view.before_acting()
            await self._create_and_delete(view, plan)
        # Two things send no event: a child that came and went between two watches (EX-02), and a wait that is over (U2).
        self._feed.after(view.key, self._expectations.expires_in_s(owner_key(job)), self._blocked.next_due_in_s(job))
        if acts and plan.delete_job:
            await self._deleter.delete_job(view.job)

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a job: it is gone."""
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
        await self._deleter.delete(view.job, plan)
        if failure is not None:
            raise failure
