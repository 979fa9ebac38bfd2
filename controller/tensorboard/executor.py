"""Carries out the plan of one job's TensorBoard, with a defined outcome for each response; and the caches that it acts on.

Invariants:

- Every write carries a precondition: a name that must be free, the version and the UID that were looked at.
- What another object controls is neither changed nor deleted.
- A step that fails keeps no other from being tried.
- What was created before is created again only if the API server has the job: a cache of jobs that lags would else have us
  create as fast as the garbage collector deletes.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from tfjob_operator.api.client import errors
from tfjob_operator.api.client.options import MERGE_PATCH
from tfjob_operator.api.core import DEPLOYMENTS, SERVICES, EventType
from tfjob_operator.api.meta import (
    OWNER_INDEX,
    Meta,
    PartialObjectMetadata,
    Resource,
    index_by_owner,
    owner_uid_key,
)
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME, EventReason
from tfjob_operator.controller.jobs.writes import NameTakenError, resolve_name_conflict, restore_operator_label
from tfjob_operator.controller.manager import RequeueError
from tfjob_operator.controller.tensorboard.children import OPERATOR, SELECTOR, Deployment, Found, Service
from tfjob_operator.controller.tensorboard.plan import Change, Creation, Deletion, plan
from tfjob_operator.informers import (
    Codec,
    EventHandlerFuncs,
    SharedIndexInformer,
    SharedInformerFactory,
    Tombstone,
    object_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.controller.jobs.writes import JobEvents
    from tfjob_operator.controller.tensorboard.wish import LeftAlone, Wish


_SAID: Final = {Creation: "creating", Change: "updating", Deletion: "deleting"}

log = structlog.get_logger(__name__)


class Executor:
    """Carries out plans for the jobs of one kind."""

    def __init__(
        self,
        owner: Resource,
        client: RestClient,
        events: JobEvents,
        *,
        default_image: str,
        service_types: Collection[str],
    ) -> None:
        """`owner` is the kind of the jobs."""
        self._owner = owner
        self._client = client
        self._events = events
        self._default_image = default_image
        self._service_types = service_types
        self._made: defaultdict[str, set[str]] = defaultdict(set)
        """What this process has created or tried to, by the UID of the job."""

    async def sync(self, job: Meta, wish: Wish | LeftAlone | None, found: Found) -> bool:
        """Turn what was `found` into what is asked for; return whether anything was created. Raises ApiError, RequeueError."""
        decided = plan(self._owner, job, wish, found, self._default_image, service_types=self._service_types)
        for warning in decided.warnings:
            self._events.warn(job, warning.reason, warning.message)
        created = {_what(step) for step in decided.steps if isinstance(step, Creation)}
        if created:
            # Once for all steps: what is known of the job may be forgotten while they are under way.
            made = self._made[job.uid]
            if created & made:
                await self._confirm(job)
            made |= created
        failure: errors.ApiError | None = None
        for step in decided.steps:
            try:
                await self._take(job, step)
            except errors.NamespaceTerminatingError:
                log.info("namespace_terminating")
            except (errors.ConflictError, RequeueError) as error:  # our view is old; nothing is wrong
                failure = failure or error
            except errors.ApiError as error:
                why = f"it already exists and {error.why}" if isinstance(error, NameTakenError) else error
                text = f"Error {_SAID[type(step)]} {_what(step)}: {why}"
                self._events.warn(job, EventReason.FAILED_TENSOR_BOARD, text)
                failure = failure or error
        if failure is not None:
            raise failure
        return any(isinstance(step, Creation) for step in decided.steps)

    def warn(self, job: Meta, reason: str, message: str) -> None:
        """Record a Warning on a job about its TensorBoard, unless the same was recorded lately."""
        self._events.warn(job, reason, message)

    def forget(self, uid: str) -> None:
        """Drop what is known of a job: it is gone."""
        self._events.forget(uid)
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
        except errors.AlreadyExistsError:
            await self._resolve(job, step)
        else:
            self._note(job, EventReason.CREATED_TENSOR_BOARD, f"Created {_what(step)}")

    async def _confirm(self, job: Meta) -> None:
        """Ask the server whether the job is still there. Raises RequeueError if not: the cache will show it."""
        try:
            found = (await self._client.get(self._owner, job.namespace, job.name, PartialObjectMetadata)).metadata
        except errors.NotFoundError as error:
            raise RequeueError("the job is gone") from error
        if found.uid != job.uid or found.deletion_timestamp is not None:
            raise RequeueError("the job is gone")

    async def _change(self, job: Meta, step: Change) -> None:
        meta = step.meta
        try:
            answer = await self._client.patch(
                step.resource, meta.namespace, meta.name, step.patch, PartialObjectMetadata, content_type=MERGE_PATCH
            )
        except errors.NotFoundError:
            return  # the cache will show it, and bring the next sync
        # A webhook may set back what we set: then the object is what it was, and there is nothing to report.
        if answer.metadata.resource_version != meta.resource_version:
            self._note(job, EventReason.UPDATED_TENSOR_BOARD, f"Updated {_what(step)}")

    async def _delete(self, job: Meta, step: Deletion) -> None:
        meta = step.meta
        try:
            await self._client.delete(step.resource, meta.namespace, meta.name, uid=meta.uid, propagation="Background")
        except (errors.NotFoundError, errors.ConflictError):
            return  # it is gone, or another one has its name
        self._note(job, EventReason.DELETED_TENSOR_BOARD, f"Deleted {_what(step)}")

    async def _resolve(self, job: Meta, step: Creation) -> None:
        """Return if the object is ours. Raises RequeueError if it is going away, NameTakenError if it is not, ApiError."""
        try:
            found = await resolve_name_conflict(
                self._client, step.resource, step.name, PartialObjectMetadata, job=job, jobs=self._owner
            )
        except NameTakenError as error:
            if error.passes:
                raise RequeueError(str(error)) from error
            raise
        if found.metadata.label_map().get(LABEL_OPERATOR_NAME) != OPERATOR:
            await restore_operator_label(self._client, step.resource, found.metadata, OPERATOR)

    def _note(self, job: Meta, reason: str, message: str) -> None:
        self._events.record(job, EventType.NORMAL, reason, message)


def _what(step: Creation | Change | Deletion) -> str:
    name = step.name if isinstance(step, Creation) else step.meta.name
    return f"{step.resource.kind.lower()} {name}"


C = TypeVar("C", Deployment, Service)


class Caches:
    """The Deployments and Services of all TensorBoards, and why they cannot be seen, if they cannot.

    Where the operator may not list them (its role is that of an older version), only jobs that want a TensorBoard are affected.
    """

    def __init__(self, informers: SharedInformerFactory, namespace: str) -> None:
        """Make the informers; they are not started. `namespace` is "" for all."""
        self._informers = informers
        self._failures: dict[str, str] = {}
        self._on_failure: list[Callable[[], None]] = []
        self._deployments = self._informer(DEPLOYMENTS, Deployment, namespace)
        self._services = self._informer(SERVICES, Service, namespace)

    def _informer(self, resource: Resource, kind: type[C], namespace: str) -> SharedIndexInformer[C]:
        informer = self._informers.informer(
            Codec(resource, kind),
            namespace=namespace,
            label_selector=SELECTOR,
            indexers={OWNER_INDEX: index_by_owner},
            required=False,
        )
        informer.set_watch_error_handler(partial(self._note, resource, informer))
        return informer

    @property
    def has_synced(self) -> bool:
        """Whether both are filled."""
        return self._deployments.has_synced and self._services.has_synced

    @property
    def failure(self) -> str:
        """Why they are not filled: what the API server says, "" where it has not said anything."""
        return "; ".join(self._failures.values())

    def start(self, tasks: asyncio.TaskGroup, on_child: Callable[[Meta], None], on_failure: Callable[[], None]) -> None:
        """Start to fill them; from now on call `on_child` for each event of a child, `on_failure` when a first list fails."""
        self._on_failure.append(on_failure)
        self._deployments.add_event_handler(_handler(on_child))
        self._services.add_event_handler(_handler(on_child))
        self._informers.start(tasks)

    async def wait_for_sync(self) -> None:
        """Return when both are filled, however long that takes. Raises InformerStoppedError if they end before."""
        await self._deployments.wait_for_sync()
        await self._services.wait_for_sync()
        self._failures.clear()

    def children(self) -> Iterator[Meta]:
        """Yield the metadata of all children, of whatever job."""
        for informer in (self._deployments, self._services):
            for child in informer.indexer.list():
                yield child.metadata

    def found(self, job: Meta) -> Found:
        """Return what a job controls."""
        key = owner_uid_key(job)
        return Found(
            self._deployments.indexer.by_index(OWNER_INDEX, key), self._services.indexer.by_index(OWNER_INDEX, key)
        )

    def _note(self, resource: Resource, informer: SharedIndexInformer[C], error: errors.ApiError) -> None:
        """Remember why a first list fails, and log it once; the reflector reports what comes after that."""
        if informer.has_synced or str(resource) in self._failures or not isinstance(error, errors.StatusError):
            return
        hint = (
            "; the role of the operator is outdated: apply the manifests of this version"
            if isinstance(error, errors.ForbiddenError)
            else ""
        )
        self._failures[str(resource)] = f"{error}{hint}"
        log.warning("tensorboards_unavailable", resource=str(resource), error=str(error))
        for listener in self._on_failure:
            listener()


def _handler(on_child: Callable[[Meta], None]) -> EventHandlerFuncs[C]:
    def updated(old: C, new: C) -> None:
        if old.metadata.owner_references != new.metadata.owner_references:
            on_child(old.metadata)
        on_child(new.metadata)

    def deleted(gone: C | Tombstone[C]) -> None:
        on_child(object_of(gone).metadata)

    return EventHandlerFuncs[C](on_add=lambda child, _: on_child(child.metadata), on_update=updated, on_delete=deleted)
