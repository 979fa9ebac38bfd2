"""The state of a job, as all displays and the operator's gauge show it. Pure, and importable without msgspec."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

NEW: Final = "New"
"""The state of a job without conditions: no operator has written its status."""
ENDING: Final = "Ending"
"""The state of a job whose end is decided but not written yet. It is not a condition: old clients read the last one."""
CONDITIONS: Final = ("Created", "Running", "Restarting", "Suspended", "Succeeded", "Failed")
"""The types of conditions that are states. Held is none, nor are conditions of other programs."""
ENDS: Final = frozenset({"Succeeded", "Failed"})


def state_of(conditions: Iterable[tuple[str, str]], *, is_ending: bool) -> str:
    """Return the state of a job: Ending, or its last condition that is True; Created if none is; New without conditions.

    `conditions` are pairs of type and status in the order of the status.
    """
    if is_ending:
        return ENDING
    state = NEW
    for kind, status in conditions:
        if status == "True" and kind in CONDITIONS:
            state = kind
        elif state == NEW:
            state = CONDITIONS[0]
    return state
