"""The queues of controllers: distinct items, first in first out, never the same item with two workers.

`Queue` knows no delays and no limits. `DelayingQueue` adds one verb, add an item later; order and distinctness are those of
`Queue`. `RateLimitingQueue`, which controllers use, paces delayed adds by a limiter and has no state of its own.

All of it belongs to one event loop and one thread: every change of state below happens between two awaits, so there is no
lock. Due times are read from the running loop and not from a `Clock`, because the loop's own timer is what fires.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from tfjob_operator.workqueue.clock import Clock, LoopClock
from tfjob_operator.workqueue.metrics import NO_METRICS, RETRIES, MetricsProvider, QueueMetrics
from tfjob_operator.workqueue.rate_limiters import RateLimiter

T = TypeVar("T", bound=Hashable)


# While both lines have items, every 16th get serves the low one: 6 % of the workers' time is what the promise "nothing
# waits for ever" costs the items that matter more. client-go and controller-runtime make no such promise.
LOW_PRIORITY_TURN = 16


class ShutDown(Exception):  # noqa: N818 - named after what happened; it is the normal end of a worker, not an error
    """The queue was shut down and has nothing left to hand out: the worker should end."""


class Queue(Generic[T]):
    """A work queue of hashable items for any number of producers and consumers on one loop (WQ-01 .. WQ-07).

    Two lines share one set of rules. An item added with `low_priority` waits in the low line, where events that carry no
    news (a first list, a resync) do not hold up real changes (PQ-04). An add at normal priority raises it to the end of
    the normal line; nothing lowers it again.

    Invariants:
    - `_dirty` has every item that needs work, with whether it was only ever added at low priority;
    - `_processing` has every item that was handed out and is not done;
    - every item in `_ready` or `_low` is dirty, not in processing, and there once; every other dirty item is in
      processing, and lines up, at the tail, when it is done;
    - while an item waits in line no getter waits, and the other way round;
    - once `_shutting_down` is set, `_dirty` takes no item and no getter waits.

    Fairness: items leave each line in the order in which they entered it, and getters are served in the order in which
    they began to wait: a waiting getter is handed its item at once, so one that comes later cannot take it. A getter
    that is cancelled with an item already handed to it, but before it ran, gives the item back to the head of the line.
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
        """Create an empty queue; it is measured if it has both a `name` and a provider of `metrics`."""
        self._ready: deque[T] = deque()
        self._low: OrderedDict[T, None] = OrderedDict()
        self._dirty: dict[T, bool] = {}
        self._processing: set[T] = set()
        self._waiters: deque[asyncio.Future[T]] = deque()
        self._overtakes = 0  # gets from the normal line since the low one was served
        self._shutting_down = False
        self._drained = asyncio.Event()
        self._metrics: QueueMetrics[T] | None = None
        if metrics is not NO_METRICS and name:
            self._metrics = QueueMetrics(metrics, name, clock or LoopClock(), self._dirty.__len__)

    def add(self, item: T, *, low_priority: bool = False) -> None:
        """Mark `item` as needing work: it lines up once, or when it is done if it is in work. Ignored after shutdown."""
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
            self._line_up(item)

    async def get(self) -> T:
        """Return the next item, which then is in work until `done`; wait for one if there is none.

        Raises `ShutDown` once the queue is shut down and nothing waits. Safe to cancel: no item is lost. Does not
        suspend when an item waits, so a worker whose work never suspends either must let the loop run by itself.
        """
        if self._low or self._ready:
            item = self._take_of_two_lines() if self._low else self._ready.popleft()
            del self._dirty[item]
            self._processing.add(item)
        else:
            item = await self._wait_for_item()
        if self._metrics is not None:
            self._metrics.get(item, is_dirty=item in self._dirty)
        return item

    def done(self, item: T) -> None:
        """End the work on `item`; it lines up again if it was added meanwhile. Raises ValueError if it is not in work."""
        if item not in self._processing:
            raise ValueError(f"done() for an item that is not in work: {item!r}")
        self._processing.remove(item)
        if self._metrics is not None:
            self._metrics.done(item)
        if item in self._dirty:
            self._line_up(item)
        elif self._shutting_down and not self._dirty and not self._processing:
            self._drained.set()

    def __len__(self) -> int:
        """Count the items in line; those in work are not."""
        return len(self._ready) + len(self._low)

    @property
    def shutting_down(self) -> bool:
        """Whether either kind of shutdown has begun."""
        return self._shutting_down

    def shut_down(self) -> None:
        """Refuse adds, and let workers end when the line is empty. Waits for nobody; ends a `shut_down_with_drain`."""
        self._refuse_adds()
        self._drained.set()

    async def shut_down_with_drain(self) -> None:
        """Refuse adds; return when all in line or in work is done, or at `shut_down`. Workers must go on until `ShutDown`."""
        self._refuse_adds()
        if self._dirty or self._processing:
            self._drained.clear()
            await self._drained.wait()

    def _refuse_adds(self) -> None:
        self._shutting_down = True
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(ShutDown())

    def _take_of_two_lines(self) -> T:
        if self._ready and self._overtakes < LOW_PRIORITY_TURN - 1:
            self._overtakes += 1
            return self._ready.popleft()
        self._overtakes = 0
        return self._low.popitem(last=False)[0]

    def _raise_priority(self, item: T) -> None:
        self._dirty[item] = False
        if item in self._low:  # else it is in work, and lines up when it is done
            del self._low[item]
            self._ready.append(item)

    def _line_up(self, item: T, *, at_head: bool = False) -> None:
        """Hand a dirty item that is not in processing to the first getter in wait, or else put it in its line."""
        waiter = self._next_waiter()
        if waiter is not None:
            del self._dirty[item]
            self._processing.add(item)
            waiter.set_result(item)
        elif self._dirty[item]:
            self._low[item] = None
        elif at_head:
            self._ready.appendleft(item)
        else:
            self._ready.append(item)

    def _next_waiter(self) -> asyncio.Future[T] | None:
        """Take the first getter that still waits; one that was cancelled stays here until its task runs."""
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
        except BaseException:  # cancelled, or closed: nobody will take what `waiter` has or may get
            self._withdraw(waiter)
            raise

    def _withdraw(self, waiter: asyncio.Future[T]) -> None:
        """Undo what became of a getter that is gone; it may have been handed an item, or a ShutDown, in this very tick."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            item = waiter.result()
            self._processing.remove(item)
            self._dirty[item] = False  # a low item may gain by this; it is rare, and does no harm
            self._line_up(item, at_head=True)


# Superseded entries that may lie in the heap beside the live ones, whose number they may reach as well. Small enough that
# nobody sees the memory; large enough that a short heap is not rebuilt at every second call.
SUPERSEDED_ALLOWED = 64


class DelayingQueue(Queue[T]):
    """A `Queue` with `add_after` (DQ-01 .. DQ-05), for one loop.

    Invariants:
    - `_live` has the one entry that counts for each delayed item: the earliest asked for, never moved to later;
    - the heap has every live entry, and superseded ones, which are skipped when they come up and are swept out before
      they outnumber the live ones by more than `SUPERSEDED_ALLOWED`;
    - a timer is set exactly while the heap has entries, for its head; it is set anew only when the head changes;
    - after shutdown, of either kind, there is no timer and the heap is empty: what was delayed is dropped.

    client-go's bounded channel (DQ-01) and heartbeat (DQ-03) connect goroutines. Here one thread has heap and timer, so
    `add_after` never waits, and no timer is lost.
    """

    __slots__ = ("_heap", "_live", "_retries", "_sequence", "_timer")

    def __init__(self, *, name: str = "", metrics: MetricsProvider = NO_METRICS, clock: Clock | None = None) -> None:
        """Create an empty queue; it is measured, by `clock`, if it has both a `name` and a provider of `metrics`."""
        super().__init__(name=name, metrics=metrics, clock=clock)
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
        if self._shutting_down:
            return
        if self._retries is not None:
            self._retries.inc()
        if delay_s <= 0:
            self.add(item)
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

    def _refuse_adds(self) -> None:
        """Also drop delayed items and stop the timer (DQ-05)."""
        self._heap.clear()
        self._live.clear()
        self._set_timer()
        super()._refuse_adds()

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
                self.add(item)
        self._set_timer()

    def _is_superseded(self, entry: tuple[float, int, T]) -> bool:
        return self._live.get(entry[2]) is not entry


class RateLimitingQueue(DelayingQueue[T]):
    """A `DelayingQueue` with `add_rate_limited` (RL-06), for one loop.

    Invariant: the limiter and the queue know nothing of each other. `forget` does not end the work on an item, and
    `done` does not clear its failures: a worker owes `done` after every `get`, and `forget` after every success.
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
        """Create an empty queue; it is measured, by `clock`, if it has both a `name` and a provider of `metrics`."""
        super().__init__(name=name, metrics=metrics, clock=clock)
        self._limiter = limiter

    def add_rate_limited(self, item: T) -> None:
        """Add `item` when the limiter allows it. After shutdown the limiter still counts, and the add is ignored."""
        self.add_after(item, self._limiter.when(item))

    def forget(self, item: T) -> None:
        """Let the limiter forget the failures of `item`; `done` is still due."""
        self._limiter.forget(item)

    def num_requeues(self, item: T) -> int:
        """Return how often the limiter saw `item` since it was last forgotten."""
        return self._limiter.num_requeues(item)
