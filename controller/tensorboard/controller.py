"""The controller of TensorBoards: jobs and their children become keys, and a key becomes a sync.

It stands beside the controllers of jobs, and shares their informer. Its own informers are started, and what works with them is
imported, when the first job wants a TensorBoard, or when one is found that an earlier process has left.

A sync acts on what the caches show, and does not confirm the view: a TensorBoard that is created or deleted on an old view is
deleted or created again a moment later, and no training depends on it. Only a second create asks for the job (`executor.py`).
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
    from tfjob_operator.controller.tensorboard.dialects import Dialect
    from tfjob_operator.controller.tensorboard.executor import Caches, Executor
    from tfjob_operator.informers import SharedIndexInformer, SharedInformerFactory, Tombstone
    from tfjob_operator.workqueue import Clock, MetricsProvider


UNSEEN_S: Final = 60.0
"""After how long a job is synced again for which a child was created: by then the cache shows it, or it is gone."""
AGAIN_S: Final = 60.0
"""After how long what an earlier process has left is looked for again, if the API server did not answer."""
log = structlog.get_logger(__name__)


class _Some(Struct, frozen=True):
    items: tuple[PartialObjectMetadata, ...] = ()


class TensorBoards(Generic[J]):
    """Gives the jobs of one kind the TensorBoards that they want.

    Invariant: no key is queued before the workers of this process run: nobody would take it out again (D6).
    """

    def __init__(
        self,
        dialect: Dialect[J],
        jobs: SharedIndexInformer[J],
        queue: RateLimitingQueue[str],
        *,
        caches: Callable[[], Caches],
        executor: Callable[[], Executor],
        reader: RestClient,
        namespace: str = "",
    ) -> None:
        """Register the handler of jobs. `queue` is that of the workers.

        caches, executor: are called when they are needed.
        reader: looks for what an earlier process has left in `namespace`, "" for all.
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
        self._caches: Caches | None = None
        self._executor: Executor | None = None
        handler = EventHandlerFuncs[J](on_add=self._added, on_update=self._updated, on_delete=self._deleted)
        jobs.add_event_handler(handler)

    async def begin(self) -> None:
        """Work from now on, until cancelled: wait until a TensorBoard is wanted or found, then fill the caches."""
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
            for child in self._caches.children():  # its job may have lost the field while no sync could act on that
                self._add_owner(child)

    async def sync(self, key: str) -> None:
        """Bring the TensorBoard of one job closer to what the job asks for. Raises ApiError when it must be tried again."""
        job = self._jobs.indexer.get(key)
        if job is None or self._caches is None or self._executor is None:
            return  # the garbage collector takes what a job has left; and when the caches are filled all jobs are queued
        structlog.contextvars.bind_contextvars(uid=job.metadata.uid)
        wish = self._dialect.wish_of(job)
        if self._caches.has_synced:
            try:
                created = await self._executor.sync(job.metadata, wish, self._caches.found(job.metadata))
            finally:
                if not self._jobs.indexer.has(job.metadata):
                    self._forget(job.metadata)  # again: this sync has written down more about it since
            if created:
                # What is gone again before an interrupted watch goes on is never in the cache, and no event tells of it.
                self._queue.add_after(key, UNSEEN_S)
        elif wish is not None and self._caches.failure:
            text = f"Cannot create a TensorBoard: {self._caches.failure}"
            self._executor.warn(job.metadata, EventReason.TENSOR_BOARD_UNAVAILABLE, text)

    async def _look_for_leftovers(self) -> None:
        """Find out from the API server's cache whether a TensorBoard is left that no job wants: it is to be deleted."""
        options = ListOptions(namespace=self._namespace, label_selector=SELECTOR, resource_version="0", limit=1)
        while not self._needed.is_set():
            try:
                for resource in (DEPLOYMENTS, SERVICES):
                    if (await self._reader.list_page(resource, options, _Some)).items:
                        self._needed.set()
            except ForbiddenError as error:
                # As long as no job wants one, nobody is affected.
                log.warning("tensorboards_not_allowed", error=str(error), to_do="apply the role of this version")
            except ApiError as error:
                log.debug("tensorboards_not_looked_for", error=str(error))
                await asyncio.sleep(AGAIN_S)
                continue
            return

    def _added(self, job: J, is_in_initial_list: bool) -> None:  # noqa: FBT001 - the informers' signature
        self._add(job, low_priority=is_in_initial_list)

    def _updated(self, old: J, new: J) -> None:
        if old.metadata.uid != new.metadata.uid:
            self._forget(old.metadata)
        if not self._add(new) and self._dialect.may_have_wish(old) and self._working:
            self._queue.add(meta_key(new.metadata))  # the field was removed

    def _deleted(self, gone: J | Tombstone[J]) -> None:
        self._forget(object_of(gone).metadata)

    def _forget(self, job: Meta) -> None:
        if self._executor is not None:
            self._executor.forget(job.uid)

    def _add_all(self) -> None:
        """Queue all jobs that may want a TensorBoard, behind those that change now (PQ-04)."""
        for job in self._jobs.indexer.list():
            self._add(job, low_priority=True)

    def _add(self, job: J, *, low_priority: bool = False) -> bool:
        """Queue a job if it may want a TensorBoard, or has one (its children may be cached first); return whether."""
        found = self._caches.found(job.metadata) if self._caches is not None else None
        concerned = self._dialect.may_have_wish(job) or (
            found is not None and bool(found.deployments or found.services)
        )
        if concerned:
            self._needed.set()
            if self._working:
                self._queue.add(meta_key(job.metadata), low_priority=low_priority)
        return concerned

    def _add_owner(self, child: Meta) -> None:
        """Queue the job of a child that was made, changed or deleted."""
        owner = controller_of(child)
        if owner is not None and owner.kind == self._dialect.owner.kind:
            self._queue.add(object_key(child.namespace, owner.name))


NAME: Final = "tensorboard"
WORKERS: Final = 2
"""Keys that are synced at a time. A sync makes two calls at most, and few jobs have one."""
FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 300.0
"""The delays between tries of what fails. No training waits for it, so the first is longer than for jobs."""


class TensorBoardControllers:
    """The controllers of TensorBoards of one process, one for each kind of job; they share their caches.

    What only a job that wants a TensorBoard needs is imported when there is one: few clusters have any.
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
        """Serve `namespace`, "" for all. A TensorBoard without an image of its own runs `default_image`.

        service_types: those that jobs may request; ClusterIP is always allowed.
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

    def controller(self, dialect: Dialect[J], jobs: SharedIndexInformer[J], *, name: str = NAME) -> Controller:
        """Return the controller for the jobs of one kind, on their informer."""
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
    def _caches(self) -> Caches:
        from tfjob_operator.controller.tensorboard.executor import Caches

        return Caches(self._informers, self._namespace)

    def _executor(self, dialect: Dialect[J]) -> Executor:
        from tfjob_operator.controller.jobs.writes import JobEvents
        from tfjob_operator.controller.tensorboard.executor import Executor

        return Executor(
            dialect.owner,
            self._writer,
            JobEvents(dialect.owner, self._recorder, self._clock, log_name="tensorboard_event"),
            default_image=self._default_image,
            service_types=self._service_types,
        )
