"""Our own writes, over a cache that the watch has not brought them to yet (ST-12).

A controller that reads its cache right after its own write sees the state before. One that keeps the responses to its writes
here, and reads through here, sees its own writes until the watch has brought them, or something newer.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic

from tfjob_operator.api.meta import meta_key
from tfjob_operator.informers.deltas import T
from tfjob_operator.workqueue.clock import Clock, LoopClock

if TYPE_CHECKING:
    from tfjob_operator.informers.store import Indexer

SIZE: Final = 100
"""Writes that are remembered, the oldest go first: client-go's number. A watch brings a write within milliseconds."""


class MutationCache(Generic[T]):
    """Reads from an indexer, in which our own writes replace older states.

    Invariant: no read returns an older version than the indexer has. Versions are compared as numbers, as etcd makes them;
    if one is not a number, the indexer's object is returned.
    """

    __slots__ = ("_clock", "_include_adds", "_indexer", "_ttl_s", "_written")

    def __init__(
        self, indexer: Indexer[T], ttl_s: float, *, include_adds: bool = False, clock: Clock | None = None
    ) -> None:
        """Remember each write for `ttl_s` seconds.

        With `include_adds` an object that the indexer does not hold is returned too. It may not have come yet, or may be gone
        already: a deletion that the watch brings first is only noticed after `ttl_s`.
        """
        self._indexer = indexer
        self._ttl_s = ttl_s
        self._include_adds = include_adds
        self._clock = clock or LoopClock()
        self._written: OrderedDict[str, tuple[float, T]] = OrderedDict()

    def mutation(self, item: T) -> None:
        """Remember the response to a write of ours. One that is older than what is remembered changes nothing."""
        key = meta_key(item.metadata)
        known = self._remembered(key)
        if known is not None and _is_newer(known, item):
            return
        self._written[key] = self._clock.monotonic() + self._ttl_s, item
        self._written.move_to_end(key)
        if len(self._written) > SIZE:
            self._written.popitem(last=False)

    def get(self, key: str) -> T | None:
        """Return the newest version that is known of the object under `key`, or None."""
        cached = self._indexer.get(key)
        if cached is None:
            return self._remembered(key) if self._include_adds else None
        return self._newest(key, cached)

    def by_index(self, name: str, value: str) -> list[T]:
        """Return the objects that index `name` holds under `value`, in the newest known versions. Raises IndexerError.

        The indexer decides which objects these are: a write of ours that moves an object to another value is not followed.
        With `include_adds`, objects follow that the indexer does not hold and that belong there.
        """
        keys = self._indexer.index_keys(name, value)
        found = [self.get(key) for key in keys]
        if self._include_adds:
            missing = [key for key in self._written if key not in self._indexer]
            added = [item for key in missing if (item := self._remembered(key)) is not None]
            found += [item for item in added if value in self._indexer.values_of(name, item)]
        return [item for item in found if item is not None]

    def _newest(self, key: str, cached: T) -> T:
        written = self._remembered(key)
        if written is None:
            return cached
        if _is_newer(written, cached):
            return written
        del self._written[key]  # the watch has brought it
        return cached

    def _remembered(self, key: str) -> T | None:
        entry = self._written.get(key)
        if entry is None:
            return None
        until, item = entry
        if self._clock.monotonic() > until:
            del self._written[key]
            return None
        return item


def _is_newer(one: T, other: T) -> bool:
    versions = one.metadata.resource_version, other.metadata.resource_version
    return all(version.isdecimal() for version in versions) and int(versions[0]) > int(versions[1])
