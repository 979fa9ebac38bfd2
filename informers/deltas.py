"""What can happen to a cache: the deltas that travel from the reflector to the store, and the FIFO that they travel through.

The first four are events of a watch, decoded straight from its lines. A list becomes one `ReplacedAll`, a resync one
`SyncAll` (client-go's atomic FIFO). Handlers get a `Tombstone` for a deletion that no watch has seen. The FIFO keeps deltas in
the order in which they arrived and neither drops nor merges any.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Generic, TypeVar

import msgspec

from tfjob_operator.api.meta import Object, meta_key
from tfjob_operator.informers.errors import QueueClosedError

T = TypeVar("T", bound=Object)
T_co = TypeVar("T_co", bound=Object, covariant=True)


class Added(msgspec.Struct, Generic[T], frozen=True, gc=False, tag="ADDED", tag_field="type"):
    """The object was created, or existed already when the watch began."""

    object: T


class Modified(msgspec.Struct, Generic[T], frozen=True, gc=False, tag="MODIFIED", tag_field="type"):
    """The object changed."""

    object: T


class Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False, tag="DELETED", tag_field="type"):
    """The object was deleted; this is its last state, with the resourceVersion of the deletion."""

    object: T


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """Nothing happened up to this resourceVersion (RF-10).

    `ends_initial_events`: everything that existed when the watch began has been sent (RF-27). A server with streaming lists
    says so on every watch that began with synthetic adds.
    """

    resource_version: str
    ends_initial_events: bool = False


class Vanished(msgspec.Struct, frozen=True, gc=False):
    """The object was deleted, and its last state could not be decoded: only the key is known."""

    key: str


class ReplacedAll(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The whole collection, from a list (QF-03).

    `unreadable` are the keys of objects that could not be decoded: these keep their last known state, as with a watch. If
    "" is among them, an object whose key could not be read either, no object is taken for deleted.
    """

    objects: list[T]
    resource_version: str
    unreadable: frozenset[str] = frozenset()


class SyncAll(msgspec.Struct, frozen=True, gc=False):
    """Call the handlers that are due for every object in the store (QF-04)."""


Change = Added[T] | Modified[T] | Deleted[T]
"""A change of one object, as a watch reports it."""
Delta = Added[T] | Modified[T] | Deleted[T] | Bookmark | Vanished | ReplacedAll[T] | SyncAll


class Tombstone(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """A deletion that no watch has seen: `object` is the last state that we saw, perhaps not the last there was (SI-11)."""

    key: str
    object: T_co


def object_of(item: T | Tombstone[T]) -> T:
    """Return the object itself, or the one inside a tombstone."""
    return item.object if isinstance(item, Tombstone) else item


def key_of(item: T | Tombstone[T]) -> str:
    """Return the key of an object or of a tombstone (ST-02)."""
    return item.key if isinstance(item, Tombstone) else meta_key(item.metadata)


BATCH: Final = 1000
"""QF-05: client-go's bound. Here it is how many deltas are applied between two turns of the loop, about 3 ms of work."""


class FIFO(Generic[T]):
    """Deltas in arrival order (QF-01). One producer side, one consumer.

    Invariants:
    - every delta that was put before `close` is handed out exactly once, in order;
    - a batch holds at most `BATCH` deltas, and a `ReplacedAll` or `SyncAll` comes alone: they may touch every key.

    Unlike in client-go a key may repeat: each delta is applied, and its notifications are queued, before the next one.
    """

    def __init__(self) -> None:
        self._deltas: deque[Delta[T]] = deque()
        self._alone = 0  # how many of them come alone
        self._wake = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._deltas)

    def put(self, delta: Delta[T]) -> None:
        """Append a delta. After `close` it is dropped, since there is no consumer."""
        if not self._closed:
            self._deltas.append(delta)
            self._alone += isinstance(delta, (ReplacedAll, SyncAll))
            self._wake.set()

    def extend(self, changes: list[Change[T]]) -> None:
        """Append changes of single objects, as `put` does one by one."""
        if not self._closed:
            self._deltas.extend(changes)
            self._wake.set()

    def close(self) -> None:
        """Take nothing more. The consumer still gets what is queued, then QueueClosedError."""
        self._closed = True
        self._wake.set()

    async def pop(self) -> list[Delta[T]]:
        """Take the next batch, never empty; cancelling loses nothing. Raises QueueClosedError when closed and empty."""
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
