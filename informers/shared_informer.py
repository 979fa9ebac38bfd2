"""The shared informer: a cache of one collection, with any number of handlers for its changes.

    ListerWatcher -> Reflector -> FIFO -> [process loop] -> Indexer, then Processor -> handlers

The process loop is the only writer of the store. It updates the store and queues the notifications without an await in between.
So a handler finds the cache at least as new as its notification, and a handler that is added later receives all objects
of the store and every later change, without gaps or duplicates.
"""

from __future__ import annotations

import asyncio
import random as stdlib_random
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, cast

import structlog

from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.meta import Resource, meta_key
from tfjob_operator.informers.deltas import (
    FIFO,
    Added,
    Bookmark,
    Deleted,
    Delta,
    Modified,
    ReplacedAll,
    SyncAll,
    T,
    Tombstone,
    Vanished,
)
from tfjob_operator.informers.errors import InformerStoppedError, QueueClosedError
from tfjob_operator.informers.handlers import (
    AddNotification,
    DeleteNotification,
    EventHandler,
    ListNotification,
    Notification,
    UpdateNotification,
)
from tfjob_operator.informers.listers import Lister
from tfjob_operator.informers.listwatch import ListerWatcher
from tfjob_operator.informers.metrics import InformerMetrics, version_as_number
from tfjob_operator.informers.processor import Processor, Registration, SyncGate
from tfjob_operator.informers.reflector import Reflector, ReflectorOptions
from tfjob_operator.informers.store import NAMESPACE_INDEX, Indexer, IndexFunction, MutableIndexer, index_by_namespace
from tfjob_operator.workqueue.clock import Clock, LoopClock
from tfjob_operator.workqueue.metrics import NO_METRICS, MetricsProvider

_PUTS: Final = frozenset({Added, Modified})

PIECE: Final = 500
"""Listed objects that are indexed before yielding to the loop: about 1 ms."""

logger = structlog.get_logger()


