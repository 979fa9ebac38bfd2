"""In which dialect a specification is written: told by its shape alone. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from tfjob_operator.api.decoding import is_deeper_than

_KEY: Final = "replicaspecs"
_QUOTED: Final = f'"{_KEY}"'.encode()
_LEVELS: Final = 100
"""Deeper ones are a mistake in every dialect, and no decoder has to follow them."""
_Keys = dict[str, msgspec.Raw]


def is_alpha(raw: bytes | msgspec.Raw) -> bool:
    """Return whether a specification has `replicaSpecs`, in any letter case."""
    return any(key.casefold() == _KEY for key in _keys_of(raw))


def _keys_of(raw: bytes | msgspec.Raw) -> Collection[str]:
    """Return the keys of a specification that has `replicaSpecs` somewhere; none where it has not, or cannot be read."""
    # Quick where the word does not occur at all, as in most jobs of v1.
    if _QUOTED not in bytes(raw).lower() or is_deeper_than(raw, _LEVELS):
        return ()
    try:
        return msgspec.json.decode(raw, type=_Keys).keys()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()
