"""What a reflector does with the events of a watch: it passes them on to the FIFO, and keeps the version up to which it has.

A watch brings changes. A streaming list first brings the whole collection, which is collected until it is complete (RF-27).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, cast

from tfjob_operator.api.client.errors import ApiError, TransportError
from tfjob_operator.informers.codec import Page, Skipped
from tfjob_operator.informers.deltas import Added, Bookmark, Change, Deleted, Delta, Modified, ReplacedAll, T, Vanished

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfjob_operator.informers.codec import WatchEvent
    from tfjob_operator.informers.initial_events import InitialEvents

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
    """What one watch has brought. `synthetic`: so far only objects that existed when it began (RF-11).

    `initial` is what a streaming list has brought while it is incomplete, else None.
    """

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
        """Take what a streaming list begins with. Return True when the collection is complete, and all of it passed on.

        Raises NotStreamedError for an ordinary bookmark.
        """
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
