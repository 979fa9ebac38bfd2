"""A queue with one more verb: add an item later.

It decides when, and nothing else: order, distinctness and shutdown are the inner `Queue`'s. Due times are read from the
running loop and not from a `Clock`, because the loop's own timer is what fires.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from tfjob_operator.workqueue.metrics import NO_METRICS, RETRIES
from tfjob_operator.workqueue.queue import Queue

if TYPE_CHECKING:
    from tfjob_operator.workqueue.clock import Clock
    from tfjob_operator.workqueue.metrics import MetricsProvider

T = TypeVar("T", bound=Hashable)

# Superseded entries that may lie in the heap beside the live ones, whose number they may reach as well. Small enough that
# nobody sees the memory; large enough that a short heap is not rebuilt at every second call.
SUPERSEDED_ALLOWED = 64


class DelayingQueue(Generic[T]):
    """A `Queue` with `add_after` (DQ-01 .. DQ-05), for one loop.

    Invariants:
    - `_live` has the one entry that counts for each delayed item: the earliest asked for, never moved to later;
    - the heap has every live entry, and superseded ones, which are skipped when they come up and are swept out before
      they outnumber the live ones by more than `SUPERSEDED_ALLOWED`;
    - a timer is set exactly while the heap has entries, for its head; it is set anew only when the head changes;
    - after shutdown, of either kind, there is no timer and the heap is empty: what was delayed is dropped.

    Two parts of client-go's queue are artefacts of Go, and are not here. Its bounded channel (1000 slots, DQ-01) carries
    items to the goroutine that owns the heap; here the caller is on the heap's own thread, so `add_after` never waits. Its
    heartbeat (10 s, DQ-03) covers for a timer that was lost between goroutines; a loop's timers cannot be lost, and both
    heap and timer are changed in one step.
    """

    __slots__ = ("_heap", "_live", "_queue", "_retries", "_sequence", "_timer")

    def __init__(self, *, name: str = "", metrics: MetricsProvider = NO_METRICS, clock: Clock | None = None) -> None:
        """Create an empty queue; it is measured, by `clock`, if it has both a `name` and a provider of `metrics`."""
        self._queue: Queue[T] = Queue(name=name, metrics=metrics, clock=clock)
        self._retries = metrics.counter(RETRIES, name) if metrics is not NO_METRICS and name else None
        self._heap: list[tuple[float, int, T]] = []
        self._live: dict[T, tuple[float, int, T]] = {}
        self._sequence = 0  # equal due times keep their order, and items are never compared
        self._timer: asyncio.TimerHandle | None = None

    def add_after(self, item: T, delay_s: float) -> None:
        """Add `item` after `delay_s` seconds, or now if that is not positive.

        An item that is delayed already comes at the earlier of the two times. An `add` in the meantime does not
        call it off. Ignored after shutdown. Needs the running loop.
        """
        if self._queue.shutting_down:
            return
        if self._retries is not None:
            self._retries.inc()
        if delay_s <= 0:
            self._queue.add(item)
            return
        due = asyncio.get_running_loop().time() + delay_s
        waiting = self._live.get(item)
        if waiting is not None and waiting[0] <= due:
            return
        self._sequence += 1
        entry = (due, self._sequence, item)
        self._live[item] = entry
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._live) + SUPERSEDED_ALLOWED:
            self._heap = list(self._live.values())
            heapq.heapify(self._heap)
        if self._heap[0] is entry:
            self._set_timer()

    def add(self, item: T, *, low_priority: bool = False) -> None:
        """See `Queue.add`."""
        self._queue.add(item, low_priority=low_priority)

    async def get(self) -> T:
        """See `Queue.get`."""
        return await self._queue.get()

    def done(self, item: T) -> None:
        """See `Queue.done`."""
        self._queue.done(item)

    def __len__(self) -> int:
        """Count the items in line; those that are delayed or in work are not."""
        return len(self._queue)

    @property
    def shutting_down(self) -> bool:
        """Whether either kind of shutdown has begun."""
        return self._queue.shutting_down

    def shut_down(self) -> None:
        """Drop what is delayed, and shut down as `Queue.shut_down` does."""
        self._drop_delayed()
        self._queue.shut_down()

    async def shut_down_with_drain(self) -> None:
        """Drop what is delayed, and shut down as `Queue.shut_down_with_drain` does.

        client-go's timer goes on for up to 10 s here (DQ-05); ours ends at once.
        """
        self._drop_delayed()
        await self._queue.shut_down_with_drain()

    def _drop_delayed(self) -> None:
        self._heap.clear()
        self._live.clear()
        self._set_timer()

    def _set_timer(self) -> None:
        """Aim the timer at the head of the heap."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            due = self._heap[0][0]
            self._timer = asyncio.get_running_loop().call_at(due, self._release, due)

    def _release(self, due: float) -> None:
        """Add every item that is due; the timer was set for `due`, and may fire a clock tick before it."""
        now = max(due, asyncio.get_running_loop().time())
        while self._heap and (self._heap[0][0] <= now or self._is_superseded(self._heap[0])):
            entry = heapq.heappop(self._heap)
            if not self._is_superseded(entry):
                item = entry[2]
                del self._live[item]
                self._queue.add(item)
        self._set_timer()

    def _is_superseded(self, entry: tuple[float, int, T]) -> bool:
        return self._live.get(entry[2]) is not entry
