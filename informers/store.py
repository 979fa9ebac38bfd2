"""The indexer: stores objects by key, and indexes their keys by the values of index functions."""

from __future__ import annotations

import builtins  # a method here is called list
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic

from tfjob_operator.api.meta import Meta, meta_key
from tfjob_operator.informers.deltas import T
from tfjob_operator.informers.errors import IndexerError, InformerNotStartedError

IndexFunction = Callable[[T], Sequence[str]]
"""Returns the index values of an object: none, one or more. It must not raise; an error ends the informer."""

NAMESPACE_INDEX: Final = "namespace"

_Index = dict[str, dict[str, None]]  # value -> keys; a dict, for a deterministic order


def index_by_namespace(item: T) -> Sequence[str]:
    """Return the namespace of an object: the index function of `NAMESPACE_INDEX`."""
    return (item.metadata.namespace,)


class Indexer(Generic[T]):
    """Objects by key, with any number of indices. Reads return the stored objects themselves, which are frozen.

    Invariants, which hold whenever a caller awaits, because no method here awaits:
    - every key in an index is a stored key, under exactly the values that the index function returns for its object;
    - an index has no empty sets of keys (k/k#84959: values such as owner UIDs never recur, so empty sets would accumulate);
    - `resource_version` is the version up to which the items are complete.

    Only the informer writes, see `MutableIndexer`. Reads raise InformerNotStartedError if the informer was not started: a
    controller would take the empty cache for an empty cluster. While the first list is on its way, they return what is there,
    which is nothing: wait for `has_synced`, as the manager does.
    """

    def __init__(
        self,
        functions: Mapping[str, IndexFunction[T]] | None = None,
        *,
        namespaced: bool | None = None,
        started: bool = True,
    ) -> None:
        """Create an empty cache. `namespaced` is the scope of the objects, by which keys are checked; None if unknown."""
        self.started = started
        self._namespaced = namespaced
        self._items: dict[str, T] = {}
        self._functions: dict[str, IndexFunction[T]] = dict(functions or {})
        self._indices: dict[str, _Index] = {name: {} for name in self._functions}
        self.resource_version = ""

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def get(self, key: str) -> T | None:
        """Return the object under `key` (`namespace/name`), or None.

        Raises ValueError for a key that no object of this scope has, such as a name without its namespace: None would mean that
        the object was deleted.
        """
        self._check()
        if self._namespaced is not None and ("/" in key) is not self._namespaced:
            scope = "namespace/name" if self._namespaced else "a name without a namespace"
            raise ValueError(f"{key!r} is not a key of this cache, which has the form {scope}: see object_key")
        return self._items.get(key)

    def list(self) -> builtins.list[T]:
        """Return all objects, in insertion order."""
        self._check()
        return [*self._items.values()]

    def keys(self) -> builtins.list[str]:
        """Return all keys, in insertion order."""
        self._check()
        return [*self._items]

    def has(self, meta: Meta) -> bool:
        """Return True if this object is stored in any version. An object of the same name with another UID does not count."""
        self._check()
        found = self._items.get(meta_key(meta))
        return found is not None and found.metadata.uid == meta.uid

    def items(self) -> builtins.list[tuple[str, T]]:
        """Return all keys with their objects, in insertion order."""
        self._check()
        return [*self._items.items()]

    def by_index(self, name: str, value: str) -> builtins.list[T]:
        """Return the objects stored in index `name` under `value`. Raises IndexerError for an unknown index.

        A value that the index function never returns has no objects: for `OWNER_INDEX` it must be an `owner_uid_key`, not a
        UID.
        """
        return [self._items[key] for key in self._index(name).get(value, ())]

    def index_keys(self, name: str, value: str) -> builtins.list[str]:
        """Return the keys stored in index `name` under `value`. Raises IndexerError for an unknown index."""
        return [*self._index(name).get(value, ())]

    def index_values(self, name: str) -> builtins.list[str]:
        """Return all values of index `name`. Raises IndexerError for an unknown index."""
        return [*self._index(name)]

    def has_index(self, name: str) -> bool:
        """Return True if an index with this name exists."""
        return name in self._functions

    def index_function(self, name: str) -> IndexFunction[T] | None:
        """Return the function of the index with this name, or None if it does not exist."""
        return self._functions.get(name)

    def add_indexers(self, functions: Mapping[str, IndexFunction[T]]) -> None:
        """Add indices and fill them from the stored objects. Raises IndexerError, adding none, if a name is in use."""
        taken = self._functions.keys() & functions.keys()
        if taken:
            raise IndexerError(f"indices exist already: {', '.join(sorted(taken))}")
        built: dict[str, _Index] = {name: {} for name in functions}
        for key, item in self._items.items():
            _add(built, functions, key, item)
        self._functions |= functions
        self._indices |= built

    def _index(self, name: str) -> _Index:
        self._check()
        try:
            return self._indices[name]
        except KeyError:
            raise IndexerError(f"index {name!r} does not exist") from None

    def _check(self) -> None:
        if not self.started:
            raise InformerNotStartedError(
                "the informer of this cache was not started, so the cache would be empty forever: call"
                " SharedInformerFactory.start after the last request for an informer"
            )


