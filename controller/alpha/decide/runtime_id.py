"""RuntimeIds: the part of the names of children that tells jobs apart. Pure."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_LENGTH: Final = 4
_MOST: Final = 1_000
"""How many ids are derived for one job before the first one comes again: a namespace never has so many of them taken."""


def derived(uid: str, attempt: int = 0) -> str:
    """Return the four characters that a job of this UID tries as its RuntimeId, the first time or a later one."""
    number = int.from_bytes(sha256(f"{uid} {attempt}".encode()).digest()[:8], "big")
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)


def following(uid: str, taken: str) -> str:
    """Return the RuntimeId to try after this one, whose names other objects have."""
    ids = _distinct(uid)
    if any(each == taken for each in ids):  # what is left of them are those that come after it
        return next(ids, derived(uid))
    return derived(uid)


def _distinct(uid: str) -> Iterator[str]:
    """Yield the RuntimeIds of a job, each of them once: an id that came twice would lead back to the one after it."""
    seen: set[str] = set()
    for attempt in range(_MOST):
        found = derived(uid, attempt)
        if found not in seen:
            seen.add(found)
            yield found
