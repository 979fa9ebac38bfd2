"""What a matrix is about: which faults there are at a write, and how one is brought about."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from faults.writes import Write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from faults.operator_process import OperatorProcess
    from hack.fault_proxy.proxy import Proxy


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
        """Read what `str` gives."""
        workload, write, fault = text.split(":")
        return cls(workload, Write.parse(write), fault)


@dataclass(frozen=True)
class Play:
    """A case on its way: an operator, and the proxy behind which it is."""

    case: Case
    proxy: Proxy
    operator: OperatorProcess


@dataclass(frozen=True)
class Scheme:
    """The faults of a matrix, those first in which most may go wrong.

    `arrange` makes ready for the fault of a case, before the operator starts, and clears up after it. What it gives waits until
    the fault is over, where it takes longer than its write. `lanes` is how many cases are played beside each other.
    """

    faults: tuple[str, ...]
    arrange: Callable[[Play], AbstractAsyncContextManager[Callable[[], Awaitable[None]]]]
    lanes: int
