"""Executes the plan of one job's TensorBoard, handling each kind of API error; and defines its caches.

Invariants:

- Every write has a precondition: a unique name, or the version and UID that were evaluated.
- Objects controlled by another object are neither modified nor deleted.
- A failed step does not prevent others.
- A child is recreated only if the API server has the job: with a stale cache of jobs, children would otherwise be created as
  fast as the garbage collector deletes them.
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
from tfjob_operator.controller.tensorboard.children import (
    OPERATOR,
    SELECTOR,
    BoardChildren,
    BoardDeployment,
    BoardService,
)
from tfjob_operator.controller.tensorboard.plan import ChildUpdate, Creation, Deletion, plan
from tfjob_operator.controller.tensorboard.request import TensorBoardRequest
from tfjob_operator.informers import (
    Codec,
    EventHandlerFuncs,
    SharedIndexInformer,
    SharedInformerFactory,
    Tombstone,
    object_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.controller.jobs.writes import JobEvents
    from tfjob_operator.controller.tensorboard.request import Unmanaged


_VERBS: Final = {Creation: "creating", ChildUpdate: "updating", Deletion: "deleting"}

log = structlog.get_logger(__name__)


class BoardExecutor:
    """Executes plans for the jobs of one kind."""

    def __init__(
        self,
        owner: Resource,
        client: RestClient,
        events: JobEvents,
        *,
        default_image: str,
        service_types: Collection[str],
    ) -> None:
        """`owner` is the resource of the jobs."""
        self._owner = owner
        self._client = client
        self._events = events
        self._default_image = default_image
        self._service_types = service_types
        self._made: defaultdict[str, set[str]] = defaultdict(set)
        """What this process has created, or tried to, by job UID."""

    async def sync(self, job: Meta, request: TensorBoardRequest | Unmanaged | None, found: BoardChildren) -> bool:
        """Reconcile the `found` children with the request; return True if any was created. Raises ApiError, RequeueError."""
        decided = plan(self._owner, job, request, found, self._default_image, service_types=self._service_types)
        for warning in decided.warnings:
            self._events.warn(job, warning.reason, warning.message)
        created = {_what(step) for step in decided.steps if isinstance(step, Creation)}
        if created:
            # Looked up once: the job's state may be forgotten while the steps are executed.
            made = self._made[job.uid]
            if created & made:
                await self._confirm(job)
            made |= created
        failure: errors.ApiError | None = None
        for step in decided.steps:
            try:
                await self._execute(job, step)
            except errors.NamespaceTerminatingError:
                log.info("namespace_terminating")
            except (errors.ConflictError, RequeueError) as error:  # a stale view, not an error
                failure = failure or error
            except errors.ApiError as error:
                why = f"it already exists and {error.why}" if isinstance(error, NameTakenError) else error
                text = f"Error {_VERBS[type(step)]} {_what(step)}: {why}"
                self._events.warn(job, EventReason.FAILED_TENSOR_BOARD, text)
                failure = failure or error
        if isinstance(request, TensorBoardRequest) and job.deletion_timestamp is None:
            for resource, children in ((DEPLOYMENTS, found.deployments), (SERVICES, found.services)):
                failure = failure or self._await_deletion(job, resource, request.name, children)
        if failure is not None:
            raise failure
        return any(isinstance(step, Creation) for step in decided.steps)

    def _await_deletion(
        self, job: Meta, resource: Resource, name: str, children: Sequence[BoardDeployment | BoardService]
    ) -> RequeueError | None:
        """Return an error to retry, if a child of this name is being deleted; warn of one that should be gone."""
        what = f"{resource.kind.lower()} {name}"
        for child in children:
            if child.metadata.name == name and child.metadata.deletion_timestamp is not None:
                why = f"it already exists and is being deleted (UID {child.metadata.uid})"
                if self._events.is_overdue(job, what):
                    self._events.warn(job, EventReason.FAILED_TENSOR_BOARD, f"Error creating {what}: {why}")
                return RequeueError(f"{what}: {why}")
        return None

    def warn(self, job: Meta, reason: str, message: str) -> None:
        """Record a Warning about a job's TensorBoard, unless it was recorded recently."""
        self._events.warn(job, reason, message)

    def forget(self, uid: str) -> None:
        """Forget all state of a deleted job."""
        self._events.forget(uid)
        self._made.pop(uid, None)

    async def _execute(self, job: Meta, step: Creation | ChildUpdate | Deletion) -> None:
        match step:
            case Creation():
                await self._create(job, step)
            case ChildUpdate():
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
        self._events.freed(job, _what(step))

    async def _confirm(self, job: Meta) -> None:
        """Check that the job still exists. Raises RequeueError if not; the cache will reflect it."""
        try:
            found = (await self._client.get(self._owner, job.namespace, job.name, PartialObjectMetadata)).metadata
        except errors.NotFoundError as error:
            raise RequeueError("the job is gone") from error
        if found.uid != job.uid or found.deletion_timestamp is not None:
            raise RequeueError("the job is gone")

    async def _change(self, job: Meta, step: ChildUpdate) -> None:
        meta = step.meta
        try:
            response = await self._client.patch(
                step.resource, meta.namespace, meta.name, step.patch, PartialObjectMetadata, content_type=MERGE_PATCH
            )
        except errors.NotFoundError:
            return  # the cache will reflect it and cause the next sync
        # A webhook may revert the change: then the object is unmodified, and there is nothing to report.
        if response.metadata.resource_version != meta.resource_version:
            self._note(job, EventReason.UPDATED_TENSOR_BOARD, f"Updated {_what(step)}")

    async def _delete(self, job: Meta, step: Deletion) -> None:
        meta = step.meta
        try:
            await self._client.delete(step.resource, meta.namespace, meta.name, uid=meta.uid, propagation="Background")
        except (errors.NotFoundError, errors.ConflictError):
            return  # it is gone, or another object has its name
        self._note(job, EventReason.DELETED_TENSOR_BOARD, f"Deleted {_what(step)}")

    async def _resolve(self, job: Meta, step: Creation) -> None:
        """Return normally if the object is ours.

        Raises RequeueError if it is being deleted, with a Warning if that takes long, else NameTakenError or ApiError.
        """
        try:
            found = await resolve_name_conflict(
                self._client, step.resource, step.name, PartialObjectMetadata, job=job, jobs=self._owner
            )
        except NameTakenError as error:
            if not error.passes:
                raise
            if self._events.is_overdue(job, _what(step)):
                text = f"Error creating {_what(step)}: it already exists and {error.why}"
                self._events.warn(job, EventReason.FAILED_TENSOR_BOARD, text)
            raise RequeueError(str(error)) from error
        if found.metadata.label_map().get(LABEL_OPERATOR_NAME) != OPERATOR:
            await restore_operator_label(self._client, step.resource, found.metadata, OPERATOR)

    def _note(self, job: Meta, reason: str, message: str) -> None:
        self._events.record(job, EventType.NORMAL, reason, message)


