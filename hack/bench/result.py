"""What a measurement says: a name, a value and its unit, and the goal that it is held against. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypedDict, TypeVar

# How things are compared on a machine whose speed drifts: side by side within one run, and by medians. Pure.


R = TypeVar("R")


def interleaved(sides: Mapping[str, Callable[[], R]], rounds: int) -> dict[str, list[R]]:
    """Measure every side once a round, so that a slow moment of the machine hits all of them.

    Every other round goes backwards (A B B A ...), so that what one side leaves behind does not always affect the same side.
    """
    measured: dict[str, list[R]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides) if number % 2 == 0 else reversed(list(sides)):
            measured[name].append(sides[name]())
    return measured


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Return the median of the ratios within the rounds; during one round the machine is about equally fast for both.

    Raises ValueError when the two were not measured together.
    """
    if len(above) != len(below) or not above:
        raise ValueError(f"{len(above)} measurements against {len(below)}")
    return median(a / b for a, b in zip(above, below, strict=True))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that `share` of them do not exceed (0.5: the median's neighbour, 0.99: all but a hundredth)."""
    if not values or not 0 < share <= 1:
        raise ValueError(f"no {share} percentile of {len(values)} values")
    return sorted(values)[math.ceil(share * len(values)) - 1]


HEADER = ("name", "value", "unit", "goal", "met", "before")
"""`before` is the value of the last run that is on file; absolute times drift up to twofold on a shared machine."""


class Entry(TypedDict):
    """A result as it stands in the JSON file; `goal` and `met` are null where there is no goal."""

    name: str
    value: float
    unit: str
    goal: float | None
    met: bool | None


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound that a value must keep, from below or from above."""

    bound: float
    from_above: bool = False

    def is_met_by(self, value: float) -> bool:
        """Whether `value` is good enough; the bound itself is."""
        return value <= self.bound if self.from_above else value >= self.bound

    def __str__(self) -> str:
        return f"{'<=' if self.from_above else '>='} {shown(self.bound)}"


def at_least(bound: float) -> Goal:
    """More is better."""
    return Goal(bound)


def at_most(bound: float) -> Goal:
    """Less is better."""
    return Goal(bound, from_above=True)


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table."""

    name: str
    value: float
    unit: str
    goal: Goal | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none."""
        return None if self.goal is None else self.goal.is_met_by(self.value)

    def entry(self) -> Entry:
        """Return the result as it goes into the file, rounded to what a measurement can mean."""
        return {
            "name": self.name,
            "value": float(f"{self.value:.6g}"),
            "unit": self.unit,
            "goal": None if self.goal is None else float(f"{self.goal.bound:.6g}"),
            "met": self.met,
        }


def shown(value: float) -> str:
    """Return a number for people: three significant digits, or all before the decimal point if these are more."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(results: Sequence[Result], before: Mapping[str, float]) -> str:
    """Return the results in columns, beside what was measured `before`."""
    rows = [HEADER]
    for result in results:
        met = {None: "", True: "yes", False: "NO"}[result.met]
        old = shown(before[result.name]) if result.name in before else ""
        goal = "" if result.goal is None else str(result.goal)
        rows.append((result.name, shown(result.value), result.unit, goal, met, old))
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    numbers = {1, 5}  # aligned to the right, so that their sizes can be seen
    lines = [
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def merged(kept: Sequence[Entry], new: Sequence[Entry]) -> list[Entry]:
    """Return the entries on file with those of a partial run in their places; what is new comes last."""
    fresh = {entry["name"]: entry for entry in new}
    replaced = [fresh.pop(entry["name"], entry) for entry in kept]
    return replaced + list(fresh.values())
