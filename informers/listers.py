"""Reading a cache the way one reads the API: by namespace, name and label selector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from tfjob_operator.api.client.errors import NotFoundError, Status, StatusDetails
from tfjob_operator.api.meta import object_key
from tfjob_operator.informers.deltas import T
from tfjob_operator.informers.selectors import EVERYTHING, Selector, parse_labels
from tfjob_operator.informers.store import NAMESPACE_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfjob_operator.api.meta import Resource
    from tfjob_operator.informers.store import Indexer


class Lister(Generic[T]):
    """All objects of a cache; those of one namespace through `namespaced`. Holds no state of its own."""

    def __init__(self, indexer: Indexer[T], resource: Resource) -> None:
        self._indexer = indexer
        self._resource = resource

    def list(self, selector: Selector | str = EVERYTHING) -> list[T]:
        """Return the objects whose labels `selector` matches. Raises SelectorError for text that is no selector."""
        return _select(self._indexer.list(), selector)

    def get(self, name: str) -> T:
        """Return an object that has no namespace. Raises NotFoundError."""
        return _get(self._indexer, self._resource, "", name)

    def namespaced(self, namespace: str) -> NamespaceLister[T]:
        """Return a lister for one namespace; "" is all of them, as everywhere (ST-08)."""
        return NamespaceLister(self._indexer, self._resource, namespace)


class NamespaceLister(Generic[T]):
    """The objects of one namespace, or of all for "" (which `get` takes for objects that have none)."""

    def __init__(self, indexer: Indexer[T], resource: Resource, namespace: str) -> None:
        self._indexer = indexer
        self._resource = resource
        self._namespace = namespace

    def list(self, selector: Selector | str = EVERYTHING) -> list[T]:
        """Return the objects whose labels `selector` matches. Raises SelectorError for text that is no selector."""
        if not self._namespace:
            return _select(self._indexer.list(), selector)
        if self._indexer.has_index(NAMESPACE_INDEX):
            return _select(self._indexer.by_index(NAMESPACE_INDEX, self._namespace), selector)
        return _select((item for item in self._indexer.list() if item.metadata.namespace == self._namespace), selector)

    def get(self, name: str) -> T:
        """Return the object of this name. Raises NotFoundError, as a GET from the server would."""
        return _get(self._indexer, self._resource, self._namespace, name)


def _select(items: Iterable[T], selector: Selector | str) -> list[T]:
    parsed = parse_labels(selector) if isinstance(selector, str) else selector
    if parsed.is_everything:
        return [*items]
    return [item for item in items if parsed.matches(item.metadata.label_map())]


def _get(indexer: Indexer[T], resource: Resource, namespace: str, name: str) -> T:
    item = indexer.get(object_key(namespace, name))
    if item is None:
        raise NotFoundError(
            Status(
                kind="Status",
                code=404,
                reason="NotFound",
                message=f'{resource} "{name}" not found',
                details=StatusDetails(name=name, kind=resource.plural),
            )
        )
    return item
