"""Label and field selectors: read from the text that the API server reads, and matched here as it matches them.

    Requirement, Requirement, ...     all must hold; none at all matches everything
    key = value    key == value    key != value       (labels and fields)
    key in (a, b)  key notin (a, b)  key  !key        (labels only)
    key > 1        key < 1                            (labels only)

`!=` and `notin` also hold where the key is absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tfjob_operator.informers.errors import SelectorError

Test = Callable[[Mapping[str, str]], bool]

_KEY: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE: Final = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_COMPARE = re.compile(rf"({_KEY})\s*(==|=|!=|>|<)\s*({_VALUE})")
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")


@dataclass(frozen=True, slots=True)
class Selector:
    """A parsed selector. `text` is what it was read from."""

    text: str
    tests: tuple[Test, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Whether it matches all there is, so that nobody need ask (ST-09)."""
        return not self.tests

    def matches(self, values: Mapping[str, str] | None) -> bool:
        """Whether an object with these labels (or fields) is selected; None is the same as empty."""
        present = values if values is not None else {}
        return all(test(present) for test in self.tests)


EVERYTHING: Final = Selector("")
NOTHING: Final = Selector("<nothing>", (lambda _: False,))
"""Selects nothing. No text says this, so it cannot be sent to a server."""


def parse_labels(text: str) -> Selector:
    """Read a label selector. Raises SelectorError."""
    return Selector(text, tuple(_label_test(part, text) for part in _split(text)))


def _split(text: str) -> list[str]:
    """Cut at the commas that are not inside parentheses."""
    if not text.strip():
        return []
    return [part.strip() for part in re.split(r",(?![^(]*\))", text)]


def _label_test(part: str, text: str) -> Test:
    if match := _EXISTS.fullmatch(part):
        negated, key = match.groups()
        return _existence(key, negated=bool(negated))
    if match := _COMPARE.fullmatch(part):
        key, operator, value = match.groups()
        if operator in {"<", ">"}:
            return _comparison(key, value, text, greater=operator == ">")
        return _equality(key, value, negated=operator == "!=")
    if match := _SET.fullmatch(part):
        key, operator, inside = match.groups()
        values = frozenset(value.strip() for value in inside.split(","))
        if all(re.fullmatch(_VALUE, value) for value in values):
            return _membership(key, values, negated=operator == "notin")
    raise SelectorError(f"cannot read {part!r} in label selector {text!r}")


def _existence(key: str, *, negated: bool) -> Test:
    return lambda values: (key in values) is not negated


def _equality(key: str, value: str, *, negated: bool) -> Test:
    return lambda values: (values.get(key) == value) is not negated


def _membership(key: str, wanted: frozenset[str], *, negated: bool) -> Test:
    return lambda values: (values.get(key) in wanted) is not negated


def _comparison(key: str, bound: str, text: str, *, greater: bool) -> Test:
    if not bound.isdecimal():
        raise SelectorError(f"{bound!r} in label selector {text!r} is no number")
    limit = int(bound)

    def test(values: Mapping[str, str]) -> bool:
        value = values.get(key, "")
        return value.isdecimal() and (int(value) > limit if greater else int(value) < limit)

    return test
