"""Types of JSON values, as data, and a function that checks a value against them. Pure.

CUP = Fields({"size": WHOLE, "labels": MapOf(TEXT), "spoons": ListOf(Fields({"metal": TEXT}))})
check(reader, cup, CUP, "spec.cup")
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1.reader import Path, is_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfjob_operator.api.v1.reader import Reader


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value without parts: its type in words, and a test for it. Null always passes: Go takes it for an absent value."""

    words: str
    takes: Callable[[object], bool]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list whose items have one type."""

    item: Kind


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object whose keys are the user's."""

    item: Leaf


@dataclass(frozen=True, slots=True)
class Fields:
    """An object with these fields, and perhaps others that we do not know."""

    known: Mapping[str, Kind]


Kind = Leaf | ListOf | MapOf | Fields

TEXT: Final = Leaf("a string", lambda value: isinstance(value, str))
FLAG: Final = Leaf("true or false", lambda value: isinstance(value, bool))
WHOLE: Final = Leaf("a whole number", is_whole)
NUMBER_OR_TEXT: Final = Leaf("a whole number or a string", lambda value: isinstance(value, str) or is_whole(value))
QUANTITY: Final = Leaf(
    "a string or a number", lambda value: isinstance(value, (str, int, float)) and not isinstance(value, bool)
)
ANY: Final = Leaf("anything", lambda _: True)


def check(reader: Reader, value: object, kind: Kind, path: Path | str) -> None:
    """Note every value that is not of its type, and every key that looks misspelt."""
    match kind:
        case Leaf():
            if value is not None and not kind.takes(value):
                reader.wrong_type(path, kind.words, value)
        case ListOf():
            _check_list(reader, value, kind.item, path)
        case MapOf() | Fields():
            _check_object(reader, value, kind, path)


def _check_list(reader: Reader, value: object, item: Kind, path: Path | str) -> None:
    if not isinstance(value, list):
        if value is not None:
            reader.wrong_type(path, "a list", value)
        return
    for index, each in enumerate(value):
        if isinstance(item, Leaf):
            if each is not None and not item.takes(each):
                reader.wrong_type(Path(path, index), item.words, each)
        elif isinstance(each, dict):
            check(reader, each, item, Path(path, index))
        else:
            reader.wrong_type(Path(path, index), "an object", each)


def _check_object(reader: Reader, value: object, kind: MapOf | Fields, path: Path | str) -> None:
    if not isinstance(value, dict):
        if value is not None:
            reader.wrong_type(path, "an object", value)
        return
    for key, each in value.items():
        found = kind.item if isinstance(kind, MapOf) else kind.known.get(key)
        if found is None and isinstance(kind, Fields):
            reader.unknown(path, key, kind.known, certain=False)
        elif isinstance(found, Leaf):
            if each is not None and not found.takes(each):
                reader.wrong_type(Path(path, key), found.words, each)
        elif found is not None and each is not None:
            check(reader, each, found, Path(path, key))
