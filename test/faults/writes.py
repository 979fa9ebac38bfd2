"""What a write is called, so that the same write is found again in another run, in whatever order the others come."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from hack.fault_proxy.proxy import Seen

EVENTS: Final = "events"


class Write(NamedTuple):
    """The nth write, counted from 1, of what is called so."""

    what: str
    nth: int

    def __str__(self) -> str:
        return f"{self.what}#{self.nth}"

    @classmethod
    def parse(cls, text: str) -> Write:
        what, _, nth = text.rpartition("#")
        return cls(what, int(nth))

    @property
    def kind(self) -> str:
        """Verb, resource and subresource, without the name."""
        verb, _, path = self.what.partition(" ")
        resource, *rest = path.split("/")
        return "/".join([f"{verb} {resource}", *rest[1:]])

    @property
    def rank(self) -> int:
        """How much may go wrong around it; less is worse.

        A delete destroys evidence, and a status is what an operator remembers by. Nothing follows from events.
        """
        if self.what.startswith("delete "):
            return 0
        if self.what.endswith("/status"):
            return 1
        return 3 if self.is_of_event else 2

    @property
    def is_of_event(self) -> bool:
        return self.kind.endswith(f" {EVENTS}")


class Nth:
    """Matches a write of the proxy when it comes, once."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._seen = 0

    def __call__(self, seen: Seen) -> bool:
        """Count a request; return whether it is the one."""
        if seen.number == 0 or name(seen) != self._write.what:
            return False
        self._seen += 1
        return self._seen == self._write.nth


def name(seen: Seen) -> str:
    """Return what a write is called: verb, resource, the name of the object or of an event its reason, subresource."""
    place = seen.place
    subject = place.name
    if seen.verb == "create" and not place.subresource:
        body = json.loads(seen.body)
        subject = body["reason"] if place.resource == EVENTS else body["metadata"]["name"]
    elif place.resource == EVENTS:
        subject = ""  # the end of it is random
    return "/".join(filter(None, (f"{seen.verb} {place.resource}", subject, place.subresource)))


def writes(history: Iterable[Seen]) -> Iterator[Write]:
    """Yield the writes among requests, in their order."""
    counted: Counter[str] = Counter()
    for seen in history:
        if seen.number:
            what = name(seen)
            counted[what] += 1
            yield Write(what, counted[what])
