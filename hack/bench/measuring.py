"""Compare on a machine of varying speed: alternate the sides within a run, in separate processes, and take medians."""

import contextlib
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple, TypeVar

from hack.bench.field import Field

R = TypeVar("R")
LIMIT_S: Final = 300.0  # the slowest subject, the official informer, takes 10s, or 100s on a machine under heavy load
BEGAN: Final = time.monotonic()
Numbers = dict[str, float]


class Result(NamedTuple):
    """One line of the table. A goal has the form `<= 1.4`, or is empty."""

    name: str
    value: float
    unit: str
    goal: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; a value equal to the limit meets it. None without a goal."""
        if not self.goal:
            return None
        sign, bound = self.goal.split()
        return self.value <= float(bound) if sign == "<=" else self.value >= float(bound)

    def __str__(self) -> str:
        value = f"{self.value:,.0f}" if abs(self.value) >= 100 else f"{self.value:.3g}"
        met = {None: "", True: "yes", False: "NO"}[self.met]
        return f"{self.name:44}{value:>12}  {self.unit:28}{self.goal:12}{met}".rstrip()


class Bench(contextlib.ExitStack):
    """One run. Use as a context manager."""

    @staticmethod
    def say(text: str) -> None:
        """Print a line with the seconds since the run began."""
        print(f"{time.monotonic() - BEGAN:6.1f}s  {text}", flush=True)

    @cached_property
    def field(self) -> Field:
        """The control plane of all subjects that do not need their own."""
        self.say("starting etcd and kube-apiserver")
        return self.enter_context(Field(["bench"]))

    @cached_property
    def scratch(self) -> Path:
        """A folder for temporary files."""
        return Path(self.enter_context(tempfile.TemporaryDirectory(prefix="tfjob-bench-")))


Subject = Callable[[Bench], list[Result]]
"""Measures one hot path."""


def interleaved(sides: Mapping[str, Callable[[], R]], rounds: int) -> dict[str, list[R]]:
    """Measure every side once per round, so a slow phase of the machine affects all of them.

    Every other round runs in reverse order (A B B A ...). So the effect of a measurement on the next one does not always hit
    the same side.
    """
    measured: dict[str, list[R]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides) if number % 2 == 0 else reversed(list(sides)):
            measured[name].append(sides[name]())
    return measured


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Return the median of the ratios of the rounds; within a round the machine is about equally fast for both sides."""
    return median(a / b for a, b in zip(above, below, strict=True))


@contextlib.contextmanager
def child(prepare: Callable[..., Callable[..., Numbers]], *arguments: Any) -> Iterator[Callable[..., Numbers]]:
    """Start a process for one side, so its imports and allocations do not affect another side.

    Each call of the yielded function measures once in the process. The first call runs `prepare(*arguments)`; later calls reuse
    its result. The process is killed at the end of the block, because some measured code cannot be stopped otherwise.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield lambda *given: pool.apply_async(_measure, (prepare, arguments, given)).get(LIMIT_S)


@cache
def _prepared(prepare: Callable[..., Callable[..., Numbers]], *arguments: Any) -> Callable[..., Numbers]:
    return prepare(*arguments)


def _measure(prepare: Callable[..., Callable[..., Numbers]], arguments: Sequence[Any], given: Sequence[Any]) -> Numbers:
    return _prepared(prepare, *arguments)(*given)


def once(prepare: Callable[..., Callable[..., Numbers]], *arguments: Any) -> Numbers:
    """Measure once in a new process."""
    with child(prepare, *arguments) as measure:
        return measure()
