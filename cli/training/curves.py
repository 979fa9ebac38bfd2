"""Curves of the points of one log, in bounded memory. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfjob_operator.cli.training.values import Point

MOST_POINTS: Final = 1000
"""How many points one curve has: a screen has no columns for more. They take 100 KB of memory."""
MOST_NAMES: Final = 40
"""How many curves one log has: any others are left out."""


class Curves:
    """The points of one log by name, in the order of their steps.

    A training that goes on from a checkpoint repeats steps: a new point removes the old ones from its step on.
    A curve of too many points keeps every second one, then every fourth, and so on, and always the last.
    """

    def __init__(self, most_points: int = MOST_POINTS, most_names: int = MOST_NAMES) -> None:
        """Keep at most so many points of a curve (2 at least), and so many curves."""
        self._most_points = max(most_points, 2)
        self._most_names = most_names
        self._curves: dict[str, _Curve] = {}

    def add(self, points: Iterable[Point]) -> None:
        """Add points in the order in which they were read."""
        for point in points:
            curve = self._curves.get(point.name)
            if curve is None:
                if len(self._curves) >= self._most_names:
                    continue
                curve = self._curves[point.name] = _Curve(self._most_points)
            curve.add(point)

    @property
    def by_name(self) -> Mapping[str, Sequence[Point]]:
        """The curves, in the order of their first points."""
        return {name: curve.points() for name, curve in self._curves.items()}


class _Curve:
    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[Point] = []
        self._every = 1
        self._count = 0
        self._last: Point | None = None

    def add(self, point: Point) -> None:
        while self._kept and self._kept[-1].step >= point.step:
            self._kept.pop()
            self._count = len(self._kept) * self._every
        self._last = point
        if self._count % self._every == 0:
            self._kept.append(point)
        self._count += 1
        if len(self._kept) >= self._most:
            del self._kept[1::2]
            self._every *= 2

    def points(self) -> list[Point]:
        last = self._last
        return self._kept if last is None or self._kept[-1] is last else [*self._kept, last]
