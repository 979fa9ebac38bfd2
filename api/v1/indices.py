"""Sets of replica indices as text, such as `0,2-4`. Pure, and importable without msgspec."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby


def format_indices(indices: Iterable[int]) -> str:
    """Format a set of indices, with ranges for consecutive ones."""
    # Within a run of consecutive indices the difference between an index and its position is constant.
    runs = [
        [index for _, index in run]
        for _, run in groupby(enumerate(sorted(set(indices))), key=lambda pair: pair[1] - pair[0])
    ]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def parse_indices(text: str, below: int) -> set[int]:
    """Parse the output of `format_indices`; ignore indices of `below` or more, and any other text."""
    found: set[int] = set()
    if not text:
        return found
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first.isdecimal() and (not dash or last.isdecimal()):
            found.update(range(int(first), min(int(last or first) + 1, below)))
    return found
