"""Equal values, stored once: what keeps a cache of a hundred thousand pods small.

What the pods of a job have in common comes with each of them: the names of the job, the owner, the containers, and of pods that
run also the whole status. msgspec makes a new object of each, and a pod has thirty strings.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import msgspec

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
