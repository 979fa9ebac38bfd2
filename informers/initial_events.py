"""A streaming list (WatchList): collects it until it is complete, and warns while that takes long.

A watch with `sendInitialEvents` begins with everything there is, as synthetic adds in any order, then with what has
happened meanwhile. A bookmark marks the end of that. From there on it is an ordinary watch (RF-27).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic

from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.meta import meta_key
from tfjob_operator.informers.codec import Skipped
from tfjob_operator.informers.deltas import Added, Deleted, Modified, ReplacedAll, T

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from tfjob_operator.informers.codec import WatchEvent

LATE_S: Final = 10.0
"""RF-28: client-go's interval."""


class NotStreamedError(ApiError):
    """The server, or a proxy, ignored `sendInitialEvents`: an ordinary bookmark came first.

    The first bookmark of an API server that knows the parameter says that the collection is complete.
    """


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
        """Take events up to the bookmark that completes the collection; return how many that were.

        Raises NotStreamedError for a bookmark that does not.
        """
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
