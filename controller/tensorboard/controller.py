"""The TensorBoard controller: events of jobs and children become keys, and workers sync them.

It shares the informer of the job controllers. It starts its own informers, and imports their modules, once a job requests a
TensorBoard or a TensorBoard of an earlier process is found.

A sync acts on the caches without confirming the view: a create or delete that is based on a stale view is soon reversed, and no
training depends on a TensorBoard. The job is read from the API server only before a TensorBoard is recreated (`executor.py`).
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Final, Generic

import structlog

from tfjob_operator.api.client.errors import ApiError, ForbiddenError
from tfjob_operator.api.client.options import ListOptions
from tfjob_operator.api.core import DEPLOYMENTS, SERVICES
from tfjob_operator.api.meta import PartialObjectMetadata, Struct, controller_of, meta_key, object_key
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.controller.manager import Controller
from tfjob_operator.controller.tensorboard.children import SELECTOR
from tfjob_operator.controller.tensorboard.dialects import J
from tfjob_operator.informers import EventHandlerFuncs, object_of
from tfjob_operator.workqueue import NO_METRICS, ItemExponentialFailureRateLimiter, RateLimitingQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.meta import Meta
    from tfjob_operator.controller.events import EventRecorder
    from tfjob_operator.controller.tensorboard.dialects import BoardDialect
    from tfjob_operator.controller.tensorboard.executor import BoardCaches, BoardExecutor
    from tfjob_operator.informers import SharedIndexInformer, SharedInformerFactory, Tombstone
    from tfjob_operator.workqueue import Clock, MetricsProvider


RECHECK_S: Final = 60.0
"""When a job is synced again after a child was created: by then it is in the cache, or gone."""
RETRY_S: Final = 60.0
"""Retry interval of the search for TensorBoards of an earlier process, if the API server did not respond."""
log = structlog.get_logger(__name__)


class _ChildList(Struct, frozen=True):
    items: tuple[PartialObjectMetadata, ...] = ()


class TensorBoards(Generic[J]):
    """Provides the TensorBoards requested by the jobs of one kind.

    Invariant: no key is queued before the workers of this process run, since none would process it.
    """

    def __init__(
        self,
        dialect: BoardDialect[J],
        jobs: SharedIndexInformer[J],
        queue: RateLimitingQueue[str],
        *,
        caches: Callable[[], BoardCaches],
        executor: Callable[[], BoardExecutor],
        reader: RestClient,
        namespace: str = "",
    ) -> None:
        """Register the handler of jobs. `queue` is that of the workers.

        caches, executor: called when first needed.
        reader: looks for TensorBoards of an earlier process in `namespace`, "" for all.
        """
        self._dialect = dialect
        self._jobs = jobs
        self._make_caches = caches
        self._make_executor = executor
        self._reader = reader
        self._queue = queue
        self._namespace = namespace
        self._needed = asyncio.Event()
        self._working = False
        self._caches: BoardCaches | None = None
        self._executor: BoardExecutor | None = None
        handler = EventHandlerFuncs[J](on_add=self._added, on_update=self._updated, on_delete=self._deleted)
        jobs.add_event_handler(handler)

    async def begin(self) -> None:
        """Work until cancelled: wait until a TensorBoard is requested or found, then fill the caches."""
        self._working = True
        self._add_all()
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._look_for_leftovers(), name="tensorboard-leftovers")
            await self._needed.wait()
            looking.cancel()
            self._caches, self._executor = self._make_caches(), self._make_executor()
            self._caches.start(tasks, self._add_owner, self._add_all)
            await self._caches.wait_for_sync()
            self._add_all()
            for child in self._caches.children():  # the field may have been removed before syncs could run
                self._add_owner(child)

    async def sync(self, key: str) -> None:
        """Move the TensorBoard of one job closer to its spec. Raises ApiError if it must be retried."""
        job = self._jobs.indexer.get(key)
        if job is None or self._caches is None or self._executor is None:
            return  # the garbage collector deletes the children; all jobs are queued once the caches are filled
        structlog.contextvars.bind_contextvars(uid=job.metadata.uid)
        request = self._dialect.request_of(job)
        if self._caches.has_synced:
            try:
                created = await self._executor.sync(job.metadata, request, self._caches.found(job.metadata))
            finally:
                if not self._jobs.indexer.has(job.metadata):
                    self._forget(job.metadata)  # a second time, because this sync has added state
            if created:
                # A child deleted while the watch is interrupted never reaches the cache and causes no event.
                self._queue.add_after(key, RECHECK_S)
        elif request is not None and self._caches.failure:
            text = f"Cannot create a TensorBoard: {self._caches.failure}"
            self._executor.warn(job.metadata, EventReason.TENSOR_BOARD_UNAVAILABLE, text)

    async def _look_for_leftovers(self) -> None:
        """Check the API server's cache for a TensorBoard of an earlier process, which may have to be deleted."""
        options = ListOptions(namespace=self._namespace, label_selector=SELECTOR, resource_version="0", limit=1)
        while not self._needed.is_set():
            try:
                for resource in (DEPLOYMENTS, SERVICES):
                    if (await self._reader.list_page(resource, options, _ChildList)).items:
                        self._needed.set()
            except ForbiddenError as error:
                # No effect unless a job requests one.
                log.warning("tensorboards_forbidden", error=str(error), remedy="apply the role of this version")
            except ApiError as error:
                log.debug("tensorboard_search_failed", error=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            return

    def _added(self, job: J, is_in_initial_list: bool) -> None:  # noqa: FBT001 - the informers' signature
        self._add(job, low_priority=is_in_initial_list)

    def _updated(self, old: J, new: J) -> None:
        if old.metadata.uid != new.metadata.uid:
            self._forget(old.metadata)
        if not self._add(new) and self._dialect.may_have_request(old) and self._working:
            self._queue.add(meta_key(new.metadata))  # the field was removed

    def _deleted(self, gone: J | Tombstone[J]) -> None:
        self._forget(object_of(gone).metadata)

    def _forget(self, job: Meta) -> None:
        if self._executor is not None:
            self._executor.forget(job.uid)

    def _add_all(self) -> None:
        """Queue all jobs that may request a TensorBoard, with low priority."""
        for job in self._jobs.indexer.list():
            self._add(job, low_priority=True)

    def _add(self, job: J, *, low_priority: bool = False) -> bool:
        """Queue a job if it may request a TensorBoard or has one; return True if so.

        Children may be cached before their job.
        """
        children = self._caches.found(job.metadata) if self._caches is not None else None
        concerned = self._dialect.may_have_request(job) or (
            children is not None and bool(children.deployments or children.services)
        )
        if concerned:
            self._needed.set()
            if self._working:
                self._queue.add(meta_key(job.metadata), low_priority=low_priority)
        return concerned

    def _add_owner(self, child: Meta) -> None:
        """Queue the job of a child that was created, changed or deleted."""
        owner = controller_of(child)
        if owner is not None and owner.kind == self._dialect.owner.kind:
            self._queue.add(object_key(child.namespace, owner.name))


NAME: Final = "tensorboard"
WORKERS: Final = 2
"""Keys synced concurrently. A sync sends at most two requests, and few jobs have a TensorBoard."""
FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 300.0
"""Retry delays. No training waits for a TensorBoard, so the first delay is longer than for jobs."""


class TensorBoardControllers:
    """The TensorBoard controllers of a process, one per kind of job; they share their caches.

    Modules needed only for TensorBoards are imported when a job requests a TensorBoard: in most clusters no job does.
    """

    def __init__(
        self,
        informers: SharedInformerFactory,
        reader: RestClient,
        writer: RestClient,
        recorder: EventRecorder,
        *,
        namespace: str = "",
        default_image: str,
        service_types: Collection[str],
        metrics: MetricsProvider = NO_METRICS,
        clock: Clock,
    ) -> None:
        """Serve `namespace`, "" for all. `default_image` is used for a TensorBoard without an image.

        service_types: the types that jobs may request; ClusterIP is always allowed.
        """
        self._informers = informers
        self._reader = reader
        self._writer = writer
        self._recorder = recorder
        self._namespace = namespace
        self._default_image = default_image
        self._service_types = service_types
        self._metrics = metrics
        self._clock = clock

    def controller(self, dialect: BoardDialect[J], jobs: SharedIndexInformer[J], *, name: str = NAME) -> Controller:
        """Return the controller for the jobs of one kind, using their informer."""
        queue: RateLimitingQueue[str] = RateLimitingQueue(
            ItemExponentialFailureRateLimiter(FIRST_DELAY_S, LONGEST_DELAY_S),
            name=name,
            metrics=self._metrics,
            clock=self._clock,
        )
        boards = TensorBoards(
            dialect,
            jobs,
            queue,
            caches=lambda: self._caches,
            executor=lambda: self._executor(dialect),
            reader=self._reader,
            namespace=self._namespace,
        )
        return Controller(
            name,
            boards.sync,
            queue=queue,
            workers=WORKERS,
            on_start=boards.begin,
            metrics=self._metrics,
            clock=self._clock,
        )

    @cached_property
    def _caches(self) -> BoardCaches:
        from tfjob_operator.controller.tensorboard.executor import BoardCaches

        return BoardCaches(self._informers, self._namespace)

    def _executor(self, dialect: BoardDialect[J]) -> BoardExecutor:
        from tfjob_operator.controller.jobs.writes import JobEvents
        from tfjob_operator.controller.tensorboard.executor import BoardExecutor

        return BoardExecutor(
            dialect.owner,
            self._writer,
            JobEvents(dialect.owner, self._recorder, self._clock, log_name="tensorboard_event"),
            default_image=self._default_image,
            service_types=self._service_types,
        )
