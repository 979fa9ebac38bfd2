"""What a matrix is about: which faults there are at a write, and how one is brought about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final

from faults.operator_process import OperatorProcess
from faults.record import Record
from faults.user import LIMIT_S
from faults.writes import Write
from hack.fault_proxy.proxy import Proxy

IMPATIENT_S: Final = 200.0
"""Less than the time after which an expectation is given up (`EXPIRY_S`): a job that waits for that stands still."""


@dataclass(frozen=True)
class Case:
    """A fault at this write; none without one."""

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
    """A case on its way: an operator in a namespace, and the proxy behind which it is. The user acts while it is `calm`."""

    case: Case
    proxy: Proxy
    operator: OperatorProcess
    namespace: str
    calm: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """It is calm at first."""
        self.calm.set()


async def nothing() -> None:
    """The fault is over with its write."""


def _any(_: Case) -> bool:
    return True


def _the_same(_case: Case, right: Record, _found: Record) -> Record:
    return right


@dataclass(frozen=True)
class Scheme:
    """The faults of a matrix, those first in which most may go wrong.

    `arrange` makes ready for the fault of a case, before the operator starts, and clears up after it. What it gives waits until
    the fault is over, where it takes longer than its write. `lanes` is how many cases are played beside each other.

    `applies` says which cases there are. `right_for` makes the right end of a case out of that without a fault and the one that
    was found, where a fault changes it. A user waits for `patience_s` seconds at most.
    """

    faults: tuple[str, ...]
    arrange: Callable[[Play], AbstractAsyncContextManager[Callable[[], Awaitable[None]]]]
    lanes: int
    applies: Callable[[Case], bool] = _any
    right_for: Callable[[Case, Record, Record], Record] = _the_same
    patience_s: float = LIMIT_S
