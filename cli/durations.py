"""Lengths of time as options of the command line."""

from __future__ import annotations

import re
from typing import Final

import click

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(_ctx: click.Context, _option: click.Parameter, given: str | None) -> float | None:
    """Return the seconds of a time as kubectl writes it, 90s, 5m, 1h30m, or in days. Raises BadParameter for anything else."""
    if given is None:
        return None
    parts = re.findall(r"(\d+)([smhd])", given, re.ASCII)
    if not parts or "".join(map("".join, parts)) != given:
        raise click.BadParameter(f"{given!r} is not like 90s, 5m or 1h30m")
    return float(sum(int(count) * _UNITS[unit] for count, unit in parts))
