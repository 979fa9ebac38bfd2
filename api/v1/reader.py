"""Collects the errors in a specification while it is read, and checks the types of its values. Pure.

Errors quote field names but never values, which may be secrets. Beyond a limit, errors are only counted, so a megabyte of
invalid fields costs little.

Types of values are declared as data:

    CUP = Fields({"size": WHOLE, "labels": MapOf(TEXT), "spoons": ListOf(Fields({"metal": TEXT}))})
    check(reader, cup, CUP, "spec.cup")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, TypeVar

from tfjob_operator.api.text import quoted
from tfjob_operator.api.v1.types import Mistake

E = TypeVar("E", bound=StrEnum)
LARGEST: Final = 2**63 - 1
"""The largest int64. A larger limit is treated as unlimited."""
MAX_REPORTED: Final = 20
"""How many errors, and how many warnings, are reported: more than a person corrects at once."""
UNKNOWN_FIELD: Final = "unknown field is ignored"
_MAX_BYTES: Final = 3600
"""The total size of all errors: the size of a message (`api.text.MAX_BYTES`) minus the text around them."""
_ALIKE: Final = 0.8
"""Minimum similarity between an unknown key and a known one to report a typo, such as `prots` for `ports`. Only 14 of the
356 known pod fields are this similar to another field of their object, so few fields that Kubernetes adds later will
be."""
_MAX_COMPARED: Final = 50
_LONGEST: Final = 50
"""The most keys that are compared with known ones, and the longest such key; a comparison takes about 100 us."""


@dataclass(frozen=True, slots=True)
class Path:
    """The path of a field: a key or list index below a parent path. It is formatted only when it is reported."""

    above: Path | str
    step: str | int

    def __str__(self) -> str:
        steps: list[str] = []
        here: Path | str = self
        while isinstance(here, Path):
            steps.append(f"[{here.step}]" if isinstance(here.step, int) else f".{quoted(here.step)}")
            here = here.above
        return here + "".join(reversed(steps))


class Reader:
    """Collects errors: the first `MAX_REPORTED`, and how many `more` there were. Every method returns a usable value."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []
        self.more = 0
        self._bytes = 0
        self._unknown: list[Mistake] = []
        self._more_unknown = 0
        self._compared = 0

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """One message for each of the first `MAX_REPORTED` unknown fields, and one with the number of the others."""
        rest = [f"and {self._more_unknown} more"] if self._more_unknown else []
        return (*map(str, self._unknown), *rest)

    def add_unknown(self) -> None:
        """Report unknown fields as errors too: a required field may seem missing only because it is misspelled."""
        for path, text in self._unknown:
            self.error(path, text)
        self.more += self._more_unknown

    def error(self, path: Path | str, message: str) -> None:
        """Report an error."""
        if len(self.mistakes) >= MAX_REPORTED or self._bytes > _MAX_BYTES:
            self.more += 1
            return
        mistake = Mistake(str(path), message)
        self.mistakes.append(mistake)
        self._bytes += len(str(mistake).encode(errors="replace"))

    def wrong_type(self, path: Path | str, wanted: str, value: object) -> None:
        """Report a value of the wrong type."""
        self.error(path, f"must be {wanted}, not {_kind_of(value)}")

    def unsupported(self, path: Path | str, supported: Iterable[str], hint: str = "") -> None:
        """Report a value or key that is not one of the supported ones."""
        names = ", ".join(f'"{each}"' for each in supported)
        self.error(path, f"Unsupported value: supported values: {names}{hint}")

    def unknown(
        self, path: Path | str, key: str, known: Collection[str], *, certain: bool, place: str | None = None
    ) -> None:
        """Report an unknown key.

        Kubernetes adds fields, so the list of known keys may be incomplete (`certain` is False). Then the key is reported only
        if it resembles a known one, or has another `place`.
        """
        like = "" if place else self.like(key, known)
        if not (like or certain or place):
            return
        if len(self._unknown) >= MAX_REPORTED:
            self._more_unknown += 1
            return
        hint = f"; did you mean {like}?" if like else f"; it belongs in {place}" if place else ""
        self._unknown.append(Mistake(str(Path(path, key)), f"{UNKNOWN_FIELD}{hint}"))

    def like(self, key: str, known: Collection[str]) -> str:
        """Return the known name that a key resembles, or ""."""
        if len(key) > _LONGEST or self._compared >= _MAX_COMPARED:
            return ""
        self._compared += 1
        from difflib import get_close_matches  # most operators never see a misspelled field

        lowered = {each.lower(): each for each in known if abs(len(each) - len(key)) <= 2}
        found = get_close_matches(key.lower(), lowered, n=1, cutoff=_ALIKE)
        return lowered[found[0]] if found else ""

    def known(
        self,
        fields: Mapping[str, object],
        known: Collection[str],
        path: Path | str,
        places: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Report the unknown fields of an object of the TFJob API. `places` has the objects to which fields belong."""
        for key in fields:
            if key not in known:
                self.unknown(path, key, known, certain=True, place=places.get(key))

    def mapping(self, value: object, path: Path | str) -> Mapping[str, object]:
        """Return an object; absent and null count as empty."""
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        self.wrong_type(path, "an object", value)
        return {}

    def integer(self, value: object, path: Path | str, default: int | None) -> int | None:
        """Return an integer between 0 and Go's largest int64; the default if absent or null."""
        if value is None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return min(value, LARGEST)
        self.wrong_type(path, "a non-negative integer", value)
        return default

    def boolean(self, value: object, path: Path | str) -> bool:
        """Return a boolean; False if absent or null."""
        if value is None:
            return False
        if isinstance(value, bool):
            return value
        self.wrong_type(path, "a boolean", value)
        return False

    def text(self, value: object, path: Path | str, default: str = "") -> str:
        """Return a string; the default if absent or null."""
        if value is None:
            return default
        if isinstance(value, str):
            return value
        self.wrong_type(path, "a string", value)
        return default

    def choice(self, value: object, path: Path | str, allowed: type[E]) -> E | None:
        """Return one of the allowed strings; None if absent, null, "" or invalid."""
        found = self.text(value, path)
        if not found:
            return None
        try:
            return allowed(found)
        except ValueError:
            self.unsupported(path, (each for each in allowed if each))
            return None


def is_whole(value: object) -> bool:
    """Return True if the value is an integer that fits Go's int64."""
    return isinstance(value, int) and not isinstance(value, bool) and -LARGEST - 1 <= value <= LARGEST


def join_names(names: Iterable[str], most: int = 5) -> str:
    """Return the first names as a list for a message."""
    shown = [quoted(name) or "(no name)" for name in names]
    rest = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + rest


def _kind_of(value: object) -> str:
    """Return the type of a value as text; the value itself may be a secret."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "a negative number" if value < 0 else "a number out of range" if not is_whole(value) else "a number"
    kinds = {str: "a string", float: "a decimal number", list: "a list", dict: "an object"}
    return kinds.get(type(value), "null")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A scalar type: its name, and a test for its values. Null is always accepted, since Go treats it as absent."""

    words: str
    takes: Callable[[object], bool]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of items of one type."""

    item: Kind


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map with arbitrary keys."""

    item: Leaf


@dataclass(frozen=True, slots=True)
class Fields:
    """An object with these fields, and possibly others that are not known here.

    `places` says where fields belong that are often written here, and that the API server drops without a word.
    """

    known: Mapping[str, Kind]
    places: Mapping[str, str] | None = None


Kind = Leaf | ListOf | MapOf | Fields
TEXT: Final = Leaf("a string", lambda value: isinstance(value, str))
FLAG: Final = Leaf("a boolean", lambda value: isinstance(value, bool))
WHOLE: Final = Leaf("an integer", is_whole)
NUMBER_OR_TEXT: Final = Leaf("an integer or a string", lambda value: isinstance(value, str) or is_whole(value))
QUANTITY: Final = Leaf(
    "a string or a number", lambda value: isinstance(value, (str, int, float)) and not isinstance(value, bool)
)
ANY: Final = Leaf("anything", lambda _: True)


def check(reader: Reader, value: object, kind: Kind, path: Path | str) -> None:
    """Report every value of the wrong type, and every key that looks misspelled."""
    match kind:
        case Leaf():
            if value is not None and not kind.takes(value):
                reader.wrong_type(path, kind.words, value)
        case ListOf():
            _check_list(reader, value, kind.item, path)
        case MapOf() | Fields():
            _check_object(reader, value, kind, path)


def applicable(reader: Reader, value: Any, kind: Kind) -> Any:
    """Return a value that `check` accepts without the fields that it reports as ignored, and with quantities as strings.

    Server-side apply rejects unknown fields, and old API servers also quantities that are numbers. `reader` compares names.
    """
    match kind:
        case ListOf() if isinstance(value, list):
            return [applicable(reader, each, kind.item) for each in value]
        case MapOf() if isinstance(value, dict):
            return {key: applicable(reader, each, kind.item) for key, each in value.items()}
        case Fields() if isinstance(value, dict):
            misplaced = kind.places or {}
            return {
                key: applicable(reader, each, kind.known.get(key, ANY))
                for key, each in value.items()
                if key in kind.known or not (key in misplaced or reader.like(key, kind.known))
            }
    return str(value) if kind is QUANTITY and value is not None else value


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
            reader.unknown(path, key, kind.known, certain=False, place=(kind.places or {}).get(key))
        elif isinstance(found, Leaf):
            if each is not None and not found.takes(each):
                reader.wrong_type(Path(path, key), found.words, each)
        elif found is not None and each is not None:
            check(reader, each, found, Path(path, key))
