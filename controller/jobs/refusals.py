"""Children that the API server refuses, and which Warnings about them were recorded; if lost, they are recorded again."""

from __future__ import annotations

import re
import zlib
from typing import Final

from tfjob_operator.api.client.errors import ApiError, StatusError
from tfjob_operator.api.meta import OwnerReference
from tfjob_operator.workqueue import Clock

TOLD_FOR_S: Final = 3600.0
"""For how long a Warning with the same message is not repeated. Events live for an hour."""
MOST: Final = 50
"""How many Warnings of one job are remembered: beyond that the oldest is forgotten, and may be reported again."""


class Told:
    """The Warnings of each job, by its UID. If this memory is lost, they are recorded once more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[str, dict[int, float]] = {}

    def is_news(self, uid: str, message: str) -> bool:
        """Return whether this was not reported about a job lately, and remember that it is now."""
        now, digest = self._clock.monotonic(), zlib.crc32(message.encode(errors="replace"))
        told = self._told.setdefault(uid, {})
        if now - told.get(digest, -TOLD_FOR_S) < TOLD_FOR_S:
            return False
        told.pop(digest, None)
        told[digest] = now
        while len(told) > MOST:
            del told[next(iter(told))]
        return True

    def forget(self, uid: str) -> None:
        """Drop what is known of a job: it is gone."""
        self._told.pop(uid, None)


_DENIED: Final = re.compile(r"\bdenied (the )?request\b")


class RefusedError(ApiError):
    """The API server calls a child invalid. Only a changed specification can help."""


def is_denied(error: StatusError) -> bool:
    """Whether an admission webhook or policy refuses, whatever the code. They may change, so the specification is not wrong."""
    return _DENIED.search(error.status_message) is not None


def in_the_way(owner: OwnerReference | None) -> str:
    """Return who controls an object whose name a job needs, and what a person can do about it."""
    if owner is not None and owner.kind.lower() == "tfjob":
        return f"belongs to {owner.kind} {owner.name}, which needs it; recreate one of the two jobs under another name"
    holder = f"belongs to {owner.kind} {owner.name}" if owner is not None else "has no owner"
    return f"{holder}; delete it or recreate the job under another name"
