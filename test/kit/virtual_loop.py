"""An event loop with virtual time, and clocks.

The selector never blocks: virtual time jumps to the next timer. A loop without timers and ready tasks cannot continue, so it
raises `DeadlockError` instead of hanging. Do not use sockets or threads on this loop, because they need real time.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections import deque
from collections.abc import Mapping
from contextvars import Context, ContextVar
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class DeadlockError(RuntimeError):
    """Every task waits for another one: none is ready and no timer is set."""


class _JumpingSelector(selectors.BaseSelector):
    """Polls the real selector (the loop's wake-up pipe), and turns waiting into a jump of virtual time."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.time = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if not ready:
            if timeout is None:
                raise DeadlockError("no task is ready and no timer is set: the test would wait for ever")
            self.time += max(0.0, timeout)
        return ready

    def register(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A stock loop with `_JumpingSelector`; its time starts at 0 and does not advance while tasks run."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.time


PROCESS: Final = ContextVar("process", default="")
"""The simulated process of a task, inherited by its tasks and callbacks. "" is outside of all processes, and is never stalled.
"""

NETWORK: Final = Context()
"""The context of servers and networks: their timers run while the simulated process that set them is stalled."""

WAIT_ANOTHER_TURN: Final = 16
"""One in this many task steps is delayed to the next turn: often enough that three in a row happen in every run."""


LONGEST_MOMENT: Final = 20_000
"""Turns of the loop at one point of virtual time; a busy moment of a simulation takes a few hundred."""


class LivelockError(RuntimeError):
    """Tasks wake each other endlessly, and time does not advance."""


class _NumberedTask(asyncio.Task[Any]):
    """A task whose hash is its number, so that sets of tasks (a TaskGroup's) have the same order in every run."""

    def __init__(self, number: int, coro: Any, **options: Any) -> None:
        self._number = number  # before the base class, which adds the task to a set
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class SeededLoop(VirtualTimeLoop):
    """A virtual-time loop on which a seed decides what asyncio leaves open: the order of tasks.

    It keeps asyncio's guarantees: plain callbacks (`call_soon`, a future's callbacks) run in the order of registration, timers
    by due time, and no task step runs before a callback that was registered earlier. A step may only run later than on a stock
    loop, in any order among the steps, sometimes a whole turn later. Other tasks, sockets and the kernel do the same to a real
    program, so code that breaks here depends on luck.

    The same seed gives the same run. I/O and threads are not supported: the selector is never polled.
    """

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool

    def __init__(self, seed: int | str) -> None:
        super().__init__()
        self._random = Random(f"loop {seed}")  # a string: Random hashes it with SHA-512, equal in all processes
        self._tasks_made = 0
        self._stalled: dict[str, list[asyncio.Handle]] = {}
        self._turns_at_this_moment = 0
        self.set_task_factory(self._make_task)

    def stall(self, process: str, seconds: float) -> None:
        """Stop a process for a while (a paused VM, a blocked loop), while time advances for all others."""
        if process not in self._stalled:
            self._stalled[process] = []
            self.call_later(seconds, self._resume, process, context=Context())

    def _resume(self, process: str) -> None:
        self._ready.extend(self._stalled.pop(process))

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> _NumberedTask:
        self._tasks_made += 1
        return _NumberedTask(self._tasks_made, coro, loop=loop, **options)

    def _run_once(self) -> None:
        """Run one turn, instead of the stock loop's: jump to the next timer if nothing is ready, then run what is."""
        self._release_timers()
        turn = [*self._ready]
        self._ready.clear()
        steps: list[asyncio.Handle] = []
        for handle in turn:
            if self._stalled and (held := self._stalled.get(_process_of(handle))) is not None:
                held.append(handle)
            elif _is_task_step(handle):
                steps.append(handle)
            else:
                if steps and self._random.getrandbits(1):
                    self._run_steps(steps)
                    steps = []
                _run(handle)
        self._run_steps(steps)

    def _release_timers(self) -> None:
        scheduled = self._scheduled
        while scheduled and scheduled[0].cancelled():
            heapq.heappop(scheduled)
        self._turns_at_this_moment += 1
        if self._turns_at_this_moment > LONGEST_MOMENT:
            self._turns_at_this_moment = 0  # tasks that are canceled now need turns to end
            raise LivelockError(f"{LONGEST_MOMENT} turns of the loop at {self._jumping.time:g} s")
        if not self._ready and not self._stopping:
            if not scheduled:
                raise DeadlockError("no task is ready and no timer is set: the world has come to an end")
            if scheduled[0].when() > self._jumping.time:
                self._jumping.time = scheduled[0].when()
                self._turns_at_this_moment = 0
        while scheduled and scheduled[0].when() <= self._jumping.time:
            self._ready.append(heapq.heappop(scheduled))

    def _run_steps(self, steps: list[asyncio.Handle]) -> None:
        if len(steps) > 1:
            self._random.shuffle(steps)
        for step in steps:
            if self._random.random() * WAIT_ANOTHER_TURN < 1:
                self._ready.append(step)
            else:
                _run(step)


def _run(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()


def _process_of(handle: asyncio.Handle) -> str:
    context: Context = handle._context  # type: ignore[attr-defined]  # typeshed leaves it out
    return context.get(PROCESS, "")


def _is_task_step(handle: asyncio.Handle) -> bool:
    callback: Any = handle._callback  # type: ignore[attr-defined]  # typeshed leaves it out
    owner = getattr(callback, "__self__", None)
    return isinstance(owner, asyncio.Task) and getattr(callback, "__name__", "") != "cancel"


class VirtualClock:
    """`workqueue.clock.Clock` on a virtual loop: the wall clock advances from `EPOCH` in step with the loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.monotonic())


class FakeClock:
    """`workqueue.clock.Clock` for tests without a loop: advances only by `step`."""

    def __init__(self) -> None:
        self._elapsed = 0.0

    def step(self, seconds: float) -> None:
        """Move both clocks forward by `seconds`."""
        self._elapsed += seconds

    def monotonic(self) -> float:
        return self._elapsed

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._elapsed)
