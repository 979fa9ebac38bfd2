"""Facts that operators before 0.2.1 wrote only as sentences. Remove it with the support of 0.2.0. Pure, without msgspec."""

from __future__ import annotations

import re
from typing import Final

_EXIT: Final = re.compile(r"exited with code (\d+)(?: \((\w+)\))?")


def exit_in(message: str) -> str:
    """Return the reason or code of the failure that the message of a final condition tells, "" if it tells none."""
    found = _EXIT.search(message)
    return (found[2] or f"ExitCode:{found[1]}") if found is not None else ""
