"""Makes the TensorBoard of one job what the job requests, handling each kind of API error; and its caches.

Invariants:

- Objects controlled by another object are neither modified nor deleted.
- A failed write does not prevent others.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from tfjob_operator.api.client import errors
from tfjob_operator.api.client.options import JSON_PATCH
from tfjob_operator.api.core import EventType
from tfjob_operator.api.kinds import Deployment, Kind, Service
from tfjob_operator.api.meta import is_controlled_by
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.controller.framework.request import (
    OWNER,
    Memory,
    Request,
    Shared,
    index_by_owner_uid,
)
from tfjob_operator.controller.jobs.writes import JobEvents, NameTakenError, name_conflict
from tfjob_operator.controller.manager import RequeueError
from tfjob_operator.controller.tensorboard.desired import (
    UNIONS,
    desired,
    extended_fields,
    is_changed,
    must_delete,
    progress_warnings,
    replacement,
)
from tfjob_operator.controller.tensorboard.dialects import SELECTOR
from tfjob_operator.informers import Codec, EventHandlerFuncs, SharedIndexInformer, object_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.meta import Meta, Object, Resource
    from tfjob_operator.controller.events import EventRecorder
    from tfjob_operator.controller.tensorboard.desired import Body, Child
    from tfjob_operator.controller.tensorboard.request import TensorBoardRequest, Unmanaged
    from tfjob_operator.informers import SharedInformerFactory, Tombstone
    from tfjob_operator.workqueue import Clock

KINDS: Final[tuple[type[Child], ...]] = (Deployment, Service)

log = structlog.get_logger(__name__)


class BoardRequest(Request[Any]):
    """A sync of one job's TensorBoard. Its writes are events of the job."""

    def __init__(self, shared: Shared[Any], key: str, job: Any, events: JobEvents) -> None:
        super().__init__(shared, key, job)
        self._events = events

    async def apply_child(self, kind: type[Child], body: Body) -> None:
        """Apply one body, and report why its pod does not start. Raises ApiError, RequeueError; see `Request.apply`."""
        child = self.get(kind, body["metadata"]["name"])
        if child is not None:
            self._check_owned(kind, child.metadata)
            if fields := extended_fields(child, body):
                await self._replace(child, body, fields)
        try:
            item = await self.apply(kind, body)
        except errors.InvalidError:
            if not isinstance(child, Deployment):
                raise
            await self._replace(child, body, UNIONS)  # if this is rejected as well, the job's field is invalid
            try:
                item = await self.apply(kind, body)
            except errors.InvalidError as error:
                raise RequeueError(f"{_what(child)} was edited between two writes") from error
        if child is not None and is_changed(child, item):
            self._note(EventReason.UPDATED_TENSOR_BOARD, f"Updated {_what(item)}")
        if isinstance(item, Deployment):
            for warning in progress_warnings(item):
                self._events.warn(self.object.metadata, warning.reason, warning.message)

    async def delete_child(self, child: Child) -> None:
        """Delete a child, unless it is gone. Raises ApiError."""
        if await self.delete(child):
            self._note(EventReason.DELETED_TENSOR_BOARD, f"Deleted {_what(child)}")

    async def _replace(self, child: Child, body: Body, fields: Sequence[str]) -> None:
        meta, patch = child.metadata, replacement(child, body, fields)
        await self.client.patch(child.resource, meta.namespace, meta.name, patch, content_type=JSON_PATCH)
        self._shared.memory.forget(child)  # the next apply reads it again, and makes this patch count as applied

    def _check_owned(self, kind: type[Kind], meta: Meta) -> None:
        job = self.object.metadata
        if not is_controlled_by(meta, job) or meta.deletion_timestamp is not None:
            raise name_conflict(kind.resource, meta, job=job, jobs=self._shared.resource)

    def _created(self, item: Kind) -> None:
        self._note(EventReason.CREATED_TENSOR_BOARD, f"Created {_what(item)}")

    def _note(self, reason: str, message: str) -> None:
        self._events.record(self.object.metadata, EventType.NORMAL, reason, message)


