"""A store whose items expire (ST-11): for data that is read from elsewhere and valid for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from tfjob_operator.workqueue.clock import Clock, LoopClock

if TYPE_CHECKING:
    import builtins  # a method here is called list
    from collections.abc import Mapping

V = TypeVar("V")


class ExpiringStore(Generic[V]):
    """Items by key, each valid for `ttl_s` seconds after it was put.

    An expired item is dropped when it is next looked up and not before, so this suits keys that come again. Invariant: no
    read returns an expired item.
    """

    __slots__ = ("_clock", "_items", "_ttl_s")

    def __init__(self, ttl_s: float, *, clock: Clock | None = None) -> None:
        """Keep items for `ttl_s` seconds; 0 or less means that nothing expires."""
        self._ttl_s = ttl_s
        self._clock = clock or LoopClock()
        self._items: dict[str, tuple[float, V]] = {}

    def put(self, key: str, item: V) -> None:
        """Store an item; its time begins anew."""
        self._items[key] = self._clock.monotonic(), item

    def get(self, key: str) -> V | None:
        """Return the item under `key`, or None."""
        entry = self._items.get(key)
        if entry is None:
            return None
        put_at, item = entry
        if 0 < self._ttl_s < self._clock.monotonic() - put_at:
            del self._items[key]
            return None
        return item

    def list(self) -> builtins.list[V]:
        """All items that are still good, in the order of their keys' first puts."""
        found = [self.get(key) for key in [*self._items]]
        return [item for item in found if item is not None]

    def remove(self, key: str) -> None:
        """Forget an item, if it is there."""
        self._items.pop(key, None)

    def replace(self, items: Mapping[str, V]) -> None:
        """Put these in the place of everything stored; their time begins now."""
        now = self._clock.monotonic()
        self._items = {key: (now, item) for key, item in items.items()}
