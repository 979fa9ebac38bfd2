"""Event handlers and their notifications."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from tfjob_operator.api.meta import Object
from tfjob_operator.informers.deltas import T, Tombstone, key_of

T_contra = TypeVar("T_contra", bound=Object, contravariant=True)


class EventHandler(Protocol[T_contra]):
    """Receives the events of an informer, after the cache was updated.

    The methods are plain functions that run on the event loop and must not block it: add a key to a queue and return. If one
    raises, the error is logged and counted, and the notification is lost.
    """

    def on_add(self, item: T_contra, is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - client-go's signature
        """Handle an object that is new to the cache.

        `is_in_initial_list` is True if the object existed when the handler was added.
        """
        ...

    def on_update(self, old: T_contra, new: T_contra, /) -> None:
        """Handle an update or a resync; in a resync, `old` and `new` are equal.

        After a gap in the watch, their UIDs may differ.
        """
        ...

    def on_delete(self, item: T_contra | Tombstone[T_contra], /) -> None:
        """Handle a deletion. A `Tombstone` holds the last known state of an object whose deletion was not observed."""
        ...


@runtime_checkable
class ListHandler(Protocol):
    """An optional interface of an `EventHandler`.

    It is called for each list, for example after a watch that could not be resumed.
    """

    def on_list(self, resource_version: str, /) -> None:
        """Handle a list, after the events that result from it.

        The cache now reflects every object that existed at this version. Objects that were both created and deleted since the
        previous event were never observed. Not called for a list with undecodable objects.
        """
        ...


class EventHandlerFuncs(Generic[T]):
    """An `EventHandler` made of functions. Events without a function are ignored."""

    def __init__(
        self,
        *,
        on_add: Callable[[T, bool], None] | None = None,
        on_update: Callable[[T, T], None] | None = None,
        on_delete: Callable[[T | Tombstone[T]], None] | None = None,
    ) -> None:
        """Take a function, or None, for each event. Raises TypeError for a coroutine function."""
        reject_coroutines(on_add, on_update, on_delete)
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


def reject_coroutines(*functions: object) -> None:
    """Raise TypeError for an `async def`, which would never be awaited."""
    for function in functions:
        if iscoroutinefunction(function):
            raise TypeError(f"handlers must be plain functions, but {function!r} is a coroutine function")


class AddNotification(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A pending call of `on_add`."""

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
    """A pending call of `on_update`."""

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
        """True for a resync, which reports the same version again."""
        return self.old.metadata.resource_version == self.new.metadata.resource_version


class DeleteNotification(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A pending call of `on_delete`."""

    item: T | Tombstone[T]

    def deliver(self, handler: EventHandler[T]) -> None:
        """Call the handler."""
        handler.on_delete(self.item)

    @property
    def key(self) -> str:
        """The object's key, for logs."""
        return key_of(self.item)


class ListNotification(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A pending call of `on_list`; ignored by handlers without that method."""

    resource_version: str

    def deliver(self, handler: EventHandler[T]) -> None:
        """Call the handler."""
        if isinstance(handler, ListHandler):
            handler.on_list(self.resource_version)

    @property
    def key(self) -> str:
        """The list's version, in place of an object's key, for logs."""
        return f"list at {self.resource_version}"


Notification = AddNotification[T] | UpdateNotification[T] | DeleteNotification[T] | ListNotification[T]
