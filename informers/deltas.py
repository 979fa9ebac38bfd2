"""What can happen to a cache: the deltas that travel from the reflector through the FIFO to the store.

The first four are what a watch says, decoded straight from its lines; a list becomes one `ReplacedAll`, a resync one
`SyncAll` (client-go's atomic FIFO). A `Tombstone` is what handlers get for a deletion that was not seen by a watch.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from tfjob_operator.api.meta import Object, meta_key

T = TypeVar("T", bound=Object)
T_co = TypeVar("T_co", bound=Object, covariant=True)


class Added(msgspec.Struct, Generic[T], frozen=True, gc=False, tag="ADDED", tag_field="type"):
    """The object exists since now, or did already when the watch began."""

    object: T


class Modified(msgspec.Struct, Generic[T], frozen=True, gc=False, tag="MODIFIED", tag_field="type"):
    """The object changed."""

    object: T


class Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False, tag="DELETED", tag_field="type"):
    """The object is gone; this is its last state, with the resourceVersion of the deletion."""

    object: T


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """Nothing happened up to this resourceVersion (RF-10).

    `ends_initial_events`: what existed when the watch began has all been sent (RF-27). A server with streaming lists says so on
    every watch that began with synthetic adds.
    """

    resource_version: str
    ends_initial_events: bool = False


class Vanished(msgspec.Struct, frozen=True, gc=False):
    """The object is gone, and its last state could not be decoded: only the key is known."""

    key: str


class ReplacedAll(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The whole collection as a list found it (QF-03).

    `unreadable` are the keys of what is there but could not be decoded: of those the last known state stays, as by a watch.
    With "" among them, an object whose key could not be read either, nothing is known to be gone.
    """

    objects: list[T]
    resource_version: str
    unreadable: frozenset[str] = frozenset()


class SyncAll(msgspec.Struct, frozen=True, gc=False):
    """Call the handlers that are due for everything stored (QF-04)."""


Change = Added[T] | Modified[T] | Deleted[T]
"""What a watch tells of one object."""

Delta = Added[T] | Modified[T] | Deleted[T] | Bookmark | Vanished | ReplacedAll[T] | SyncAll


class Tombstone(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """A deletion that was found out later: `object` is the last state we saw, perhaps not the last there was (SI-11)."""

    key: str
    object: T_co


def object_of(item: T | Tombstone[T]) -> T:
    """Return the object itself, or the one inside a tombstone."""
    return item.object if isinstance(item, Tombstone) else item


def key_of(item: T | Tombstone[T]) -> str:
    """Return the key of an object or of a tombstone (ST-02)."""
    return item.key if isinstance(item, Tombstone) else meta_key(item.metadata)
