"""JSON of any depth decoded safely, and equal values stored once. Pure.

An API server takes ten thousand levels in a field that a CRD leaves open. msgspec decodes by recursion, which Python bounds: at
1,000 levels in 3.11, at 1,500 in 3.12, at 10,000 in 3.13, and from 3.12 on nobody can raise that. One such object must make
neither itself nor the list that it comes in unreadable.

The pods of a job share most of their values: the names of the job, the owner, the containers, and for running pods the whole
status. msgspec makes a new object of each, and a pod has thirty strings. `SharedValues` keeps one of each, so that a cache of a
hundred thousand pods stays small.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")


LEVELS: Final = 500
"""What is kept of deeper ones. Half of what Python 3.11 has, which counts the callers too."""
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_SEPARATOR: Final = re.compile(rb"\s*\S")


def decode(decoder: msgspec.json.Decoder[T], body: bytes | memoryview | msgspec.Raw) -> T:
    """Decode JSON of any depth; what lies deeper than `LEVELS`, where that is too deep for Python, is read as null."""
    try:
        return decoder.decode(body)
    except RecursionError:
        return decoder.decode(levelled(bytes(body)))


def levelled(body: bytes) -> bytes:
    """Return the same JSON, with null for everything that lies deeper than `LEVELS`."""
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
    """Return how many bytes the first list or object of `body` and the separator after it have; 0 if nothing follows."""
    depth = 0
    for token in _TOKEN.finditer(body):
        kind = body[token.start()]
        depth += (kind in b"[{") - (kind in b"]}")
        if depth == 0:
            separator = _SEPARATOR.match(body, token.end())
            return separator.end() if separator is not None else 0
    return 0


def is_deeper_than(body: bytes | msgspec.Raw, levels: int) -> bool:
    """Return whether JSON nests deeper than that. Costs next to nothing where it has fewer brackets."""
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


MOST: Final = 4096
"""Values that are remembered: two for each of the last thousand jobs or two, and what all have in common. Older ones would
hardly come again; what was forgotten is stored once more."""
LARGEST: Final = 1024
"""Bytes, as JSON, of a value that is remembered. The status of a pod that runs has 250. Whoever may create pods can make others
as large as etcd takes them, one after the other, and what is remembered outlives the pod."""
_encode: Final = msgspec.json.Encoder().encode


class SharedValues(dict[Hashable, Any]):
    """`shared[value]` is an equal value that was seen before, or else this one. Values of different types must not be equal.

    Invariant: there are at most `most` of them, each of at most LARGEST bytes. When it is full it forgets all, so that what
    never comes again costs nothing. A dict, since it is asked ten times for each pod.
    """

    __slots__ = ("_most",)

    def __init__(self, most: int = MOST) -> None:
        """Remember at most so many values."""
        super().__init__()
        self._most = most

    def __missing__(self, value: Hashable) -> Any:
        """Return a value, and remember it if it is not too large."""
        if len(_encode(value)) > LARGEST:
            return value
        if len(self) >= self._most:
            self.clear()
        self[value] = value
        return value
