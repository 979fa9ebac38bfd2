"""An event loop on which sleeping costs nothing.

The selector never blocks: where a stock loop would wait for the next timer, virtual time jumps to it. A loop with no
timer and nothing ready can never go on, so it raises `DeadlockError` instead of hanging the test run. Sockets and
threads do not belong on this loop: real I/O takes real time, which this loop does not have.
"""

from __future__ import annotations

import asyncio
import selectors
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import FileDescriptorLike

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class DeadlockError(RuntimeError):
    """Every task waits for another one: nothing is ready and no timer is set."""


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
    """A stock loop with `_JumpingSelector`; its time starts at 0 and stands still while tasks run."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.time


class VirtualClock:
    """`workqueue.clock.Clock` on a virtual loop: the wall clock advances from `EPOCH` in step with the loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.monotonic())
