"""How a reflector consumes the events of a watch: it passes them on to the FIFO and keeps the resourceVersion reached.

A watch brings changes. A streaming list (WatchList, RF-27) is a watch with `sendInitialEvents`: it begins with the whole
collection, as synthetic adds in any order and with what has changed meanwhile, up to a bookmark. That part is collected until
it is complete, with a warning when it takes long; from there on it is an ordinary watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, cast

from structlog.typing import FilteringBoundLogger

from tfjob_operator.api.client.errors import ApiError, TransportError
from tfjob_operator.api.meta import meta_key
from tfjob_operator.informers.codec import Page, Skipped, WatchEvent
from tfjob_operator.informers.deltas import Added, Bookmark, Change, Deleted, Delta, Modified, ReplacedAll, T, Vanished

_CHANGES: Final = frozenset({Added, Modified, Deleted})


class Sink(Protocol[T]):
    """Where deltas go: the FIFO."""

    def put(self, delta: Delta[T]) -> None:
        """Accept a delta."""
        ...

    def extend(self, changes: list[Change[T]]) -> None:
        """Accept changes of single objects, in order."""
        ...


@dataclass(slots=True)
class Progress(Generic[T]):
    """What a watch brought: only objects from before it (`synthetic`, RF-11), an incomplete streaming list (`initial`)."""

    synthetic: bool
    initial: InitialEvents[T] | None = None
    opened: bool = False
    events: int = 0
    short: bool = False  # RF-15

    def was_lost_under_way(self, failure: ApiError | None) -> bool:
        """Whether the stream was open and broke or ended, and not at once."""
        return self.opened and not self.short and (failure is None or isinstance(failure, TransportError))


class Intake(Generic[T]):
    """Passes what lists and watches bring on to `sink`, and keeps `version`.

    Invariant: `version` is that of the last list, event or bookmark that the sink has accepted, never ahead of it (RF-01).
    """

    def __init__(self, sink: Sink[T], on_skipped: Callable[[Skipped], None]) -> None:
        """`on_skipped` is called for each object that could not be decoded."""
        self.version = ""
        self._sink = sink
        self._on_skipped = on_skipped

    def replace(self, page: Page[T]) -> None:
        """Pass on a whole list."""
        for skipped in page.skipped:
            self._on_skipped(skipped)
        self._sink.put(ReplacedAll(page.items, page.resource_version, frozenset(each.key for each in page.skipped)))
        self.version = page.resource_version

    def collect(self, batch: list[WatchEvent[T]], progress: Progress[T], initial: InitialEvents[T]) -> bool:
        """Take what a streaming list begins with. Return True once all is passed on. Raises NotStreamedError."""
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

    def take(self, batch: list[WatchEvent[T]], progress: Progress[T]) -> None:
        """Pass on what arrived together: in one piece if it is nothing but changes, which is the case that has to be fast."""
        if progress.synthetic or not _CHANGES.issuperset(map(type, batch)):
            for event in batch:
                self._take_one(event, progress)
        elif batch:
            changes = cast("list[Change[T]]", batch)
            progress.events += len(changes)
            self._sink.extend(changes)
            self.version = changes[-1].object.metadata.resource_version or self.version

    def _take_one(self, event: WatchEvent[T], progress: Progress[T]) -> None:
        """Pass one event on; then, and only then, move the version."""
        progress.events += 1
        if isinstance(event, Skipped):
            self._on_skipped(event)
            if event.deleted and event.key:
                self._sink.put(Vanished(event.key))
            version = event.resource_version
            if version:
                self._sink.put(Bookmark(version))  # all other objects of the store are complete up to here
        elif isinstance(event, Bookmark):
            self._sink.put(event)
            version = event.resource_version
        else:
            self._sink.put(event)
            version = event.object.metadata.resource_version
        if progress.synthetic and isinstance(event, Added):
            return  # RF-11: what existed already comes in any order, so its versions say nothing about progress
        progress.synthetic = False
        if version:
            self.version = version


LATE_S: Final = 10.0
"""RF-28: client-go's interval."""


class NotStreamedError(ApiError):
    """The server, or a proxy, ignored `sendInitialEvents`: its first bookmark did not end the collection."""


class InitialEvents(Generic[T]):
    """The part of a collection that a stream has brought so far. Objects are decoded once; the store is not touched.

    Invariant: while `version` is None the collection is incomplete; from then on it is the collection at that version.
    """

    __slots__ = ("_objects", "_unreadable", "version")

    def __init__(self) -> None:
        self.version: str | None = None
        self._objects: dict[str, T] = {}
        self._unreadable: set[str] = set()

    def __len__(self) -> int:
        return len(self._objects)

    def take(self, batch: list[WatchEvent[T]]) -> int:
        """Take events up to the bookmark that completes the collection; return how many. Raises NotStreamedError."""
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
                raise NotStreamedError("the watch began with an ordinary bookmark: sendInitialEvents was not heeded")
        return len(batch)

    def replacement(self, version: str) -> ReplacedAll[T]:
        """Return the whole collection as one delta, as a list would have brought it."""
        return ReplacedAll([*self._objects.values()], version, frozenset(self._unreadable))

    def _forget(self, key: str) -> None:
        self._objects.pop(key, None)
        self._unreadable.discard(key)


class LateBookmark:
    """Warns after every `LATE_S` seconds of silence, while the collection is incomplete."""

    __slots__ = ("_arrived", "_before", "_began", "_log", "_loop", "_timer")

    def __init__(self, log: FilteringBoundLogger, arrived: Callable[[], int | None]) -> None:
        """Begin to wait now. `arrived` returns how many events have come, None when it is all. Belongs to the running loop."""
        self._log = log
        self._arrived = arrived
        self._before = 0
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._timer = self._loop.call_later(LATE_S, self._look)

    def stop(self) -> None:
        """Wait no longer. Safe to call twice."""
        self._timer.cancel()

    def _look(self) -> None:
        arrived = self._arrived()
        if arrived is None:
            return
        if arrived == self._before:
            self._log.warning("initial_events_late", events=arrived, seconds=round(self._loop.time() - self._began))
        self._before = arrived
        self._timer = self._loop.call_later(LATE_S, self._look)
