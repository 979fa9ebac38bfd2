"""Sets of replica indices, and their written form "0,2-4": short also for a job of a thousand workers. Pure."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def format_indices(indices: Iterable[int]) -> str:
    """Write a set of indices, with ranges for neighbours."""
    # Within a run of neighbours the difference between an index and its place in the sorted order is the same.
    runs = [
        [index for _, index in run]
        for _, run in groupby(enumerate(sorted(set(indices))), key=lambda pair: pair[1] - pair[0])
    ]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def parse_indices(text: str, below: int) -> set[int]:
    """Read what `format_indices` wrote, as far as it is less than `below`. Anything else in it is ignored."""
    found: set[int] = set()
    if not text:
        return found
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first.isdecimal() and (not dash or last.isdecimal()):
            found.update(range(int(first), min(int(last or first) + 1, below)))
    return found
