"""Quantities of resources ("500m", "1.5Gi", 2): parsed to be added up, and formatted. Pure."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Final

# Digits are bounded: the API server takes no quantity beyond 2**63, and an exponent of a user's must not cost us memory.
_QUANTITY: Final = re.compile(
    r"\+?(\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE]([+-]?\d{1,2})|(m|u|n|k|[KMGTPE]i?))?", re.ASCII
)
_SUFFIXES: Final = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": Decimal(10**3)} | {
    f"{letter}{i}": Decimal(base**power)
    for power, letter in enumerate("KMGTPE", 1)
    for i, base in (("", 1000), ("i", 1024))
    if letter + i != "K"
}


def parse_quantity(value: object) -> Decimal | None:
    """Return the number that a quantity means, or None for what is no quantity: the API server will say so about the pod."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        return None
    digits, exponent, suffix = match.groups()
    if exponent is not None:
        return Decimal(digits).scaleb(int(exponent))
    if suffix is None:
        return Decimal(digits)
    return Decimal(digits) * _SUFFIXES[suffix] if suffix in _SUFFIXES else None


def format_quantity(number: Decimal) -> str:
    """Write a quantity: whole, or else in thousandths, rounded up so that it is never less than was asked for."""
    if number == number.to_integral_value():
        return f"{number.to_integral_value():f}"
    return f"{(number * 1000).to_integral_value(ROUND_CEILING):f}m"
