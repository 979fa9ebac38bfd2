"""What is made of all that was found to be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from faults.matrix import say

MOST_TOLD: Final = 20


def conclude(found: Sequence[str], planted: str) -> None:
    """Print what was found, and fail if there is anything; with a planted bug, if there is nothing."""
    for line in found[:MOST_TOLD]:
        say(f"  {line}")
    if planted:
        assert found, f"{planted} was not found"
    elif found:
        pytest.fail("\n".join(found[:MOST_TOLD]), pytrace=False)
