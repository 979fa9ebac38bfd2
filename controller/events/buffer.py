"""The buffer between those who record events and the task that writes them.

It is bounded, and recording never waits. When it is full, Normal events make room for Warnings: people look for what went
wrong, and while the API server is away nothing else shows it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count
from typing import TYPE_CHECKING

from tfjob_operator.api.core import EventType

if TYPE_CHECKING:
    from tfjob_operator.api.core import Event


class EventBuffer:
    """A bounded queue of events.

    Invariants: at most `size` events wait; they leave in the order in which they came; an event is dropped only if no less
    important one waits. `put` and `drain` never wait.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._numbers = count()
        # Two queues, numbered across, so that the newest Normal event is found at once.
        self._normal: deque[tuple[int, Event]] = deque()
        self._warnings: deque[tuple[int, Event]] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, event: Event) -> Event | None:
        """Add an event. Return the one that is dropped for it: itself, or a Normal event; mostly None."""
        if self._closed:
            return event
        is_warning = event.type == EventType.WARNING
        driven_out = None
        if len(self) >= self._size:
            if not (is_warning and self._normal):
                return event
            # The newest Normal event goes: those before it show what led to the present state.
            _, driven_out = self._normal.pop()
        (self._warnings if is_warning else self._normal).append((next(self._numbers), event))
        self._changed.set()
        return driven_out

    async def get(self) -> Event | None:
        """Wait for the next event. None says that the buffer is closed and empty."""
        while not len(self):
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._pop()

    def close(self) -> None:
        """Accept nothing more."""
        self._closed = True
        self._changed.set()

    def drain(self) -> list[Event]:
        """Take out all that waits."""
        return [self._pop() for _ in range(len(self))]

    def __len__(self) -> int:
        return len(self._normal) + len(self._warnings)

    def _pop(self) -> Event:
        first = min((queue for queue in (self._normal, self._warnings) if queue), key=lambda queue: queue[0][0])
        return first.popleft()[1]
