"""The state of a job, as all displays and the operator's gauge show it. Pure, and importable without msgspec."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

NEW: Final = "New"
"""The state of a job without conditions: no operator has written its status."""
ENDING: Final = "Ending"
"""The state of a job whose end is decided but not written yet. It is not a condition: old clients read the last one."""
CONDITIONS: Final = ("Created", "Running", "Restarting", "Suspended", "Succeeded", "Failed")
"""The types of conditions that are states. Held and Stalled are none, nor are conditions of other programs."""
ENDS: Final = frozenset({"Succeeded", "Failed"})
_OVER_PHASES: Final = frozenset({"Done", "CleanUp", "Failed"})
"""The phases of alpha jobs that have ended."""


LIMIT_WORDS: Final = {
    "BackoffLimitExceeded": "it has reached the specified backoff limit",
    "DeadlineExceeded": "it was active longer than specified deadline",
    "MaxRestartsExceeded": "it was restarted as often as maxRestarts allows",
    "StartDeadlineExceeded": "not all of its replicas ran within the start deadline",
}
"""The end of the message `Job NAME has failed because ...` for each limit; the first two are the Go operators'."""


def limit_in(message: str) -> str:
    """Return the limit that the message of a Failed condition names, "" for any other failure."""
    words = message.partition(" has failed because ")[2].partition(". ")[0]
    return next((limit for limit, each in LIMIT_WORDS.items() if words == each), "")


def state_of(conditions: Iterable[tuple[str, str]], *, is_ending: bool, phase: str = "", outcome: str = "") -> str:
    """Return the state of a job: Ending, or its last condition that is True; Created if none is; New without conditions.

    `conditions` are pairs of type and status in the order of the status. A job of the alpha dialect without conditions, which
    operators of 2018 wrote, has its `phase`, or its `outcome` (`status.state`) once it is over.
    """
    if is_ending:
        return ENDING
    state = (outcome if phase in _OVER_PHASES and outcome in ENDS else phase) or NEW
    start = state
    for kind, status in conditions:
        if status == "True" and kind in CONDITIONS:
            state = kind
        elif state == start:
            state = CONDITIONS[0]
    return state
