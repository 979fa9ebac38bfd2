"""The TensorBoard controller: events of jobs and children become keys, and workers sync them.

It shares the informer of the job controllers. It starts its own informers, and imports their modules, once a job requests a
TensorBoard or a TensorBoard of an earlier process is found.

A sync acts on the caches without confirming the view: a create or delete that is based on a stale view is soon reversed, and no
training depends on a TensorBoard. The job is read from the API server only before a TensorBoard is recreated.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Final, Generic

import structlog

from tfjob_operator.api.client.errors import ApiError, ForbiddenError
from tfjob_operator.api.client.options import ListOptions
from tfjob_operator.api.core import DEPLOYMENTS, SERVICES
from tfjob_operator.api.meta import PartialObjectMetadata, Struct, meta_key, owner_key
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.controller.manager import Controller
from tfjob_operator.controller.tensorboard.dialects import SELECTOR, J
from tfjob_operator.informers import EventHandlerFuncs, object_of
from tfjob_operator.workqueue import NO_METRICS, ItemExponentialFailureRateLimiter, RateLimitingQueue

if TYPE_CHECKING:
    from collections.abc import Collection

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.meta import Meta, Resource
    from tfjob_operator.controller.events import EventRecorder
    from tfjob_operator.controller.tensorboard.dialects import BoardDialect
    from tfjob_operator.controller.tensorboard.tensorboard_executor import BoardCaches, BoardExecutor
    from tfjob_operator.informers import SharedIndexInformer, SharedInformerFactory, Tombstone
    from tfjob_operator.workqueue import Clock, MetricsProvider


NAME: Final = "tensorboard"
WORKERS: Final = 2
"""Keys synced concurrently. A sync sends few requests, and few jobs have a TensorBoard."""
FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 300.0
"""Retry delays. No training waits for a TensorBoard, so the first delay is longer than for jobs."""
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
        self, parts: TensorBoardControllers, dialect: BoardDialect[J], jobs: SharedIndexInformer[J], name: str
    ) -> None:
        """Register the handler of jobs, and build the controller."""
        self._parts = parts
        self._dialect = dialect
        self._jobs = jobs
        self._queue: RateLimitingQueue[str] = RateLimitingQueue(
            ItemExponentialFailureRateLimiter(FIRST_DELAY_S, LONGEST_DELAY_S),
            name=name,
            metrics=parts.metrics,
            clock=parts.clock,
        )
        self._needed = asyncio.Event()
        self._working = False
        self._caches: BoardCaches | None = None
        self._executor: BoardExecutor | None = None
        self.controller = Controller(
            name,
            self.sync,
            queue=self._queue,
            workers=WORKERS,
            on_start=self.begin,
            metrics=parts.metrics,
            clock=parts.clock,
        )
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
            self._caches = self._parts.caches
            self._executor = self._parts.executor(self._dialect.owner, self._queue)
            self._caches.start(tasks, self._add_all)
            await self._caches.wait_for_sync()
            self._add_all()
            # Also queues the jobs of all children that exist: the field may have been removed before syncs could run.
            for informer in self._caches.informers.values():
                self.controller.watch(informer, lambda child: owner_key(child.metadata, self._dialect.owner))

    async def sync(self, key: str) -> None:
        """Move the TensorBoard of one job closer to its spec. Raises ApiError if it must be retried."""
        job = self._jobs.indexer.get(key)
        if job is None or self._caches is None or self._executor is None:
            return  # the garbage collector deletes the children; all jobs are queued once the caches are filled
        structlog.contextvars.bind_contextvars(uid=job.metadata.uid)
        request = self._dialect.request_of(job)
        if self._caches.has_synced:
            try:
                await self._executor.sync(key, job, request)
            finally:
                if not self._jobs.indexer.has(job.metadata):
                    self._forget(job.metadata)  # a second time, because this sync has added state
        elif request is not None and self._caches.failure:
            text = f"Cannot create a TensorBoard: {self._caches.failure}"
            self._executor.warn(job.metadata, EventReason.TENSOR_BOARD_UNAVAILABLE, text)

    async def _look_for_leftovers(self) -> None:
        """Check the API server's cache for a TensorBoard of an earlier process, which may have to be deleted."""
        options = ListOptions(namespace=self._parts.namespace, label_selector=SELECTOR, resource_version="0", limit=1)
        while not self._needed.is_set():
            try:
                for resource in (DEPLOYMENTS, SERVICES):
                    if (await self._parts.reader.list_page(resource, options, _ChildList)).items:
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
        concerned = self._dialect.may_have_request(job) or (
            self._caches is not None and self._caches.has_children(job.metadata)
        )
        if concerned:
            self._needed.set()
            if self._working:
                self._queue.add(meta_key(job.metadata), low_priority=low_priority)
        return concerned


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
        self.reader = reader
        self.namespace = namespace
        self.metrics = metrics
        self.clock = clock
        self._informers = informers
        self._writer = writer
        self._recorder = recorder
        self._default_image = default_image
        self._service_types = service_types

    def controller(self, dialect: BoardDialect[J], jobs: SharedIndexInformer[J], *, name: str = NAME) -> Controller:
        """Return the controller for the jobs of one kind, using their informer."""
        return TensorBoards(self, dialect, jobs, name).controller

    @cached_property
    def caches(self) -> BoardCaches:
        """The caches of children, created when first needed."""
        from tfjob_operator.controller.tensorboard.tensorboard_executor import BoardCaches

        return BoardCaches(self._informers, self.namespace)

    def executor(self, owner: Resource, queue: RateLimitingQueue[str]) -> BoardExecutor:
        """Return a new executor for the jobs of one kind, whose keys are in `queue`."""
        from tfjob_operator.controller.tensorboard.tensorboard_executor import BoardExecutor

        return BoardExecutor(
            owner,
            self.caches,
            self._writer,
            self._recorder,
            clock=self.clock,
            sync_after=queue.add_after,
            default_image=self._default_image,
            service_types=self._service_types,
        )
