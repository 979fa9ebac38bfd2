"""Work queues for controllers on one asyncio loop, with the semantics of client-go's workqueue package.

A queue guarantees:

- fairness: items are processed in the order in which they were added; an item that is added again goes to the tail;
- deduplication: an item is never processed concurrently, and adding it several times before processing starts counts as one
  add;
- multiple producers and consumers: an item added while it is being processed is processed again afterwards. No item is lost,
  even if a consumer is cancelled;
- shutdown notifications, with an optional drain.

Each class adds methods to the one before: `Queue` (add, get, done), `DelayingQueue` (add_after), `RateLimitingQueue`
(add_rate_limited, forget). A typical worker:

    while True:
        try:
            key = await queue.get()
        except ShutDown:
            return
        try:
            await sync(key)
        except Exception:
            queue.add_rate_limited(key)
        else:
            queue.forget(key)
        finally:
            queue.done(key)

The package also provides `Backoff`, rate limiters, `TokenBucket`, `slow_start_batch` and `parallelize_until`. Metrics are
reported through the protocols in `workqueue.metrics`. There are no third-party imports.
"""

from __future__ import annotations

from tfjob_operator.workqueue.clock import Clock, LeaseClock, LoopClock
from tfjob_operator.workqueue.metrics import NO_METRICS, MetricsProvider
from tfjob_operator.workqueue.parallel import parallelize_until, slow_start_batch
from tfjob_operator.workqueue.queue import DelayingQueue, Queue, RateLimitingQueue, ShutDown
from tfjob_operator.workqueue.rate_limiters import (
    Backoff,
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    MaxOfRateLimiter,
    RateLimiter,
    TokenBucket,
    WithMaxWaitRateLimiter,
    default_controller_rate_limiter,
)

__all__ = [
    "NO_METRICS",
    "Backoff",
    "BucketRateLimiter",
    "Clock",
    "DelayingQueue",
    "ItemExponentialFailureRateLimiter",
    "LeaseClock",
    "LoopClock",
    "MaxOfRateLimiter",
    "MetricsProvider",
    "Queue",
    "RateLimiter",
    "RateLimitingQueue",
    "ShutDown",
    "TokenBucket",
    "WithMaxWaitRateLimiter",
    "default_controller_rate_limiter",
    "parallelize_until",
    "slow_start_batch",
]
