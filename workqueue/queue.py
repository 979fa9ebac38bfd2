"""Work queues: distinct items in FIFO order; an item is never processed by two workers at once.

`Queue` has no delays or rate limits. `DelayingQueue` adds `add_after`, with the ordering and deduplication of `Queue`.
`RateLimitingQueue`, which controllers use, delays adds as a limiter decides and has no state of its own.

A queue belongs to one event loop. No state changes across an await, so no locks are needed. Due times come from the running
loop and not from a `Clock`, because it is the loop's timer that fires.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from tfjob_operator.workqueue.clock import Clock, LoopClock
from tfjob_operator.workqueue.metrics import NO_METRICS, RETRIES, MetricsProvider, QueueMetrics
from tfjob_operator.workqueue.rate_limiters import RateLimiter

T = TypeVar("T", bound=Hashable)


# While both lines have items, every 16th call of `get` takes one from the low-priority line. This costs at most 6% of the
# workers' time and prevents starvation; client-go and controller-runtime do not prevent it.
LOW_PRIORITY_TURN = 16


class ShutDown(Exception):  # noqa: N818 - the normal end of a worker, not an error
    """The queue was shut down and is empty: the worker should exit."""


class Queue(Generic[T]):
    """A work queue of hashable items for any number of producers and consumers on one loop.

    Items wait in two lines. Items added with `low_priority` wait in the low line, so that events without news (an initial list,
    a resync) do not delay real changes. An add at normal priority moves such an item to the tail of the normal line; an
    item's priority is never lowered. `get_with_priority` also returns the line, so that a worker can add the item again with
    the same priority.

    Invariants:
    - `_dirty` contains every item that needs processing; the value is True if all adds of the item were low-priority;
    - `_processing` contains every item that was handed out and is not done; the value is True if it came from the low line;
    - every item in `_ready` or `_low` is dirty, not in `_processing`, and present once. Every other dirty item is in
      `_processing` and is appended to its line when it is done;
    - no getter waits while a line has items;
    - once `_shutting_down` is set, no item is added to `_dirty` and no getter waits.

    Fairness: items leave a line in FIFO order, and getters are served in the order in which they started to wait. A waiting
    getter is assigned its item immediately, so a later getter cannot take it. If a getter is cancelled after the assignment and
    before it runs, the item returns to the head of its line.
    """

    __slots__ = (
        "_dirty",
        "_drained",
        "_low",
        "_metrics",
        "_overtakes",
        "_processing",
        "_ready",
        "_shutting_down",
        "_waiters",
    )

    def __init__(self, *, name: str = "", metrics: MetricsProvider = NO_METRICS, clock: Clock | None = None) -> None:
        """Create an empty queue. Metrics are recorded if both `name` and `metrics` are given."""
        self._ready: deque[T] = deque()
        self._low: OrderedDict[T, None] = OrderedDict()
        self._dirty: dict[T, bool] = {}
        self._processing: dict[T, bool] = {}
        self._waiters: deque[asyncio.Future[T]] = deque()
        self._overtakes = (
            0  # number of gets from the normal-priority queue since the last get from the low-priority queue
        )
        self._shutting_down = False
        self._drained = asyncio.Event()
        self._metrics: QueueMetrics[T] | None = None
        if metrics is not NO_METRICS and name:
            self._metrics = QueueMetrics(metrics, name, clock or LoopClock(), self._dirty.__len__)

    def add(self, item: T, *, low_priority: bool = False) -> None:
        """Mark `item` as needing processing.

        It is queued once; if it is being processed, it is queued when it is done. Ignored after shutdown.
        """
        if self._shutting_down:
            return
        if item in self._dirty:
            if self._dirty[item] and not low_priority:
                self._raise_priority(item)
            return
        self._dirty[item] = low_priority
        if self._metrics is not None:
            self._metrics.add(item)
        if item not in self._processing:
            self._enqueue(item)

    async def get(self) -> T:
        """Return the next item, which is in progress until `done`; wait if there is none.

        Raises `ShutDown` once the queue is shut down and empty. Safe to cancel: no item is lost. Does not suspend if an item is
        ready. So a worker without other awaits that suspend must yield to the loop itself.
        """
        if self._low or self._ready:
            item = self._pop_from_either_line() if self._low else self._ready.popleft()
            self._processing[item] = self._dirty.pop(item)
        else:
            item = await self._wait_for_item()
        if self._metrics is not None:
            self._metrics.get(item, is_dirty=item in self._dirty)
        return item

    async def get_with_priority(self) -> tuple[T, bool]:
        """Return the next item as `get` does, and True if all adds of the item had low priority."""
        item = await self.get()
        return item, self._processing[item]

    def done(self, item: T) -> None:
        """Finish `item`; it is queued again if it was added meanwhile. Raises ValueError if it is not in progress."""
        if item not in self._processing:
            raise ValueError(f"done() for an item that is not being processed: {item!r}")
        del self._processing[item]
        if self._metrics is not None:
            self._metrics.done(item)
        if item in self._dirty:
            self._enqueue(item)
        elif self._shutting_down and not self._dirty and not self._processing:
            self._drained.set()

    def __len__(self) -> int:
        """Return the number of waiting items; items in progress are not counted."""
        return len(self._ready) + len(self._low)

    @property
    def shutting_down(self) -> bool:
        """True once either kind of shutdown has started."""
        return self._shutting_down

    def shut_down(self) -> None:
        """Refuse adds, and let workers exit when the queue is empty. Does not wait; ends a `shut_down_with_drain`."""
        self._refuse_adds()
        self._drained.set()

    async def shut_down_with_drain(self) -> None:
        """Refuse adds; return when every item is done, or at `shut_down`. Workers must keep running until `ShutDown`."""
        self._refuse_adds()
        if self._dirty or self._processing:
            self._drained.clear()
            await self._drained.wait()

    def _refuse_adds(self) -> None:
        self._shutting_down = True
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(ShutDown())

    def _pop_from_either_line(self) -> T:
        if self._ready and self._overtakes < LOW_PRIORITY_TURN - 1:
            self._overtakes += 1
            return self._ready.popleft()
        self._overtakes = 0
        return self._low.popitem(last=False)[0]

    def _raise_priority(self, item: T) -> None:
        self._dirty[item] = False
        if item in self._low:  # else it is in progress and is queued when done
            del self._low[item]
            self._ready.append(item)

    def _enqueue(self, item: T, *, at_head: bool = False) -> None:
        """Assign a dirty item that is not in progress to the first waiting getter, or append it to its line."""
        waiter = self._next_waiter()
        if waiter is not None:
            self._processing[item] = self._dirty.pop(item)
            waiter.set_result(item)
        elif self._dirty[item]:
            self._low[item] = None
        elif at_head:
            self._ready.appendleft(item)
        else:
            self._ready.append(item)

    def _next_waiter(self) -> asyncio.Future[T] | None:
        """Pop the first getter that still waits. A cancelled one remains in `_waiters` until its task runs."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    async def _wait_for_item(self) -> T:
        if self._shutting_down:
            raise ShutDown
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except ShutDown:
            raise
        except BaseException:  # cancelled or closed: the getter will not use its item
            self._withdraw(waiter)
            raise

    def _withdraw(self, waiter: asyncio.Future[T]) -> None:
        """Remove a cancelled getter and return its item, if one was assigned to it in this iteration of the loop."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            item = waiter.result()
            del self._processing[item]
            self._dirty[item] = False  # raises the priority of a low-priority item; rare and harmless
            self._enqueue(item, at_head=True)


# How many superseded entries the heap may hold beyond the number of live entries: few enough for memory, many enough that a
# short heap is not rebuilt on every second call.
SUPERSEDED_ALLOWED = 64


class DelayingQueue(Queue[T]):
    """A `Queue` with `add_after`, for one loop.

    Invariants:
    - `_live` holds one entry for each delayed item, with the earliest time requested; this time is never postponed;
    - `_delayed_low` contains the delayed items whose delayed adds all have low priority;
    - the heap contains every live entry, and superseded entries. Superseded entries are skipped when popped, and removed before
      they outnumber the live entries by more than `SUPERSEDED_ALLOWED`;
    - while the heap has entries, one timer is set for its head; it is replaced only if the head changes;
    - after either kind of shutdown the timer is cancelled and the heap is empty: delayed items are dropped.

    client-go's bounded channel and heartbeat synchronize goroutines. Here a single thread owns heap and timer,
    so `add_after` never blocks and no timer is lost.
    """

    __slots__ = ("_delayed_low", "_heap", "_live", "_retries", "_sequence", "_timer")

    def __init__(self, *, name: str = "", metrics: MetricsProvider = NO_METRICS, clock: Clock | None = None) -> None:
        """Create an empty queue. Metrics are recorded, with times from `clock`, if both `name` and `metrics` are given."""
        super().__init__(name=name, metrics=metrics, clock=clock)
        self._retries = metrics.counter(RETRIES, name) if metrics is not NO_METRICS and name else None
        self._heap: list[tuple[float, int, T]] = []
        self._live: dict[T, tuple[float, int, T]] = {}
        self._delayed_low: set[T] = set()
        self._sequence = 0  # breaks ties of due times, so items are never compared
        self._timer: asyncio.TimerHandle | None = None

    def add_after(self, item: T, delay_s: float, *, low_priority: bool = False) -> None:
        """Add `item` after `delay_s` seconds, or immediately if that is not positive.

        If the item is delayed already, the earlier of the two times and the higher of the two priorities apply. An `add` in the
        meantime does not cancel the delayed add. Ignored after shutdown. Requires a running loop. Raises ValueError for NaN,
        which would have no place in the order of the delayed items.
        """
        if math.isnan(delay_s):
            raise ValueError(f"the delay of {item!r} is not a number")
        if self._shutting_down:
            return
        if self._retries is not None:
            self._retries.inc()
        if delay_s <= 0:
            self.add(item, low_priority=low_priority)
            return
        due = asyncio.get_running_loop().time() + delay_s
        waiting = self._live.get(item)
        if not low_priority:
            self._delayed_low.discard(item)
        elif waiting is None:
            self._delayed_low.add(item)
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

    def _refuse_adds(self) -> None:
        """Also drop delayed items and stop the timer."""
        self._heap.clear()
        self._live.clear()
        self._delayed_low.clear()
        self._set_timer()
        super()._refuse_adds()

    def _set_timer(self) -> None:
        """Set the timer for the head of the heap."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            due = self._heap[0][0]
            self._timer = asyncio.get_running_loop().call_at(due, self._release, due)

    def _release(self, due: float) -> None:
        """Add every item that is due. The timer was set for `due` and may fire one clock tick early."""
        now = max(due, asyncio.get_running_loop().time())
        while self._heap and (self._heap[0][0] <= now or self._is_superseded(self._heap[0])):
            entry = heapq.heappop(self._heap)
            if not self._is_superseded(entry):
                item = entry[2]
                del self._live[item]
                low_priority = item in self._delayed_low
                self._delayed_low.discard(item)
                self.add(item, low_priority=low_priority)
        self._set_timer()

    def _is_superseded(self, entry: tuple[float, int, T]) -> bool:
        return self._live.get(entry[2]) is not entry