class SharedIndexInformer(Generic[T]):
    """A cache of one collection. All methods must be called on the loop of `run`.

    Invariants:
    - the store has the server's contents at `indexer.resource_version`, and applies events in the server's order;
    - the store is updated and the notification queued without an await in between;
    - for each key a handler receives an add, then updates, then a delete, then possibly an add again, and nothing else;
    - `run` returns only after the reflector, the process loop and every listener have ended.
    """

    def __init__(
        self,
        source: ListerWatcher[T],
        resource: Resource,
        *,
        name: str = "",
        indexers: Mapping[str, IndexFunction[T]] | None = None,
        resync_s: float = 0.0,
        options: ReflectorOptions | None = None,
        clock: Clock | None = None,
        random: Callable[[], float] = stdlib_random.random,
        metrics: MetricsProvider = NO_METRICS,
    ) -> None:
        """Cache what `source` lists and watches.

        `resync_s` is the default resync period of handlers and the period of checks for due resyncs.
        """
        self.name = name or str(resource)
        self._resource = resource
        self._clock = clock or LoopClock()
        default: dict[str, IndexFunction[T]] = {NAMESPACE_INDEX: index_by_namespace} if resource.namespaced else {}
        self._indexer = MutableIndexer[T](default | dict(indexers or {}), namespaced=resource.namespaced, started=False)
        self.watched_by: list[object] = []
        """The controllers whose `watch` was called for this informer, for the manager."""
        self._metrics = InformerMetrics(
            metrics,
            self.name,
            queued=lambda: len(self._fifo),
            stored=lambda: len(self._indexer),
            store_version=lambda: version_as_number(self._indexer.resource_version),
        )
        self.resync_s = resync_s
        self._processor = Processor[T](
            name=self.name, check_period_s=resync_s, clock=self._clock, errors=self._metrics.handler_errors
        )
        self._fifo = FIFO[T](self._processor.backlog)
        self._reflector = Reflector(
            source, self._fifo, name=self.name, options=options, clock=self._clock, random=random, metrics=metrics
        )
        self._gate = SyncGate(self.name)
        self._started = False
        self._stopping = asyncio.Event()
        self._stopped = False
        self._log = logger.bind(informer=self.name)

    @property
    def indexer(self) -> Indexer[T]:
        """The cache, read-only for callers. Reads raise InformerNotStartedError before `run`."""
        return self._indexer

    @property
    def has_synced(self) -> bool:
        """True once the first list is in the cache.

        The registration of a handler shows whether the handler has received that list.
        """
        return self._gate.is_open

    @property
    def last_resource_version(self) -> str:
        """The last version seen by the reflector; that of the cache is `indexer.resource_version`."""
        return self._reflector.resource_version

    @property
    def disconnected_s(self) -> float:
        """Seconds since a watch was last open; 0.0 while one is open or the server does not serve the resource."""
        return self._reflector.disconnected_s

    @property
    def is_missing(self) -> bool:
        """True if, by the last response, the server does not serve the resource."""
        return self._reflector.is_missing

    @property
    def started(self) -> bool:
        """True once `run` was called."""
        return self._started

    async def wait_for_sync(self) -> None:
        """Return when `has_synced` is true. Raises InformerStoppedError if the informer ends first."""
        await self._gate.wait()

    def lister(self) -> Lister[T]:
        """Return a lister, which reads by namespace, name and label selector."""
        return Lister(self._indexer, self._resource)

    def add_indexers(self, indexers: Mapping[str, IndexFunction[T]]) -> None:
        """Add indices, also to a filled cache. Raises IndexerError for a duplicate name, or InformerStoppedError."""
        self._refuse_if_stopped()
        self._indexer.add_indexers(indexers)

    def set_watch_error_handler(self, handler: Callable[[ApiError], None]) -> None:
        """Call `handler` for each failed list or watch, before the back-off. Raises RuntimeError once started."""
        if self._started:
            raise RuntimeError(f"informer {self.name} has started")
        self._reflector.on_error = handler

    def add_event_handler(self, handler: EventHandler[T], *, resync_s: float | None = None) -> Registration:
        """Call `handler` for all current objects and all changes. `resync_s` overrides the default; 0 disables it."""
        self._refuse_if_stopped()
        registration, listener = self._processor.add(handler, self.resync_s if resync_s is None else resync_s)
        stored = self._indexer.list() if self._started else []
        listener.put([AddNotification(item, is_in_initial_list=True) for item in stored])
        if self.has_synced:
            listener.mark_synced()
        return registration

    def remove_event_handler(self, registration: Registration) -> None:
        """Remove a handler and its queued notifications.

        Removing an unknown or already removed handler does nothing.
        """
        self._processor.remove(registration)

    def stop(self) -> None:
        """Make `run` end its parts in this order: reflector, queue, process loop, listeners.

        May be called any time, repeatedly.
        """
        self._stopping.set()
        if not self._started:
            self._end()

    async def run(self) -> None:
        """Fill the cache and keep it up to date until `stop` or cancellation. Cancelling does not drain the queues.

        If `stop` was called before, `run` ends immediately. A second call logs a warning and returns. An error of an
        index function is raised in an ExceptionGroup, since the cache would be wrong.
        """
        if self._started:
            self._log.warning("informer_started_twice")
            return
        self._started = self._indexer.started = True
        try:
            async with asyncio.TaskGroup() as listeners:
                self._processor.start(listeners)
                await self._supply_until_stopped()
                self._processor.close()
        finally:
            self._end()

    async def _supply_until_stopped(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            reflector = tasks.create_task(self._reflector.run(), name=f"reflector of {self.name}")
            resync = tasks.create_task(self._resync_regularly(), name=f"resync of {self.name}")
            tasks.create_task(self._process_loop(), name=f"process loop of {self.name}")
            await self._stopping.wait()
            reflector.cancel()
            resync.cancel()
            self._fifo.close()  # no more producers: the process loop ends once the queue is empty

    def _end(self) -> None:
        self._stopped = True
        self._gate.give_up()
        self._processor.give_up()

    def _refuse_if_stopped(self) -> None:
        if self._stopped or self._stopping.is_set():
            raise InformerStoppedError(f"informer {self.name} has stopped")

    async def _resync_regularly(self) -> None:
        """Resync independently of the watch, without requests. One timer, so resyncs cannot pile up."""
        period = self._processor.check_period_s
        while period > 0:
            await asyncio.sleep(period)
            if self._processor.should_resync():
                self._fifo.put(SyncAll())

    async def _process_loop(self) -> None:
        while True:
            try:
                batch = await self._fifo.pop()
            except QueueClosedError:
                return
            started = self._clock.monotonic()
            if _PUTS.issuperset(map(type, batch)):  # fast path for a busy collection
                self._put_all(cast("list[Added[T] | Modified[T]]", batch))
            else:
                await self._apply_all(batch)
            self._metrics.processing_latency.observe(self._clock.monotonic() - started)
            await asyncio.sleep(0)  # pop does not suspend while the queue has items; let the handlers run

    async def _apply_all(self, batch: list[Delta[T]]) -> None:
        # Not in the loop above, where `delta` would keep the last list in memory until the next such batch.
        for delta in batch:
            if isinstance(delta, ReplacedAll):
                await self._replace_all(delta)
            else:
                self._apply(delta)

    def _apply(self, delta: Delta[T]) -> None:
        """Update the store, then queue the notifications."""
        match delta:
            case Added() | Modified():
                self._put_all([delta])
            case Bookmark(version):
                self._indexer.resource_version = version
            case Vanished(key):
                gone = self._indexer.remove(key)
                if gone is not None:
                    self._processor.distribute([DeleteNotification(Tombstone(key, gone))])
            case SyncAll():
                self._processor.distribute([], [UpdateNotification(item, item) for item in self._indexer.list()])
            case Deleted(item):
                self._indexer.resource_version = item.metadata.resource_version
                # An object that was never added, because it did not decode, is not reported as deleted.
                if self._indexer.remove(meta_key(item.metadata)) is not None:
                    self._processor.distribute([DeleteNotification(item)])

    def _put_all(self, deltas: Sequence[Added[T] | Modified[T]]) -> None:
        """Store objects and queue their notifications without an await, so that handlers see both or neither."""
        changes: list[Notification[T]] = []
        syncs = False
        put = self._indexer.put
        for delta in deltas:
            item = delta.object
            old = put(meta_key(item.metadata), item)
            if old is None:
                changes.append(AddNotification(item, False))
                continue
            update = UpdateNotification(old, item)
            changes.append(update)
            syncs = syncs or update.is_sync
        self._indexer.resource_version = deltas[-1].object.metadata.resource_version
        if not syncs:
            self._processor.distribute(changes)
            return
        real = [change for change in changes if not (isinstance(change, UpdateNotification) and change.is_sync)]
        self._processor.distribute(real, changes)

    def _add_replacement_notifications(
        self, item: T, changes: list[Notification[T]], everything: list[Notification[T]], *, initial: bool
    ) -> None:
        old = self._indexer.get(meta_key(item.metadata))
        if old is None:
            add = AddNotification(item, is_in_initial_list=initial)
            changes.append(add)
            everything.append(add)
            return
        update = UpdateNotification(old, item)
        everything.append(update)
        if not update.is_sync:
            changes.append(update)

    async def _replace_all(self, delta: ReplacedAll[T]) -> None:
        """Replace the contents of the store with a list.

        Indexing ten thousand objects takes tens of milliseconds. So the new contents are built in pieces beside the old ones,
        and the loop runs after each piece. Only the process loop writes to the store, so it does not change meanwhile. Then the
        contents are swapped and the notifications queued without an await in between.
        """
        new = self._indexer.replacement()
        initial = not self.has_synced
        changes: list[Notification[T]] = []
        everything: list[Notification[T]] = []
        for start in range(0, len(delta.objects), PIECE):
            piece = delta.objects[start : start + PIECE]
            new.add(piece)
            for item in piece:
                self._add_replacement_notifications(item, changes, everything, initial=initial)
            await asyncio.sleep(0)
        if delta.unreadable:
            left = [(key, item) for key, item in self._indexer.items() if key not in new.items]
            new.add(item for key, item in left if key in delta.unreadable or "" in delta.unreadable)
        gone: list[Notification[T]] = [
            DeleteNotification(Tombstone(key, item)) for key, item in self._indexer.items() if key not in new.items
        ]
        self._indexer.replace(new, delta.resource_version)
        # After a list with undecodable objects, `on_list` is not called: the cache may be incomplete.
        end: list[Notification[T]] = [] if delta.unreadable else [ListNotification(delta.resource_version)]
        self._processor.distribute([*gone, *changes, *end], [*gone, *everything, *end])
        if initial:
            self._processor.mark_synced()
            self._gate.open()  # only after the contents are in place
