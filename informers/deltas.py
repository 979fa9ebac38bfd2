"""What can happen to a cache: the deltas that travel from the reflector through the FIFO to the store.

The first four are events of a watch, decoded straight from its lines. A list becomes one `ReplacedAll`, a resync one
`SyncAll` (client-go's atomic FIFO). Handlers get a `Tombstone` for a deletion that no watch has seen.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from tfjob_operator.api.meta import Object, meta_key

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
