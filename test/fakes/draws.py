"""Choices for property tests, drawn at once, since each draw of hypothesis takes a fifth of a millisecond."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

_EVENLY_DRAWN: Final = 2**24
"""Of a wider range of integers hypothesis draws small ones more often."""


def one_of_each(*choices: Sequence[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """One element of each sequence, as many independent draws would give, in a single one.

    It shrinks to the first element of each. Raises ValueError for so many combinations that hypothesis would favour the first.
    """
    combinations = math.prod(map(len, choices))
    if combinations > _EVENLY_DRAWN:
        raise ValueError(f"{combinations} combinations are too many for one draw")

    def picked(number: int) -> tuple[Any, ...]:
        found = []
        for each in choices:
            number, place = divmod(number, len(each))
            found.append(each[place])
        return tuple(found)

    return st.integers(0, combinations - 1).map(picked)
