"""Work queues for controllers, with the behaviour of client-go's, for one asyncio loop.

What a queue promises:

- fair: items are handed out in the order in which they were added, and an item that comes back goes to the end;
- stingy: an item is in work once at a time, and any number of adds before that work begins are one piece of work;
- many producers and consumers: an item that is added while it is in work is worked on again, and none is ever lost, also
  when a consumer is cancelled;
- it says when it is shut down, and can wait until the work in it is done.

Layers, each with one more verb: `Queue` (add, get, done), `DelayingQueue` (add_after), `RateLimitingQueue`
(add_rate_limited, forget). A worker looks like this:

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

Beside the queues there are the parts that a controller paces itself with: `Backoff`, the rate limiters, `TokenBucket`,
`slow_start_batch` and `parallelize_until`. Metrics are ports (`workqueue.metrics`); this package imports no third party.
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
