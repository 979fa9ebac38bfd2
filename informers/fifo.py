"""The queue between the reflector and the store: deltas in the order in which they arrived, none left out or merged."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Generic

from tfjob_operator.informers.deltas import Change, Delta, ReplacedAll, SyncAll, T
from tfjob_operator.informers.errors import QueueClosedError

BATCH: Final = 1000
"""QF-05: client-go's bound. Here it is how many deltas are applied between two turns of the loop, about 3 ms of work."""


class FIFO(Generic[T]):
    """Deltas in arrival order (QF-01). One producer side, one consumer.

    Invariants:
    - every delta that was put before `close` is handed out exactly once, in order;
    - a batch holds at most `BATCH` deltas, and a `ReplacedAll` or `SyncAll` comes alone: they may touch every key.

    client-go ends a batch at a repeated key, because it writes a whole batch before it calls the handlers. Here each delta
    is applied and its notifications are queued before the next one, so a key may repeat.
    """

    def __init__(self) -> None:
        self._deltas: deque[Delta[T]] = deque()
        self._alone = 0  # how many of them come alone
        self._wake = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._deltas)

    def put(self, delta: Delta[T]) -> None:
        """Append a delta. After `close` it is dropped, since there is no consumer."""
        if not self._closed:
            self._deltas.append(delta)
            self._alone += isinstance(delta, (ReplacedAll, SyncAll))
            self._wake.set()

    def extend(self, changes: list[Change[T]]) -> None:
        """Append changes of single objects, as `put` does one by one."""
        if not self._closed:
            self._deltas.extend(changes)
            self._wake.set()

    def close(self) -> None:
        """Take nothing more. The consumer still gets what is queued, then QueueClosedError."""
        self._closed = True
        self._wake.set()

    async def pop(self) -> list[Delta[T]]:
        """Wait for deltas and take the next batch; never an empty one. Raises QueueClosedError when closed and empty.

        Cancelling loses nothing: a batch is taken without a further await.
        """
        while not self._deltas:
            if self._closed:
                raise QueueClosedError("the event queue is closed")
            self._wake.clear()
            await self._wake.wait()
        if not self._alone and len(self._deltas) <= BATCH:
            everything = list(self._deltas)
            self._deltas.clear()
            return everything
        batch = [self._deltas.popleft()]
        if isinstance(batch[0], (ReplacedAll, SyncAll)):
            self._alone -= 1
            return batch
        while self._deltas and len(batch) < BATCH and not isinstance(self._deltas[0], (ReplacedAll, SyncAll)):
            batch.append(self._deltas.popleft())
        return batch
