"""Decodes JSON of any depth safely, and stores equal values once. Pure.

An API server accepts ten thousand nesting levels in a field without a schema. msgspec decodes recursively, and Python limits
recursion: to 1,000 levels in 3.11, 1,500 in 3.12 and 10,000 in 3.13; since 3.12 the limit cannot be raised. A single deep
object must stay readable, and so must the list that contains it.

The pods of a job share most of their values: the names of the job, the owner, the containers, and for running pods the whole
status. msgspec creates a new object for each value, and a pod has thirty strings. `SharedValues` keeps one object for equal
values, so that a cache of a hundred thousand pods stays small.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")


LEVELS: Final = 500
"""The levels that are kept of deeper JSON: half of Python 3.11's limit, which includes the callers."""
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_SEPARATOR: Final = re.compile(rb"\s*\S")


def decode(decoder: msgspec.json.Decoder[T], body: bytes | memoryview | msgspec.Raw) -> T:
    """Decode JSON of any depth. If it is too deep for Python, everything deeper than `LEVELS` is read as null."""
    try:
        return decoder.decode(body)
    except RecursionError:
        return decoder.decode(truncated_to_levels(bytes(body)))


def truncated_to_levels(body: bytes) -> bytes:
    """Return the JSON with null for everything deeper than `LEVELS`."""
    kept: list[bytes] = []
    start = depth = 0
    for token in _TOKEN.finditer(body):
        kind = body[token.start()]
        if kind in b"[{":
            depth += 1
            if depth == LEVELS + 1:
                kept.append(body[start : token.start()])
        elif kind in b"]}":
            depth -= 1
            if depth == LEVELS:
                kept.append(b"null")
                start = token.end()
    return b"".join(kept) + body[start:]


def after_first(body: bytes | memoryview) -> int:
    """Return the length of the first list or object of `body`, including the separator after it; 0 if nothing follows."""
    depth = 0
    for token in _TOKEN.finditer(body):
        kind = body[token.start()]
        depth += (kind in b"[{") - (kind in b"]}")
        if depth == 0:
            separator = _SEPARATOR.match(body, token.end())
            return separator.end() if separator is not None else 0
    return 0


def is_deeper_than(body: bytes | msgspec.Raw, levels: int) -> bool:
    """Return True if JSON nests deeper than `levels`. Almost free with at most `levels` opening brackets."""
    raw = bytes(body)
    if raw.count(b"[") + raw.count(b"{") <= levels:
        return False
    depth = 0
    for token in _TOKEN.finditer(raw):
        kind = raw[token.start()]
        if kind in b"[{":
            depth += 1
            if depth > levels:
                return True
        elif kind in b"]}":
            depth -= 1
    return False


MAX_VALUES: Final = 4096
"""The most cached values: two per job for the last one or two thousand jobs, and the values that all have in common. Older
ones rarely recur; a value that was dropped is stored once more."""
LARGEST: Final = 1024
"""The largest cached value, in bytes of JSON. The status of a running pod has 250. A user can create pods with values as
large as etcd accepts, and cached values outlive their pod."""
_encode: Final = msgspec.json.Encoder().encode


class SharedValues(dict[Hashable, Any]):
    """`shared[value]` is an equal value that was seen before, or else `value` itself.

    Values of different types must not be equal.

    Invariant: there are at most `most` values, each of at most LARGEST bytes. The cache is cleared when full, so values that do
    not recur do not fill it for good. It is a dict for speed: each pod needs ten lookups.
    """

    __slots__ = ("_most",)

    def __init__(self, most: int = MAX_VALUES) -> None:
        """Cache up to `most` values."""
        super().__init__()
        self._most = most

    def __missing__(self, value: Hashable) -> Any:
        """Return the value, and cache it if it is not too large."""
        if len(_encode(value)) > LARGEST:
            return value
        if len(self) >= self._most:
            self.clear()
        self[value] = value
        return value
