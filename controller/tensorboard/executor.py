"""Carries out the plan of one job's TensorBoard, with a defined outcome for each response.

Invariants:

- Every write carries a precondition: a name that must be free, the version and the UID that were looked at.
- What another object controls is neither changed nor deleted.
- A step that fails keeps no other from being tried.
- What was created before is created again only if the API server has the job: a cache of jobs that lags would else have us
  create as fast as the garbage collector deletes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import structlog

from tfjob_operator.api.client.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    NamespaceTerminatingError,
    NotFoundError,
)
from tfjob_operator.api.client.options import MERGE_PATCH
from tfjob_operator.api.core import EventType, object_reference
from tfjob_operator.api.meta import ObjectMeta, Struct, controller_of
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME, EventReason
from tfjob_operator.controller.manager import RequeueError
from tfjob_operator.controller.tensorboard.children import OPERATOR
from tfjob_operator.controller.tensorboard.plan import Change, Creation, Deletion, plan

if TYPE_CHECKING:
    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.meta import Meta, Resource
    from tfjob_operator.controller.events import EventRecorder
    from tfjob_operator.controller.jobs.refusals import Told
    from tfjob_operator.controller.tensorboard.children import Found
    from tfjob_operator.controller.tensorboard.wish import LeftAlone, Wish

_SAID: Final = {Creation: "creating", Change: "updating", Deletion: "deleting"}

log = structlog.get_logger(__name__)


class NameTakenError(ApiError):
    """Another object has the name that the child of a TensorBoard needs."""


class _Identity(Struct, frozen=True):
    metadata: ObjectMeta


class Executor:
    """Carries out plans for the jobs of one kind."""

    def __init__(
        self, owner: Resource, client: RestClient, recorder: EventRecorder, told: Told, *, default_image: str
    ) -> None:
        """`owner` is the kind of the jobs."""
        self._owner = owner
        self._client = client
        self._recorder = recorder
        self._told = told
        self._default_image = default_image
        self._made: defaultdict[str, set[str]] = defaultdict(set)
        """What this process has created or tried to, by the UID of the job."""

    async def sync(self, job: Meta, wish: Wish | LeftAlone | None, found: Found) -> bool:
        """Turn what was `found` into what the job asks for. Return whether anything was created.

        Raises the first ApiError, after all steps have been tried, and RequeueError before any of them if the job is gone.
        """
        decided = plan(self._owner, job, wish, found, self._default_image)
        for warning in decided.warnings:
            self.warn(job, warning.reason, warning.message)
        created = {_what(step) for step in decided.steps if isinstance(step, Creation)}
        if created:
            # Once for all steps: what is known of the job may be forgotten while they are under way.
            made = self._made[job.uid]
            if created & made:
                await self._confirm(job)
            made |= created
        failure: ApiError | None = None
        for step in decided.steps:
            try:
                await self._take(job, step)
            except NamespaceTerminatingError:
                log.info("namespace_terminating")
            except (ConflictError, RequeueError) as error:  # our view is old; nothing is wrong
                failure = failure or error
            except ApiError as error:
                self.warn(job, EventReason.FAILED_TENSOR_BOARD, f"Error {_SAID[type(step)]} {_what(step)}: {error}")
                failure = failure or error
        if failure is not None:
            raise failure
        return any(isinstance(step, Creation) for step in decided.steps)

    def warn(self, job: Meta, reason: str, message: str) -> None:
        """Record a Warning on a job about its TensorBoard, unless the same was recorded lately."""
        if self._told.is_news(job.uid, f"{reason} {message}"):
            log.warning("tensorboard_event", reason=reason, message=message)
            self._recorder.event(object_reference(self._owner, job), EventType.WARNING, reason, message)

    def forget(self, uid: str) -> None:
        """Drop what is known of a job: it is gone."""
        self._told.forget(uid)
        self._made.pop(uid, None)

    async def _take(self, job: Meta, step: Creation | Change | Deletion) -> None:
        match step:
            case Creation():
                await self._create(job, step)
            case Change():
                await self._change(job, step)
            case Deletion():
                await self._delete(job, step)

    async def _create(self, job: Meta, step: Creation) -> None:
        try:
            await self._client.create(step.resource, job.namespace, step.body)
        except AlreadyExistsError:
            await self._settle(job, step)
        else:
            self._note(job, EventReason.CREATED_TENSOR_BOARD, f"Created {_what(step)}")

    async def _confirm(self, job: Meta) -> None:
        """Ask the server whether the job is still there. Raises RequeueError if not: the cache will show it."""
        try:
            found = (await self._client.get(self._owner, job.namespace, job.name, _Identity)).metadata
        except NotFoundError as error:
            raise RequeueError("the job is gone") from error
        if found.uid != job.uid or found.deletion_timestamp is not None:
            raise RequeueError("the job is gone")

    async def _change(self, job: Meta, step: Change) -> None:
        meta = step.meta
        try:
            answer = await self._client.patch(
                step.resource, meta.namespace, meta.name, step.patch, _Identity, content_type=MERGE_PATCH
            )
        except NotFoundError:
            return  # the cache will show it, and bring the next sync
        # A webhook may set back what we set: then the object is what it was, and there is nothing to report.
        if answer.metadata.resource_version != meta.resource_version:
            self._note(job, EventReason.UPDATED_TENSOR_BOARD, f"Updated {_what(step)}")

    async def _delete(self, job: Meta, step: Deletion) -> None:
        meta = step.meta
        try:
            await self._client.delete(step.resource, meta.namespace, meta.name, uid=meta.uid, propagation="Background")
        except (NotFoundError, ConflictError):
            return  # it is gone, or another one has its name
        self._note(job, EventReason.DELETED_TENSOR_BOARD, f"Deleted {_what(step)}")

    async def _settle(self, job: Meta, step: Creation) -> None:
        """Ask whose the object of this name is. Returns if it is ours: made by a lost attempt, or not in the cache yet (WR-07).

        Raises RequeueError if it is gone or about to go, NameTakenError if a person has to act, or any ApiError.
        """
        try:
            found = await self._client.get(step.resource, job.namespace, step.name, _Identity)
        except NotFoundError as error:
            raise RequeueError(f"{_what(step)} was just deleted") from error
        meta, holder = found.metadata, controller_of(found.metadata)
        if holder is None or holder.uid != job.uid:
            leaving = meta.deletion_timestamp is not None
            if leaving or (holder is not None and (holder.kind, holder.name) == (self._owner.kind, job.name)):
                raise RequeueError(f"{_what(step)} of an earlier job is still being deleted")
            whose = f"belongs to {holder.kind} {holder.name}" if holder is not None else "has no owner"
            raise NameTakenError(f"it already exists and {whose}; delete it or recreate the job under another name")
        if meta.label_map().get(LABEL_OPERATOR_NAME) != OPERATOR:  # without it our watch does not see the object
            body = {"metadata": {"uid": meta.uid, "labels": {LABEL_OPERATOR_NAME: OPERATOR}}}
            await self._client.patch(step.resource, job.namespace, step.name, body, content_type=MERGE_PATCH)

    def _note(self, job: Meta, reason: str, message: str) -> None:
        log.info("tensorboard_event", reason=reason, message=message)
        self._recorder.event(object_reference(self._owner, job), EventType.NORMAL, reason, message)


def _what(step: Creation | Change | Deletion) -> str:
    name = step.name if isinstance(step, Creation) else step.meta.name
    return f"{step.resource.kind.lower()} {name}"