def _what(step: Creation | ChildUpdate | Deletion) -> str:
    name = step.name if isinstance(step, Creation) else step.meta.name
    return f"{step.resource.kind.lower()} {name}"


C = TypeVar("C", BoardDeployment, BoardService)


class BoardCaches:
    """The Deployments and Services of all TensorBoards, and the error if they cannot be listed.

    If the operator may not list them, because its role is outdated, only jobs that request a TensorBoard are affected.
    """

    def __init__(self, informers: SharedInformerFactory, namespace: str) -> None:
        """Create the informers without starting them. `namespace` is "" for all."""
        self._informers = informers
        self._failures: dict[str, str] = {}
        self._on_failure: list[Callable[[], None]] = []
        self._deployments = self._informer(DEPLOYMENTS, BoardDeployment, namespace)
        self._services = self._informer(SERVICES, BoardService, namespace)

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
        """True if both are filled."""
        return self._deployments.has_synced and self._services.has_synced

    @property
    def failure(self) -> str:
        """Why they are not filled: the API server's error; "" if none."""
        return "; ".join(self._failures.values())

    def start(self, tasks: asyncio.TaskGroup, on_child: Callable[[Meta], None], on_failure: Callable[[], None]) -> None:
        """Start filling the caches; call `on_child` for each event of a child, `on_failure` when a first list fails."""
        self._on_failure.append(on_failure)
        self._deployments.add_event_handler(_handler(on_child))
        self._services.add_event_handler(_handler(on_child))
        self._informers.start(tasks)

    async def wait_for_sync(self) -> None:
        """Return when both caches are filled, however long that takes.

        Raises InformerStoppedError if an informer stops first.
        """
        await self._deployments.wait_for_sync()
        await self._services.wait_for_sync()
        self._failures.clear()

    def children(self) -> Iterator[Meta]:
        """Yield the metadata of all children of any job."""
        for informer in (self._deployments, self._services):
            for child in informer.indexer.list():
                yield child.metadata

    def found(self, job: Meta) -> BoardChildren:
        """Return the children of a job."""
        key = owner_uid_key(job)
        return BoardChildren(
            self._deployments.indexer.by_index(OWNER_INDEX, key), self._services.indexer.by_index(OWNER_INDEX, key)
        )

    def _note(self, resource: Resource, informer: SharedIndexInformer[C], error: errors.ApiError) -> None:
        """Store why a first list fails, and log it once; the reflector reports later errors."""
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
