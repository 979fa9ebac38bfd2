"""Read a cache like the API: by namespace, name and label selector.

Selectors have the syntax and semantics of the API server:

    Requirement, Requirement, ...     all must match; an empty selector matches everything
    key = value    key == value    key != value
    key in (a, b)  key notin (a, b)  key  !key
    key > 1        key < 1

`!=` and `notin` also match if the key is absent. So a selector with a label that the cached slice does not declare raises
TypeError when it is matched: the cache does not contain the label, whether the object has it or not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic

from tfjob_operator.api.client.errors import NotFoundError, Status, StatusDetails
from tfjob_operator.api.meta import Resource, object_key
from tfjob_operator.informers.deltas import T
from tfjob_operator.informers.errors import SelectorError
from tfjob_operator.informers.store import NAMESPACE_INDEX, Indexer

Test = Callable[[Mapping[str, str]], bool]
_KEY: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE: Final = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_COMPARE = re.compile(rf"({_KEY})\s*(==|=|!=|>|<)\s*({_VALUE})")
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")


@dataclass(frozen=True, slots=True)
class Selector:
    """A parsed selector; `text` is its source."""

    text: str
    tests: tuple[Test, ...] = ()

    @property
    def is_everything(self) -> bool:
        """True if it matches every object, so that matching can be skipped."""
        return not self.tests

    def matches(self, values: Mapping[str, str] | None) -> bool:
        """Return True if these labels (or fields) match; None means that the object has none."""
        present = values if values is not None else {}
        return all(test(present) for test in self.tests)


EVERYTHING: Final = Selector("")
NOTHING: Final = Selector("<nothing>", (lambda _: False,))
"""Matches nothing. It has no textual form and cannot be sent to a server."""


def parse_labels(text: str) -> Selector:
    """Parse a label selector. Raises SelectorError."""
    return Selector(text, tuple(_label_test(part, text) for part in _split(text)))


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    if not text.strip():
        return []
    return [part.strip() for part in re.split(r",(?![^(]*\))", text)]


def _label_test(part: str, text: str) -> Test:
    if match := _EXISTS.fullmatch(part):
        negated, key = match.groups()
        return lambda values: (key in values) is not bool(negated)
    if match := _COMPARE.fullmatch(part):
        key, operator, value = match.groups()
        if operator in {"<", ">"}:
            return _comparison(key, value, text, greater=operator == ">")
        return lambda values: (values.get(key) == value) is not (operator == "!=")
    if match := _SET.fullmatch(part):
        key, operator, inside = match.groups()
        values = frozenset(value.strip() for value in inside.split(","))
        if all(re.fullmatch(_VALUE, value) for value in values):
            return lambda present: (present.get(key) in values) is not (operator == "notin")
    raise SelectorError(f"cannot parse {part!r} in label selector {text!r}")


def _comparison(key: str, bound: str, text: str, *, greater: bool) -> Test:
    if not bound.isdecimal():
        raise SelectorError(f"{bound!r} in label selector {text!r} is not a number")
    limit = int(bound)

    def test(values: Mapping[str, str]) -> bool:
        value = values.get(key, "")
        return value.isdecimal() and (int(value) > limit if greater else int(value) < limit)

    return test


class Lister(Generic[T]):
    """Reads the objects of a cache: of one namespace or, for "", of all namespaces. Stateless.

    As in `RestClient`, a cluster-scoped kind ignores the namespace.
    """

    def __init__(self, indexer: Indexer[T], resource: Resource, namespace: str = "") -> None:
        self._indexer = indexer
        self._resource = resource
        self._namespace = namespace if resource.namespaced else ""

    def namespaced(self, namespace: str) -> Lister[T]:
        """Return a lister for one namespace. Raises ValueError if a namespaced kind gets none: it would list all namespaces."""
        if not namespace and self._resource.namespaced:
            raise ValueError(f"{self._resource} are namespaced: omit `namespaced` to list all namespaces")
        return Lister(self._indexer, self._resource, namespace)

    def list(self, selector: Selector | str = EVERYTHING) -> list[T]:
        """Return the objects whose labels match `selector`.

        Raises SelectorError for invalid text, TypeError for a label that the metadata of the objects does not declare.
        """
        parsed = parse_labels(selector) if isinstance(selector, str) else selector
        items: Iterable[T] = self._indexer.list()
        if self._namespace and self._indexer.has_index(NAMESPACE_INDEX):
            items = self._indexer.by_index(NAMESPACE_INDEX, self._namespace)
        elif self._namespace:
            items = (item for item in items if item.metadata.namespace == self._namespace)
        return [item for item in items if parsed.is_everything or parsed.matches(item.metadata.label_map())]

    def get(self, name: str) -> T:
        """Return the object with this name. Raises NotFoundError, like a GET.

        Raises ValueError for a name that no object has, such as a key, and for a namespaced kind if no namespace is set.
        """
        self._resource.check_object(self._namespace, name)
        item = self._indexer.get(object_key(self._namespace, name))
        if item is None:
            message, details = (
                f'{self._resource} "{name}" not found',
                StatusDetails(name=name, kind=self._resource.plural),
            )
            raise NotFoundError(Status(kind="Status", code=404, reason="NotFound", message=message, details=details))
        return item
