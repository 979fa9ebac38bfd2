"""Deltas, the changes of a cache, and the FIFO that carries them from the reflector to the store.

`Added`, `Modified`, `Deleted` and `Bookmark` are watch events, decoded directly from the stream. A list becomes one
`ReplacedAll`, a resync one `SyncAll` (client-go's atomic FIFO). Handlers receive a `Tombstone` for a deletion that no watch has
observed. The FIFO preserves order and neither drops nor merges deltas.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from tfjob_operator.api.meta import Object, meta_key
from tfjob_operator.informers.errors import QueueClosedError

T = TypeVar("T", bound=Object)
T_co = TypeVar("T_co", bound=Object, covariant=True)


class Added(msgspec.Struct, Generic[T], frozen=True, gc=False, tag="ADDED", tag_field="type"):
    """The object was created, or existed when the watch started."""

    object: T


class Modified(msgspec.Struct, Generic[T], frozen=True, gc=False, tag="MODIFIED", tag_field="type"):
    """The object was updated."""

    object: T


class Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False, tag="DELETED", tag_field="type"):
    """The object was deleted. `object` is its last state, with the resourceVersion of the deletion."""

    object: T


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """Progress notification: there are no further changes up to this resourceVersion.

    `ends_initial_events`: all objects that existed when the watch started have been sent. A server with streaming lists
    sets this on every watch that started with synthetic adds.
    """

    resource_version: str
    ends_initial_events: bool = False


class Vanished(msgspec.Struct, frozen=True, gc=False):
    """The object was deleted and its last state could not be decoded; only the key is known."""

    key: str


class ReplacedAll(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The whole collection, from a list.

    `unreadable` contains the keys of objects that could not be decoded; their last known state is kept, as in a watch. If it
    contains "", the key of an object could not be read, and no object is treated as deleted.
    """

    objects: list[T]
    resource_version: str
    unreadable: frozenset[str] = frozenset()


class SyncAll(msgspec.Struct, frozen=True, gc=False):
    """Resync: report every object in the store to the handlers that are due for a resync."""


Change = Added[T] | Modified[T] | Deleted[T]
"""A change of one object, as reported by a watch."""
Delta = Added[T] | Modified[T] | Deleted[T] | Bookmark | Vanished | ReplacedAll[T] | SyncAll


class Tombstone(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """A deletion that no watch has observed. `object` is the last known state, which may be outdated."""

    key: str
    object: T_co


def object_of(item: T | Tombstone[T]) -> T:
    """Return the object, unwrapping a tombstone."""
    return item.object if isinstance(item, Tombstone) else item


def key_of(item: T | Tombstone[T]) -> str:
    """Return the key of an object or of a tombstone."""
    return item.key if isinstance(item, Tombstone) else meta_key(item.metadata)


BATCH: Final = 1000
"""Client-go's limit. Here it is the number of deltas applied before yielding to the loop, about 3 ms of work."""


BACKLOG: Final = 256
"""Deltas and notifications that may wait before the reflector stops reading its watch: what a listener delivers in one turn of
the loop. A waiting notification of an update keeps the old object in memory."""


class FIFO(Generic[T]):
    """Deltas in arrival order, for one producer and one consumer.

    Invariants:
    - every delta put before `close` is returned exactly once, in order;
    - a batch has at most `BATCH` deltas. A `ReplacedAll` or `SyncAll` forms its own batch, since it may affect every key.

    Unlike in client-go, a key may occur several times: each delta is applied, and its notifications queued, before the next
    one.
    """

    def __init__(self, notifications: Callable[[], int] = lambda: 0) -> None:
        """`notifications` returns how many notifications wait for the slowest handler."""
        self._notifications = notifications
        self._deltas: deque[Delta[T]] = deque()
        self._alone = 0  # how many of them form their own batch
        self._wake = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._deltas)

    def put(self, delta: Delta[T]) -> None:
        """Append a delta. Dropped after `close`, since the consumer is gone."""
        if not self._closed:
            self._deltas.append(delta)
            self._alone += isinstance(delta, (ReplacedAll, SyncAll))
            self._wake.set()

    def extend(self, changes: list[Change[T]]) -> None:
        """Append changes of single objects; equivalent to `put` for each."""
        if not self._closed:
            self._deltas.extend(changes)
            self._wake.set()

    async def wait_for_room(self) -> None:
        """Return when at most `BACKLOG` deltas and notifications wait.

        This ends unless a handler never returns: consumer and listeners wait for nothing else while they have work.
        """
        while len(self._deltas) + self._notifications() > BACKLOG:  # noqa: ASYNC110 - each turn of the loop takes some
            await asyncio.sleep(0)

    def close(self) -> None:
        """Accept no more deltas. The consumer receives what is queued, then QueueClosedError."""
        self._closed = True
        self._wake.set()

    async def pop(self) -> list[Delta[T]]:
        """Return the next batch, never empty. Cancelling loses nothing. Raises QueueClosedError when closed and empty."""
        while not self._deltas:
            if self._closed:
                raise QueueClosedError("the event queue is closed")
            self._wake.clear()
            await self._wake.wait()
        if not self._alone and len(self._deltas) <= BATCH:
            everything = list(self._deltas)
            self._deltas.clear()
            return everything
        batch = [self._deltas.popleft()]
        if isinstance(batch[0], (ReplacedAll, SyncAll)):
            self._alone -= 1
            return batch
        while self._deltas and len(batch) < BATCH and not isinstance(self._deltas[0], (ReplacedAll, SyncAll)):
            batch.append(self._deltas.popleft())
        return batch
