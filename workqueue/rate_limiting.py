"""The queue that controllers use: delayed adds, paced by a limiter.

It adds three verbs to `DelayingQueue` and has no state of its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from tfjob_operator.workqueue.delaying import DelayingQueue
from tfjob_operator.workqueue.metrics import NO_METRICS

if TYPE_CHECKING:
    from tfjob_operator.workqueue.clock import Clock
    from tfjob_operator.workqueue.metrics import MetricsProvider
    from tfjob_operator.workqueue.rate_limiters import RateLimiter

T = TypeVar("T", bound=Hashable)


class RateLimitingQueue(Generic[T]):
    """A `DelayingQueue` with `add_rate_limited` (RL-06), for one loop.

    Invariant: the limiter and the queue know nothing of each other. `forget` does not end the work on an item, and
    `done` does not clear its failures: a worker owes `done` after every `get`, and `forget` after every success.
    """

    __slots__ = ("_limiter", "_queue")

    def __init__(
        self,
        limiter: RateLimiter[T],
        *,
        name: str = "",
        metrics: MetricsProvider = NO_METRICS,
        clock: Clock | None = None,
    ) -> None:
        """Create an empty queue; it is measured, by `clock`, if it has both a `name` and a provider of `metrics`."""
        self._limiter = limiter
        self._queue: DelayingQueue[T] = DelayingQueue(name=name, metrics=metrics, clock=clock)

    def add_rate_limited(self, item: T) -> None:
        """Add `item` when the limiter allows it. After shutdown the limiter still counts, and the add is ignored."""
        self._queue.add_after(item, self._limiter.when(item))

    def forget(self, item: T) -> None:
        """Let the limiter forget the failures of `item`; `done` is still due."""
        self._limiter.forget(item)

    def num_requeues(self, item: T) -> int:
        """Return how often the limiter saw `item` since it was last forgotten."""
        return self._limiter.num_requeues(item)

    def add_after(self, item: T, delay_s: float) -> None:
        """See `DelayingQueue.add_after`."""
        self._queue.add_after(item, delay_s)

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
        """See `DelayingQueue.shut_down`."""
        self._queue.shut_down()

    async def shut_down_with_drain(self) -> None:
        """See `DelayingQueue.shut_down_with_drain`."""
        await self._queue.shut_down_with_drain()