class RateLimitingQueue(DelayingQueue[T]):
    """A `DelayingQueue` with `add_rate_limited`, for one loop.

    Invariant: limiter and queue are independent. `forget` does not finish an item and `done` does not reset its failures: a
    worker must call `done` after every `get`, and `forget` after every success.
    """

    __slots__ = ("_limiter",)

    def __init__(
        self,
        limiter: RateLimiter[T],
        *,
        name: str = "",
        metrics: MetricsProvider = NO_METRICS,
        clock: Clock | None = None,
    ) -> None:
        """Create an empty queue. Metrics are recorded, with times from `clock`, if both `name` and `metrics` are given."""
        super().__init__(name=name, metrics=metrics, clock=clock)
        self._limiter = limiter

    def add_rate_limited(self, item: T, *, low_priority: bool = False) -> None:
        """Add `item` when the limiter allows it. After shutdown the limiter still counts, but the add is ignored."""
        self.add_after(item, self._limiter.when(item), low_priority=low_priority)

    def forget(self, item: T) -> None:
        """Reset the limiter's failure count of `item`. `done` must still be called."""
        self._limiter.forget(item)

    def num_requeues(self, item: T) -> int:
        """Return how often `item` was rate-limited since it was last forgotten."""
        return self._limiter.num_requeues(item)
