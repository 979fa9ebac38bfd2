"""Collects what is wrong with a specification while it is read, within bounds, and checks values against types. Pure.

Names of fields are quoted, values never are: they may be secrets. Of mistakes beyond the bounds only the number is kept, so a
specification of a megabyte that is wrong everywhere costs no more than the walk through it.

Types of JSON values are data:

    CUP = Fields({"size": WHOLE, "labels": MapOf(TEXT), "spoons": ListOf(Fields({"metal": TEXT}))})
    check(reader, cup, CUP, "spec.cup")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from tfjob_operator.api.text import quoted
from tfjob_operator.api.v1.types import Mistake

E = TypeVar("E", bound=StrEnum)
LARGEST: Final = 2**63 - 1
"""The largest int64. A larger limit means: for ever."""
MOST: Final = 20
"""How many mistakes, and how many warnings, are reported: more than a person corrects in one go."""
_MOST_BYTES: Final = 3600
"""Of all mistakes together: what a message may have (`api.text.MAX_BYTES`) less what stands around them."""
_ALIKE: Final = 0.8
"""How alike a key must be to a known one to be called misspelt: as `prots` to `ports`. Of the 356 fields of a pod
that are known here 14 are that alike to another one of their object, so few of those that Kubernetes adds will be."""
_MOST_COMPARED: Final = 50
_LONGEST: Final = 50
"""Keys that are compared with known ones, and their characters: a comparison takes some 100 us."""


@dataclass(frozen=True, slots=True)
class Path:
    """The path of a field, formatted only when it is reported: a key, or an index of a list, below another path."""

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
    """Collects mistakes, the first `MOST` and how many `more`. Every method returns a usable value."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []
        self.more = 0
        self._bytes = 0
        self._unknown: list[str] = []
        self._more_unknown = 0
        self._compared = 0

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """A sentence for each of the first `MOST` unknown fields, and how many more there are."""
        rest = [f"and {self._more_unknown} more"] if self._more_unknown else []
        return (*self._unknown, *rest)

    def add_unknown(self) -> None:
        """Note unknown fields as mistakes too: a field that is missing is perhaps one of them, misspelled."""
        for path, _, text in (each.partition(": ") for each in self._unknown):
            self.error(path, text)
        self.more += self._more_unknown

    def error(self, path: Path | str, message: str) -> None:
        """Note a mistake."""
        if len(self.mistakes) >= MOST or self._bytes > _MOST_BYTES:
            self.more += 1
            return
        mistake = Mistake(str(path), message)
        self.mistakes.append(mistake)
        self._bytes += len(str(mistake).encode(errors="replace"))

    def wrong_type(self, path: Path | str, wanted: str, value: object) -> None:
        """Note that a value is not what it must be."""
        self.error(path, f"must be {wanted}, not {_kind_of(value)}")

    def unsupported(self, path: Path | str, supported: Iterable[str], hint: str = "") -> None:
        """Note that a value, or a key, is none of the supported ones."""
        names = ", ".join(f'"{each}"' for each in supported)
        self.error(path, f"Unsupported value: supported values: {names}{hint}")

    def unknown(self, path: Path | str, key: str, known: Collection[str], *, certain: bool) -> None:
        """Note a key that is none of the known ones.

        If it is not `certain` that the known ones are all there are, it is noted only if it resembles one of them:
        Kubernetes adds fields.
        """
        like = self.like(key, known)
        if not (like or certain):
            return
        if len(self._unknown) >= MOST:
            self._more_unknown += 1
            return
        hint = f"; did you mean {like}?" if like else ""
        self._unknown.append(f"{Path(path, key)}: unknown field is ignored{hint}")

    def like(self, key: str, known: Collection[str]) -> str:
        """Return the known name that a key resembles, "" if there is none."""
        if len(key) > _LONGEST or self._compared >= _MOST_COMPARED:
            return ""
        self._compared += 1
        from difflib import get_close_matches  # most operators never see a misspelt field

        lowered = {each.lower(): each for each in known if abs(len(each) - len(key)) <= 2}
        found = get_close_matches(key.lower(), lowered, n=1, cutoff=_ALIKE)
        return lowered[found[0]] if found else ""

    def known(self, given: Mapping[str, object], known: Collection[str], path: Path | str) -> None:
        """Note the unknown fields of an object of ours."""
        for key in given:
            if key not in known:
                self.unknown(path, key, known, certain=True)

    def mapping(self, value: object, path: Path | str) -> Mapping[str, object]:
        """Return an object; absent and null count as empty."""
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        self.wrong_type(path, "an object", value)
        return {}

    def integer(self, value: object, path: Path | str, default: int | None) -> int | None:
        """Return a whole number of at least 0, at most Go's largest; absent and null give the default."""
        if value is None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return min(value, LARGEST)
        self.wrong_type(path, "a non-negative integer", value)
        return default

    def boolean(self, value: object, path: Path | str) -> bool:
        """Return a boolean; absent and null are False."""
        if value is None:
            return False
        if isinstance(value, bool):
            return value
        self.wrong_type(path, "a boolean", value)
        return False

    def text(self, value: object, path: Path | str, default: str = "") -> str:
        """Return a string; absent and null give the default."""
        if value is None:
            return default
        if isinstance(value, str):
            return value
        self.wrong_type(path, "a string", value)
        return default

    def choice(self, value: object, path: Path | str, allowed: type[E]) -> E | None:
        """Return one of the allowed strings; None for what is absent, null, "" or a mistake."""
        found = self.text(value, path)
        if not found:
            return None
        try:
            return allowed(found)
        except ValueError:
            self.unsupported(path, (each for each in allowed if each))
            return None


def is_whole(value: object) -> bool:
    """Whether a value is a whole number that Go's int64 holds."""
    return isinstance(value, int) and not isinstance(value, bool) and -LARGEST - 1 <= value <= LARGEST


def some(names: Iterable[str], most: int = 5) -> str:
    """Return the first of the names, for a message."""
    told = [quoted(each) or "(no name)" for each in names]
    rest = f" and {len(told) - most} more" if len(told) > most else ""
    return ", ".join(told[:most]) + rest


def _kind_of(value: object) -> str:
    """Return the type of a value in words; the value itself may be a secret."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "a negative number" if value < 0 else "a number out of range" if not is_whole(value) else "a number"
    kinds = {str: "a string", float: "a decimal number", list: "a list", dict: "an object"}
    return kinds.get(type(value), "null")


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
FLAG: Final = Leaf("a boolean", lambda value: isinstance(value, bool))
WHOLE: Final = Leaf("an integer", is_whole)
NUMBER_OR_TEXT: Final = Leaf("an integer or a string", lambda value: isinstance(value, str) or is_whole(value))
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
