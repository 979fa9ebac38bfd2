"""The definition of a matrix: how a write is identified in another run, its possible faults, and how to inject one."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from faults.operator_process import OperatorProcess
from faults.record import Record
from faults.user import LIMIT_S
from hack.fault_proxy.proxy import Proxy, Seen

IMPATIENT_S: Final = 200.0
"""Less than the expiry of expectations (`EXPIRY_S`): a job that waits for one makes no progress."""


EVENTS: Final = "events"


class Write(NamedTuple):
    """The nth write with this name, counted from 1."""

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
        """Return verb, resource and subresource, without the name."""
        verb, _, path = self.what.partition(" ")
        resource, *rest = path.split("/")
        return "/".join([f"{verb} {resource}", *rest[1:]])

    @property
    def rank(self) -> int:
        """Return the severity of faults at this write; lower is more severe.

        A delete destroys evidence, and a status is the operator's memory. Nothing depends on events.
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
    """Matches a write of the proxy once."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._seen = 0

    def __call__(self, seen: Seen) -> bool:
        if seen.number == 0 or name(seen) != self._write.what:
            return False
        self._seen += 1
        return self._seen == self._write.nth


def name(seen: Seen) -> str:
    """Return the name of a write: verb, resource, name of the object (for an event its reason), subresource."""
    place = seen.place
    subject = place.name
    if seen.verb == "create" and not place.subresource:
        body = json.loads(seen.body)
        subject = body["reason"] if place.resource == EVENTS else body["metadata"]["name"]
    elif place.resource == EVENTS:
        subject = ""  # its suffix is random
    return "/".join(filter(None, (f"{seen.verb} {place.resource}", subject, place.subresource)))


def writes(history: Iterable[Seen]) -> Iterator[Write]:
    counted: Counter[str] = Counter()
    for seen in history:
        if seen.number:
            what = name(seen)
            counted[what] += 1
            yield Write(what, counted[what])


@dataclass(frozen=True)
class Case:
    """A fault at this write, or a run without fault."""

    workload: str
    write: Write | None = None
    fault: str = ""

    def __str__(self) -> str:
        return f"{self.workload}:{self.write or ''}:{self.fault}"

    @classmethod
    def parse(cls, text: str) -> Case:
        workload, write, fault = text.split(":")
        return cls(workload, Write.parse(write), fault)


@dataclass(frozen=True)
class Play:
    """A running case: an operator in a namespace, behind a proxy. The user acts while `calm` is set."""

    case: Case
    proxy: Proxy
    operator: OperatorProcess
    namespace: str
    calm: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Set `calm` initially."""
        self.calm.set()


async def nothing() -> None:
    """The fault ends with its write."""


@dataclass(frozen=True)
class Scheme:
    """The faults of a matrix, most severe first.

    `arrange` prepares the fault of a case before the operator starts, and cleans up. It yields a function that waits for the
    end of the fault, which may be later than its write. `lanes`: the number of concurrent cases.

    `applies` selects the cases. `right_for` adapts the expected result, from those without a fault and with it, if the fault
    changes it. `patience_s`: how long a user waits at most. `clocks` returns by how many seconds the clock of each
    operator process of a case is ahead.
    """

    faults: tuple[str, ...]
    arrange: Callable[[Play], AbstractAsyncContextManager[Callable[[], Awaitable[None]]]]
    lanes: int
    applies: Callable[[Case], bool] = lambda _: True
    right_for: Callable[[Case, Record, Record], Record] = lambda _case, right, _found: right
    patience_s: float = LIMIT_S
    clocks: Callable[[Case], Iterable[float]] = lambda _: ()
