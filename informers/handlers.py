"""Event handlers, and the notifications that are delivered to them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from tfjob_operator.api.meta import Object
from tfjob_operator.informers.deltas import T, Tombstone, key_of

T_contra = TypeVar("T_contra", bound=Object, contravariant=True)


class EventHandler(Protocol[T_contra]):
    """Called for what happens to the objects of an informer, after the cache has changed (SI-01).

    The methods are plain functions on the event loop and must not block it: put a key into a queue and return. One that
    raises is logged and counted, and the notification is lost.
    """

    def on_add(self, item: T_contra, is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - client-go's signature
        """Handle an object that is new to the cache. `is_in_initial_list`: it existed before this handler did."""
        ...

    def on_update(self, old: T_contra, new: T_contra, /) -> None:
        """Handle a change, or a resync with `old` and `new` the same. After a gap the UIDs may differ (SI-11)."""
        ...

    def on_delete(self, item: T_contra | Tombstone[T_contra], /) -> None:
        """Handle a deletion. A `Tombstone` says that the deletion itself was not seen, and holds the last known state."""
        ...


@runtime_checkable
class ListHandler(Protocol):
    """What an `EventHandler` may be as well: it is told of each list, which a watch that was interrupted too long ends with."""

    def on_list(self, resource_version: str, /) -> None:
        """Handle a list that is in the cache, after all events that follow from it.

        The cache has shown everything that existed at this version; what came and went before it since the last event was
        never seen. Not called for a list with objects that could not be decoded.
        """
        ...


class EventHandlerFuncs(Generic[T]):
    """An `EventHandler` made of functions; events without a function are ignored."""

    def __init__(
        self,
        *,
        on_add: Callable[[T, bool], None] | None = None,
        on_update: Callable[[T, T], None] | None = None,
        on_delete: Callable[[T | Tombstone[T]], None] | None = None,
    ) -> None:
        """Take a function for each event, or none. Raises TypeError for a coroutine function."""
        refuse_coroutines(on_add, on_update, on_delete)
        self._on_add = on_add
        self._on_update = on_update
        self._on_delete = on_delete

    def on_add(self, item: T, is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - client-go's signature
        """See `EventHandler.on_add`."""
        if self._on_add is not None:
            self._on_add(item, is_in_initial_list)

    def on_update(self, old: T, new: T, /) -> None:
        """See `EventHandler.on_update`."""
        if self._on_update is not None:
            self._on_update(old, new)

    def on_delete(self, item: T | Tombstone[T], /) -> None:
        """See `EventHandler.on_delete`."""
        if self._on_delete is not None:
            self._on_delete(item)


def refuse_coroutines(*functions: object) -> None:
    """Raise TypeError for an `async def`: called without an await it would do nothing, and say so only when collected."""
    for function in functions:
        if iscoroutinefunction(function):
            raise TypeError(f"handlers are plain functions, and {function!r} is a coroutine function")


class AddNotification(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A call of `on_add` that is due."""

    item: T
    is_in_initial_list: bool

    def deliver(self, handler: EventHandler[T]) -> None:
        """Call the handler."""
        handler.on_add(self.item, self.is_in_initial_list)

    @property
    def key(self) -> str:
        """The object's key, for logs."""
        return key_of(self.item)


class UpdateNotification(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A call of `on_update` that is due."""

    old: T
    new: T

    def deliver(self, handler: EventHandler[T]) -> None:
        """Call the handler."""
        handler.on_update(self.old, self.new)

    @property
    def key(self) -> str:
        """The object's key, for logs."""
        return key_of(self.new)

    @property
    def is_sync(self) -> bool:
        """Whether nothing changed: a resync reports the same version again (SI-10)."""
        return self.old.metadata.resource_version == self.new.metadata.resource_version


class DeleteNotification(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A call of `on_delete` that is due."""

    item: T | Tombstone[T]

    def deliver(self, handler: EventHandler[T]) -> None:
        """Call the handler."""
        handler.on_delete(self.item)

    @property
    def key(self) -> str:
        """The object's key, for logs."""
        return key_of(self.item)


class ListNotification(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A call of `on_list` that is due, for a handler that has it."""

    resource_version: str

    def deliver(self, handler: EventHandler[T]) -> None:
        """Call the handler."""
        if isinstance(handler, ListHandler):
            handler.on_list(self.resource_version)

    @property
    def key(self) -> str:
        """What stands in for an object's key in logs."""
        return f"list at {self.resource_version}"


Notification = AddNotification[T] | UpdateNotification[T] | DeleteNotification[T] | ListNotification[T]
