"""The model's storage: objects, one version counter, and the log of changes for watches.

It has no rules, and stores every object. etcd and the watch caches drop history independently: `Storage.compacted` is the
version up to which etcd dropped it, `Collection.forgotten` that of a cache.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec

from kit.model.kinds import Kind
from tfjob_operator.api.meta import Resource

Body = dict[str, Any]
"""A decoded object. It is immutable once stored."""

Key = tuple[str, str]
"""Namespace and name."""

_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one object; `raw` is its serialized form."""

    key: Key
    rv: int
    body: Body
    raw: bytes

    @property
    def labels(self) -> dict[str, str]:
        return self.body["metadata"].get("labels") or {}

    @property
    def path(self) -> str:
        return "/".join(self.key)


@dataclass(frozen=True, slots=True)
class Change:
    """A change: `old` is None for a creation; for a deletion (`gone`), `new` is the last state with a new version."""

    rv: int
    old: Version | None
    new: Version
    gone: bool = False


@dataclass(slots=True)
class Collection:
    """All objects of one kind, their history as far as etcd or the cache still has it, and the watch cache for reads.

    The cache is the history up to `seen`. It is complete unless frozen, which simulates a server without connection to etcd.
    """

    kind: Kind
    objects: dict[Key, Version] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    seen: int = 0
    forgotten: int = 0
    """The cache has all changes after this version: its start, or the last change it dropped."""
    snapshots_from: int = 0
    """The cache has snapshots of the collection from this version on."""
    frozen: bool = False
    stirred: bool = False
    """Whether the cache has seen a change since the server started: until then there are no bookmarks."""
    listeners: dict[Callable[[Change], None], None] = field(default_factory=dict)
    """Called with every change that the cache has seen."""
    waiting: dict[Callable[[], None], None] = field(default_factory=dict)
    """Called when `seen` has advanced."""

    def since(self, rv: int) -> list[Change]:
        return self.log[bisect_right(self.log, rv, key=attrgetter("rv")) :]

    def at(self, rv: int) -> dict[Key, Version]:
        """Return the objects at `rv`, which etcd or the cache must still have."""
        objects = dict(self.objects)
        for change in reversed(self.since(rv)):
            if change.old is None:
                del objects[change.new.key]
            else:
                objects[change.new.key] = change.old
        return objects

    def cached(self) -> dict[Key, Version]:
        """Return the objects at the version of the cache."""
        return self.at(self.seen) if self.frozen else self.objects

    def begin_anew(self, rv: int) -> None:
        """Replace the cache by a new one, filled at `rv`; not possible while frozen."""
        self.stirred = False
        if not self.frozen:
            self.seen = self.forgotten = self.snapshots_from = rv

    def catch_up(self) -> None:
        """Apply pending changes to the cache and call the listeners, unless it is frozen."""
        if self.frozen:
            return
        for change in self.since(self.seen):
            self.seen = change.rv
            self.stirred = True
            for listener in [*self.listeners]:
                listener(change)

    def progress(self, rv: int) -> None:
        """Advance the cache to `rv` without changes, unless it is frozen."""
        if self.frozen:
            return
        self.seen = rv
        for listener in [*self.waiting]:
            listener()


class Storage:
    """All collections under one version counter, as in etcd.

    Invariants: versions only grow and are unique; a collection's log is in the order of versions, and has all changes that etcd
    or its cache has not forgotten; a cache forgets only what it has seen.
    """

    def __init__(self, kinds: Iterable[Kind], first_version: int = 100, *, knows_progress: bool = False) -> None:
        """`knows_progress`: the caches learn etcd's current version even without changes in their collection."""
        self.rv = first_version
        self.compacted = 0
        self.collections: dict[str, Collection] = {}
        self._knows_progress = knows_progress
        self._uids = 0
        for kind in kinds:
            self.add(kind)

    def add(self, kind: Kind) -> Collection:
        collection = Collection(kind, seen=self.rv, forgotten=self.rv, snapshots_from=self.rv)
        self.collections[kind.resource.plural] = collection
        return collection

    def new_uid(self) -> str:
        self._uids += 1
        return f"00000000-0000-4000-8000-{self._uids:012d}"

    def advance(self, rv: int) -> None:
        """Advance the counter, like writes to objects outside of the model."""
        self.rv = max(self.rv, rv)
        self._tell_progress()

    def put(self, collection: Collection, key: Key, body: Body) -> Version:
        """Store a new version of an object. `body` gets its resourceVersion and is owned by the storage afterwards."""
        old = collection.objects.get(key)
        new = self._version(key, body)
        collection.objects[key] = new
        self._commit(collection, Change(new.rv, old, new))
        return new

    def remove(self, collection: Collection, key: Key) -> Version:
        """Remove an object; return its last state with the version of the removal."""
        old = collection.objects.pop(key)
        gone = self._version(key, old.body | {"metadata": dict(old.body["metadata"])})
        self._commit(collection, Change(gone.rv, old, gone, gone=True))
        return gone

    def compact(self, rv: int, *, caches: bool = True) -> None:
        """Let etcd forget the history up to `rv`; with `caches` also the watch caches, as if they were full."""
        frozen = min((each.seen for each in self.collections.values() if each.frozen), default=_NEVER)
        rv = min(rv, frozen)
        if rv <= self.compacted:
            return
        self.compacted = rv
        for collection in self.collections.values():
            kept = collection.since(rv)
            if caches:
                collection.snapshots_from = max(collection.snapshots_from, rv)
                if len(kept) < len(collection.log):
                    collection.forgotten = max(collection.forgotten, collection.log[-len(kept) - 1].rv)
            collection.log = collection.since(min(rv, collection.forgotten))

    def freeze(self, collection: Collection, at: int | None = None) -> None:
        """Freeze the cache of a collection at the current version or, like a lagging server's, at the version `at`."""
        collection.frozen = True
        if at is not None:
            collection.seen = at

    def thaw(self, collection: Collection) -> None:
        collection.frozen = False
        collection.catch_up()
        self._tell_progress()

    def _version(self, key: Key, body: Body) -> Version:
        self.rv += 1
        body["metadata"]["resourceVersion"] = str(self.rv)
        return Version(key, self.rv, body, msgspec.json.encode(body))

    def _commit(self, collection: Collection, change: Change) -> None:
        collection.log.append(change)
        collection.catch_up()
        self._tell_progress()

    def _tell_progress(self) -> None:
        if self._knows_progress:
            for collection in self.collections.values():
                collection.progress(self.rv)


class Feed:
    """Reads the log of a collection. Invariant: every change is returned once, in order.

    The reader must call it after each request that changed something (`ModelServer.on_change`), before a compaction.
    """

    def __init__(self, storage: Storage, resource: Resource) -> None:
        self._collection = storage.collections[resource.plural]
        self._seen = storage.rv

    def news(self) -> list[Change]:
        log = self._collection.log
        if not log or log[-1].rv <= self._seen:
            return []
        changes = self._collection.since(self._seen)
        self._seen = log[-1].rv
        return changes
