"""Names and namespaces of events (EV-02)."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.core import EventMeta

if TYPE_CHECKING:
    from tfjob_operator.api.core import ObjectReference

MAX_NAME: Final = 253
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""What the API server accepts as the name of an event (RFC 1123 subdomain)."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class EventNames:
    """Names events after their objects and the time in nanoseconds, made unique however coarse the clock is."""

    def __init__(self) -> None:
        self._last_nanoseconds = 0

    def name(self, regarding: ObjectReference, now: datetime) -> EventMeta:
        """Return a name for an event about `regarding`, and its namespace: `default` for objects that have none."""
        nanoseconds = (now - _EPOCH) // timedelta(microseconds=1) * 1000
        self._last_nanoseconds = max(nanoseconds, self._last_nanoseconds + 1)
        name = f"{regarding.name}.{self._last_nanoseconds:x}"
        if len(name) > MAX_NAME or not _SUBDOMAIN.fullmatch(name):
            name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{regarding.uid} {name}"))
        return EventMeta(name=name, namespace=regarding.namespace or "default")

    @staticmethod
    def of_fact(regarding: ObjectReference, fact: str) -> EventMeta:
        """Return the name of the one event about `regarding` that states this fact: the same in every process."""
        digest = uuid.uuid5(uuid.NAMESPACE_OID, f"{regarding.uid} {fact}")
        name = f"{regarding.name}.{digest.hex[:16]}"
        if len(name) > MAX_NAME or not _SUBDOMAIN.fullmatch(name):
            name = str(digest)
        return EventMeta(name=name, namespace=regarding.namespace or "default")
