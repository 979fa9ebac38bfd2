"""Consumes the events of a watch for the reflector: forwards them to the FIFO and tracks the resourceVersion.

A streaming list (WatchList) is a watch with `sendInitialEvents`. It starts with the whole collection as synthetic adds
in any order, mixed with later changes. A bookmark marks the end of that part. These events are buffered until the bookmark; a
warning is logged if it is late. After the bookmark, the stream is an ordinary watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, cast

from structlog.typing import FilteringBoundLogger

from tfjob_operator.api.client.errors import ApiError, TransportError
from tfjob_operator.api.meta import meta_key
from tfjob_operator.informers.codec import ListPage, Skipped, WatchEvent
from tfjob_operator.informers.deltas import Added, Bookmark, Change, Deleted, Delta, Modified, ReplacedAll, T, Vanished

_CHANGES: Final = frozenset({Added, Modified, Deleted})


class Sink(Protocol[T]):
    """A consumer of deltas: the FIFO."""

    def put(self, delta: Delta[T]) -> None:
        """Accept a delta."""
        ...

    def extend(self, changes: list[Change[T]]) -> None:
        """Accept changes of single objects, in order."""
        ...

    async def wait_for_room(self) -> None:
        """Return when the consumer has caught up, so that a fast watch does not fill the memory."""
        ...


@dataclass(slots=True)
class WatchProgress(Generic[T]):
    """What a watch has delivered so far.

    `synthetic` is True while the watch has sent only objects that existed before it started. For a streaming list,
    `initial` is set until the list is complete.
    """

    synthetic: bool
    initial: InitialEvents[T] | None = None
    opened: bool = False
    events: int = 0
    short: bool = False

    def was_interrupted(self, failure: ApiError | None) -> bool:
        """Return True if the stream was opened and then broke or was closed, but not immediately."""
        return self.opened and not self.short and (failure is None or isinstance(failure, TransportError))


class Intake(Generic[T]):
    """Forwards lists and watch events to `sink`, and tracks `version`.

    Invariant: `version` is that of the last list, event or bookmark accepted by the sink, never newer.
    """

    def __init__(self, sink: Sink[T], on_skipped: Callable[[Skipped], None]) -> None:
        """Call `on_skipped` for each object that could not be decoded."""
        self.version = ""
        self._sink = sink
        self._on_skipped = on_skipped

    def replace(self, page: ListPage[T]) -> None:
        """Forward a complete list."""
        for skipped in page.skipped:
            self._on_skipped(skipped)
        self._sink.put(ReplacedAll(page.items, page.resource_version, frozenset(each.key for each in page.skipped)))
        self.version = page.resource_version

    def collect(self, batch: list[WatchEvent[T]], progress: WatchProgress[T], initial: InitialEvents[T]) -> bool:
        """Buffer the initial events of a streaming list; return True once all are forwarded. Raises NotStreamedError."""
        taken = initial.take(batch)
        progress.events += taken
        for event in batch[:taken]:
            if isinstance(event, Skipped):
                self._on_skipped(event)
        version = initial.version
        if version is None:
            return False
        self._sink.put(initial.replacement(version))
        self.version = version
        progress.initial, progress.synthetic = None, False
        self.take(batch[taken:], progress)
        return True

    def take(self, batch: list[WatchEvent[T]], progress: WatchProgress[T]) -> None:
        """Forward events that arrived together; in the common case that all are changes, forward them as one batch."""
        if progress.synthetic or not _CHANGES.issuperset(map(type, batch)):
            for event in batch:
                self._take_one(event, progress)
        elif batch:
            changes = cast("list[Change[T]]", batch)
            progress.events += len(changes)
            self._sink.extend(changes)
            self.version = changes[-1].object.metadata.resource_version or self.version

    def _take_one(self, event: WatchEvent[T], progress: WatchProgress[T]) -> None:
        """Forward one event, then advance the version."""
        progress.events += 1
        if isinstance(event, Skipped):
            self._on_skipped(event)
            if event.deleted and event.key:
                self._sink.put(Vanished(event.key))
            version = event.resource_version
            if version:
                self._sink.put(Bookmark(version))  # all other objects in the store are current up to here
        elif isinstance(event, Bookmark):
            self._sink.put(event)
            version = event.resource_version
        else:
            self._sink.put(event)
            version = event.object.metadata.resource_version
        if progress.synthetic and isinstance(event, Added):
            return  # existing objects arrive in any order, so their versions do not indicate progress
        progress.synthetic = False
        if version:
            self.version = version


LATE_S: Final = 10.0
"""Client-go's interval."""


class NotStreamedError(ApiError):
    """The server, or a proxy, ignored `sendInitialEvents`: the first bookmark did not end the initial events."""


class InitialEvents(Generic[T]):
    """The initial events that a streaming list has sent so far. The store is not modified.

    Invariant: `version` is None until the collection is complete, then it is the collection's version.
    """

    __slots__ = ("_objects", "_unreadable", "version")

    def __init__(self) -> None:
        self.version: str | None = None
        self._objects: dict[str, T] = {}
        self._unreadable: set[str] = set()

    def __len__(self) -> int:
        return len(self._objects)

    def take(self, batch: list[WatchEvent[T]]) -> int:
        """Buffer events up to the bookmark that completes the collection; return their number. Raises NotStreamedError."""
        objects = self._objects
        for number, event in enumerate(batch, 1):
            if isinstance(event, (Added, Modified)):
                objects[meta_key(event.object.metadata)] = event.object
            elif isinstance(event, Deleted):
                self._forget(meta_key(event.object.metadata))
            elif isinstance(event, Skipped):
                if event.deleted:
                    if event.key:
                        self._forget(event.key)
                else:
                    self._unreadable.add(event.key)
            elif event.ends_initial_events:
                self.version = event.resource_version
                return number
            else:
                raise NotStreamedError("the watch started with an ordinary bookmark: sendInitialEvents was ignored")
        return len(batch)

    def replacement(self, version: str) -> ReplacedAll[T]:
        """Return the whole collection as one delta, like a list."""
        return ReplacedAll([*self._objects.values()], version, frozenset(self._unreadable))

    def _forget(self, key: str) -> None:
        self._objects.pop(key, None)
        self._unreadable.discard(key)


class LateBookmarkWarning:
    """Logs a warning for every `LATE_S` seconds without events, while the initial events are incomplete."""

    __slots__ = ("_arrived", "_before", "_began", "_log", "_loop", "_timer")

    def __init__(self, log: FilteringBoundLogger, arrived: Callable[[], int | None]) -> None:
        """Start now, on the running loop. `arrived` returns the number of events so far, or None when they are complete."""
        self._log = log
        self._arrived = arrived
        self._before = 0
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._timer = self._loop.call_later(LATE_S, self._check)

    def stop(self) -> None:
        """Cancel the timer. Safe to call twice."""
        self._timer.cancel()

    def _check(self) -> None:
        arrived = self._arrived()
        if arrived is None:
            return
        if arrived == self._before:
            self._log.warning("initial_events_late", events=arrived, seconds=round(self._loop.time() - self._began))
        self._before = arrived
        self._timer = self._loop.call_later(LATE_S, self._check)