class BoardExecutor:
    """Reconciles the TensorBoards of the jobs of one kind."""

    def __init__(
        self,
        owner: Resource,
        caches: BoardCaches,
        client: RestClient,
        recorder: EventRecorder,
        *,
        clock: Clock,
        sync_after: Callable[[str, float], None],
        default_image: str,
        service_types: Collection[str],
    ) -> None:
        """`owner` is the resource of the jobs; `sync_after` queues a key again after some seconds."""
        memory = Memory()
        self._shared: Shared[Any] = Shared(Kind, owner, caches.informers, client, recorder, clock, memory, sync_after)
        self._events = JobEvents(owner, recorder, clock, log_name="tensorboard_event")
        self._default_image = default_image
        self._service_types = service_types

        def deleted(child: Kind | Tombstone[Kind]) -> None:
            memory.forget(object_of(child))

        for informer in caches.informers.values():
            informer.add_event_handler(EventHandlerFuncs(on_delete=deleted))

    async def sync(self, key: str, job: Object, wanted: TensorBoardRequest | Unmanaged | None) -> None:
        """Reconcile the children of a job with its request. Raises ApiError, RequeueError."""
        if job.metadata.deletion_timestamp is not None:
            return  # the garbage collector deletes the children
        decided = desired(wanted, self._default_image, service_types=self._service_types)
        for warning in decided.warnings:
            self.warn(job.metadata, warning.reason, warning.message)
        if decided.objects is None:
            return
        request, failures = BoardRequest(self._shared, key, job, self._events), list[errors.ApiError]()
        # The Service is deleted first, then the Deployment behind it.
        for kind in decided.objects or reversed(KINDS):
            for doing, name, write in _steps(request, kind, decided.objects.get(kind)):
                try:
                    await self._attempt(job.metadata, doing, f"{kind.resource.kind.lower()} {name}", write)
                except errors.ApiError as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    async def _attempt(self, job: Meta, doing: str, what: str, write: Awaitable[None]) -> None:
        """Await a write, and record why it failed. Raises ApiError, RequeueError."""
        try:
            await write
        except errors.NamespaceTerminatingError:
            log.info("namespace_terminating")
        except NameTakenError as error:
            if not error.passes or self._events.is_overdue(job, what):
                text = f"Error creating {what}: it already exists and {error.why}"
                self.warn(job, EventReason.FAILED_TENSOR_BOARD, text)
            raise RequeueError(str(error)) if error.passes else error from None
        except (errors.ConflictError, RequeueError):
            raise  # a stale view, not an error
        except errors.ApiError as error:
            self.warn(job, EventReason.FAILED_TENSOR_BOARD, f"Error {doing} {what}: {error}")
            raise
        else:
            self._events.freed(job, what)

    def warn(self, job: Meta, reason: str, message: str) -> None:
        """Record a Warning about a job's TensorBoard, unless it was recorded recently."""
        self._events.warn(job, reason, message)

    def forget(self, uid: str) -> None:
        """Forget all state of a deleted job."""
        self._events.forget(uid)
        self._shared.memory.forget_owner(uid)


def _steps(request: BoardRequest, kind: type[Child], body: Body | None) -> Iterator[tuple[str, str, Awaitable[None]]]:
    """Yield the writes of one kind: what each does, the name of the child, and the write."""
    wanted = "" if body is None else body["metadata"]["name"]
    exists = False
    for child in request.owned(kind):
        exists |= child.metadata.name == wanted
        if must_delete(child, body) and child.metadata.deletion_timestamp is None:
            yield "deleting", child.metadata.name, request.delete_child(child)
            if child.metadata.name == wanted:
                return  # its deletion causes the next sync
    if body is not None:
        yield "updating" if exists else "creating", wanted, request.apply_child(kind, body)


def _what(item: Kind) -> str:
    return f"{item.resource.kind.lower()} {item.metadata.name}"


class BoardCaches:
    """The Deployments and Services of all TensorBoards, and the error if they cannot be listed.

    If the operator may not list them, because its role is outdated, only jobs that request a TensorBoard are affected.
    """

    def __init__(self, informers: SharedInformerFactory, namespace: str) -> None:
        """Create the informers without starting them. `namespace` is "" for all."""
        self._factory = informers
        self._failures: dict[str, str] = {}
        self._on_failure: list[Callable[[], None]] = []
        self.informers: dict[type[Kind], SharedIndexInformer[Any]] = {}
        for kind in KINDS:
            informer = informers.informer(
                Codec(kind.resource, kind),
                namespace=namespace,
                label_selector=SELECTOR,
                indexers={OWNER: index_by_owner_uid},
                required=False,
            )
            informer.set_watch_error_handler(partial(self._note, kind.resource, informer))
            self.informers[kind] = informer

    @property
    def has_synced(self) -> bool:
        """True if both are filled."""
        return all(informer.has_synced for informer in self.informers.values())

    @property
    def failure(self) -> str:
        """Why they are not filled: the API server's error; "" if none."""
        return "; ".join(self._failures.values())

    def start(self, tasks: asyncio.TaskGroup, on_failure: Callable[[], None]) -> None:
        """Start filling the caches; call `on_failure` when a first list fails."""
        self._on_failure.append(on_failure)
        self._factory.start(tasks)

    async def wait_for_sync(self) -> None:
        """Return when both caches are filled, however long that takes.

        Raises InformerStoppedError if an informer stops first.
        """
        for informer in self.informers.values():
            await informer.wait_for_sync()
        self._failures.clear()

    def has_children(self, job: Meta) -> bool:
        """Return True if there is a child of this job."""
        return any(informer.indexer.by_index(OWNER, job.uid) for informer in self.informers.values())

    def _note(self, resource: Resource, informer: SharedIndexInformer[Any], error: errors.ApiError) -> None:
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
