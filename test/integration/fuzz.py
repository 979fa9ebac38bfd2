"""Random TFJobs with the fields of the schema, in which some values have a wrong type."""

import math
from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st

from hack.crd_schema.schema import Schema
from integration.go_types import INT_OR_STRING, QUANTITY, SPEC, TIME, resolved, scalar

FIELDS_AT_ONCE: Final = 3
WRONG_IN: Final = 12
"""One value in this many is drawn regardless of its type. A job has some five values, so half of the jobs get through."""
NEXT_TO_WHOLE: Final = st.sampled_from([1.0000000001, 1000000.0001, 80.0000000001, -3.0000000002])
"""Fractions that older API servers take for whole numbers."""

_edges: Final = st.sampled_from(
    [sign * 2**power + off for power in (7, 31, 32, 53, 63, 64) for off in (-1, 0, 1) for sign in (-1, 1)]
)
_texts: Final = st.text(max_size=12) | st.sampled_from(
    ["", "\ud800", "\x00", "\u2028", "<&>", "null", "true", "1", "é" * 300]
)
_ODD_QUANTITIES: Final = [
    "100m",
    "1Gi",
    "0.5",
    "1e3",
    ".5",
    "1.",
    "",
    " 1",
    "1 ",
    "\n1",
    "1\u00a0",
    "1e19",
    "9" * 40,
    "1E",
]
_quantities: Final = st.one_of(
    st.from_regex(r"\A[+-]?[0-9]{0,3}(\.[0-9]{0,3})?([numkMGTPE]i?|[eE][+-]?[0-9]{0,4}(\.5)?)? ?\Z"),
    st.sampled_from([*_ODD_QUANTITIES, "1e9999999999"]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-5, 2**70),
)
_ODD_TIMES: Final = [
    *(
        "2020-01-01T00:00:00Z",
        "2020-02-30T00:00:00Z",
        "2020-01-01t00:00:00z",
        "2020-01-01T00:00:00",
        "2020-01-01",
        "now",
    ),
    *("2020-01-01T24:00:00Z", "2020-01-01T00:00:60Z", "2020-01-01T00:00:00+24:00", "2020-01-01T00:00:00.5+01:30"),
    *("2020-01-01T00:00:00,5Z", "0000-01-01T00:00:00Z", "2020-13-01T00:00:00Z"),
]
_RIGHT: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "string": _texts,
    "boolean": st.booleans(),
    "integerint32": st.integers(-(2**31), 2**31 - 1) | st.integers(0, 9).map(float),
    "integerint64": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9).map(float),
    QUANTITY: _quantities,
    INT_OR_STRING: st.integers(-(2**31), 2**31 - 1) | _texts,
    TIME: st.datetimes().map(lambda moment: moment.isoformat() + "Z") | st.sampled_from(_ODD_TIMES),
}


def _nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def _is_next_to_whole(value: float) -> bool:
    """Whether an API server before 1.36 takes a fraction for a whole number (IsFloat64AJSONInteger of go-openapi/swag)."""
    whole = math.trunc(value)
    return whole not in {value, 0} and abs(value - whole) / (abs(value) + abs(whole)) < 1e-9


def anything(*, fractions_too: bool) -> st.SearchStrategy[Any]:
    """Any JSON; `fractions_too` says whether fractions that are nearly whole numbers are included."""
    floats = st.floats(allow_nan=False, allow_infinity=False)
    floats = floats | NEXT_TO_WHOLE if fractions_too else floats.filter(lambda value: not _is_next_to_whole(value))
    scalars = st.none() | st.booleans() | st.integers(-3, 3) | _edges | floats
    leaves = scalars | _texts | st.integers(2, 200).map(_nested)
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_texts, inner, max_size=2), max_leaves=3
    )


class Jobs:
    """Draws specifications."""

    def __init__(self, *, fractions_too: bool) -> None:
        self._anything = anything(fractions_too=fractions_too)
        self._wrong = st.integers(1, WRONG_IN).map(lambda drawn: drawn == WRONG_IN)
        self._names = st.sampled_from(["Worker", "worker", "PS", "chief", "Args", "x"])

    def draw(self, draw: st.DrawFn, schema: Schema) -> Any:
        """A value of this schema, or now and then of any."""
        if draw(self._wrong):
            return draw(self._anything)
        schema = resolved(schema)
        if "items" in schema:
            return [self.draw(draw, schema["items"]) for _ in range(draw(st.integers(0, 2)))]
        if "additionalProperties" in schema:
            inner = schema["additionalProperties"]
            return {draw(self._names): self.draw(draw, inner) for _ in range(draw(st.integers(0, 2)))}
        if "properties" not in schema:
            return draw(_RIGHT.get(scalar(schema), self._anything))
        names = st.sampled_from(sorted(schema["properties"]))
        chosen = draw(st.lists(names, min_size=1, max_size=FIELDS_AT_ONCE, unique=True))
        found = {name: self.draw(draw, schema["properties"][name]) for name in chosen}
        if draw(self._wrong):  # a name that Go does not know: that of a field in another case, or a new one
            found[draw(st.sampled_from([chosen[0].upper(), chosen[0].title(), "newField"]))] = draw(self._anything)
        return found


def specifications(*, fractions_too: bool) -> st.SearchStrategy[Any]:
    jobs = Jobs(fractions_too=fractions_too)
    return st.composite(lambda draw: jobs.draw(draw, SPEC))()