class MutableIndexer(Indexer[T]):
    """The indexer as its informer writes it."""

    def put(self, key: str, item: T) -> T | None:
        """Store an object; return the one it replaces, or None."""
        old = self._items.get(key)
        self._items[key] = item
        if old is None:
            _add(self._indices, self._functions, key, item)
        else:
            self._move(key, old, item)
        return old

    def remove(self, key: str) -> T | None:
        """Remove an object; return it, or None if it was not stored."""
        old = self._items.pop(key, None)
        if old is not None:
            for name, function in self._functions.items():
                _discard(self._indices[name], function(old), key)
        return old

    def replacement(self) -> Replacement[T]:
        """Return an empty `Replacement` with the same indices."""
        return Replacement(self._functions)

    def replace(self, new: Replacement[T], resource_version: str) -> None:
        """Replace all contents, including indices and version, with `new`."""
        for name, function in self._functions.items():
            if name not in new.indices:  # added while `new` was being built
                index: _Index = {}
                new.indices[name] = index
                for key, item in new.items.items():
                    _add({name: index}, {name: function}, key, item)
        self._items, self._indices = new.items, new.indices
        self.resource_version = resource_version

    def _move(self, key: str, old: T, new: T) -> None:
        for name, function in self._functions.items():
            before, after = function(old), function(new)
            if before == after:
                continue
            index = self._indices[name]
            _discard(index, [value for value in before if value not in after], key)
            for value in after:
                index.setdefault(value, {})[key] = None


class Replacement(Generic[T]):
    """New contents of an indexer, built in pieces so that a long list does not block the loop."""

    def __init__(self, functions: Mapping[str, IndexFunction[T]]) -> None:
        self._functions = dict(functions)
        self.items: dict[str, T] = {}
        self.indices: dict[str, _Index] = {name: {} for name in functions}

    def add(self, items: Iterable[T]) -> None:
        """Add objects; a later object replaces an earlier one with the same key."""
        for item in items:
            key = meta_key(item.metadata)
            if key in self.items:
                for name, function in self._functions.items():
                    _discard(self.indices[name], function(self.items[key]), key)
            self.items[key] = item
            _add(self.indices, self._functions, key, item)


def _add(indices: Mapping[str, _Index], functions: Mapping[str, IndexFunction[T]], key: str, item: T) -> None:
    for name, function in functions.items():
        values = function(item)
        if isinstance(values, str):  # the type checker accepts a str as a sequence of str
            raise TypeError(f"index function {name!r} must return a sequence of values, but returned {values!r}")
        index = indices[name]
        for value in values:
            keys = index.get(value)
            if keys is None:
                index[value] = {key: None}
            else:
                keys[key] = None


def _discard(index: _Index, values: Iterable[str], key: str) -> None:
    for value in dict.fromkeys(values):  # a function may return a value twice
        keys = index[value]
        del keys[key]
        if not keys:
            del index[value]
