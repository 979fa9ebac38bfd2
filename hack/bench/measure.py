"""How things are compared on a machine whose speed drifts: side by side within one run, and by medians. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeVar

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
