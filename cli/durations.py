"""Durations in kubectl's format. Pure."""

from __future__ import annotations

import re
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_YEAR: Final = 365 * _DAY
_UNITS: Final = {"s": 1, "m": _MINUTE, "h": _HOUR, "d": _DAY}
_STEPS: Final = (
    (2 * _MINUTE, (1, "s"), None),
    (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
    (_HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (2 * _DAY, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
)
"""The limits below which units are printed: as in `HumanDuration` of k8s.io/apimachinery, but with hours from the first on."""


def duration(seconds: float) -> str:
    """Format a duration like kubectl's ages: `24s`, `5m10s`, `2h13m`; 0s if negative."""
    left = max(int(seconds), 0)
    for limit, (size, unit), then in _STEPS:
        if left < limit:
            rest = left % size // then[0] if then is not None else 0
            return f"{left // size}{unit}" + (f"{rest}{then[1]}" if then is not None and rest else "")
    return f"{left // _YEAR}y"


def seconds_of(text: str) -> float | None:
    """Return the seconds of a duration in Go's format (0, 90s, 5m, 1h30m), or in days; None if it is invalid."""
    if text == "0":
        return 0.0
    parts = re.findall(r"(\d+)([smhd])", text, re.ASCII)
    if not parts or "".join(map("".join, parts)) != text:
        return None
    return float(sum(int(count) * _UNITS[unit] for count, unit in parts))
