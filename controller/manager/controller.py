"""The loop of every controller: workers take keys out of a queue and sync them; failed keys come again after growing delays.

The metrics are named as controller-runtime's, and a check of the workers is computed from them.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Final, Literal

import structlog

from tfjob_operator.api.client.errors import (
    ApiError,
    ConflictError,
    DecodeError,
    NoStatusError,
    ServerError,
    TooManyRequestsError,
    TransportError,
)
from tfjob_operator.informers import EventHandlerFuncs, object_of
from tfjob_operator.workqueue import LoopClock, RateLimitingQueue, ShutDown, default_controller_rate_limiter
from tfjob_operator.workqueue.metrics import NO_METRICS, Metric

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from tfjob_operator.informers import SharedIndexInformer, Tombstone
    from tfjob_operator.informers.deltas import T
    from tfjob_operator.workqueue import Clock, MetricsProvider
    from tfjob_operator.workqueue.rate_limiters import RateLimiter


Result = Literal["success", "error", "requeue", "panic"]
"""How a sync ended: done; with an error; with a stale view, so that it comes again; by a bug."""
RESULTS: Final = ("success", "error", "requeue")
"""Values of the label `result`. A panic is counted as an error, and also separately."""
_LABELS: Final = ("controller",)


# From a sync that finds nothing to do (below 0.1 ms) to one whose requests have all run into their limits.
RECONCILE_BUCKETS: Final = (0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
RECONCILES: Final = Metric("controller_runtime_reconcile_total", "Reconciles", labels=(*_LABELS, "result"))
ERRORS: Final = Metric("controller_runtime_reconcile_errors_total", "Reconciles that failed", labels=_LABELS)
PANICS: Final = Metric(
    "controller_runtime_reconcile_panics_total", "Reconciles that failed by a bug of ours", labels=_LABELS
)
RECONCILE_TIME: Final = Metric(
    "controller_runtime_reconcile_time_seconds", "Seconds that a reconcile took", RECONCILE_BUCKETS, _LABELS
)
WORKERS: Final = Metric("controller_runtime_max_concurrent_reconciles", "Workers", labels=_LABELS)
ACTIVE_WORKERS: Final = Metric("controller_runtime_active_workers", "Workers that reconcile now", labels=_LABELS)
STUCK_S: Final = 1800.0
"""If no worker begins or ends anything for so long, that is a fault of ours: every request has a limit, and the longest
that one can take with all its retries is 13 minutes. It is no shorter because a restart would not help a slow API
server."""


class ReconcileMetrics:
    """The metrics of one controller's workers."""

    def __init__(self, provider: MetricsProvider, controller: str, *, workers: int, clock: Clock) -> None:
        """Create all series of the controller of this name, which has so many workers."""
        self._clock = clock
        self._workers = workers
        self._active = 0
        self._moved_at = 0.0
        self._results = {result: provider.counter(RECONCILES, controller, result) for result in RESULTS}
        self._errors = provider.counter(ERRORS, controller)
        self._panics = provider.counter(PANICS, controller)
        self._time = provider.histogram(RECONCILE_TIME, controller)
        provider.gauge(WORKERS, controller).set_function(lambda: workers)
        provider.gauge(ACTIVE_WORKERS, controller).set_function(lambda: self._active)

    def begun(self) -> None:
        """Note that a worker begins a reconcile."""
        self._active += 1
        self._moved_at = self._clock.monotonic()

    def ended(self, result: Result, seconds: float) -> None:
        """Note that a worker has ended one, after so many seconds."""
        self._active -= 1
        self._moved_at = self._clock.monotonic()
        self._time.observe(seconds)
        if result == "panic":
            self._panics.inc()
            result = "error"
        if result == "error":
            self._errors.inc()
        self._results[result].inc()

    def check(self) -> str | None:
        """Return what is wrong with the workers, or None: all of them are busy, and none gets anywhere."""
        if self._active < self._workers:
            return None
        still_s = self._clock.monotonic() - self._moved_at
        if still_s <= STUCK_S:
            return None
        return f"all {self._workers} workers have been busy with the same keys for {still_s:.0f} s"


log = structlog.get_logger(__name__)
OUTAGE_S: Final = 30.0
"""The longest delay of a key for which the API server, or the way to it, is to blame. With client-go's 1000 s a job could stand
still for as long again as an outage took. It is what a reflector waits at most; a bucket holds back all keys together."""
_OUTAGE: Final = (TransportError, ServerError, TooManyRequestsError, NoStatusError, DecodeError)


class RequeueError(ApiError):
    """Raised by a sync that saw that its view of the cluster is stale: the key comes again, and nothing counts as failed."""


class Controller:
    """Syncs the keys of one queue.

    Invariants: a key is held by one worker at most (the queue sees to it); whatever a sync raises costs its key a retry
    after a growing delay, and no other key anything.
    """

    def __init__(
        self,
        name: str,
        sync: Callable[[str], Awaitable[None]],
        *,
        queue: RateLimitingQueue[str] | None = None,
        outage: RateLimiter[str] | None = None,
        workers: int = 1,
        on_start: Callable[[], Coroutine[object, object, None]] | None = None,
        metrics: MetricsProvider = NO_METRICS,
        clock: Clock | None = None,
    ) -> None:
        """Prepare; nothing runs yet.

        name: labels the metrics, and is the field of each log line of a sync in which its key stands.
        sync: brings the object of a key closer to what it should be, and raises ApiError when it must be tried again. It
            should not look at what woke it. It may bind `uid` (`structlog.contextvars`) as soon as it knows it.
        queue: where the informers' handlers put keys; if None, a new queue of the controller's name.
        outage: delays a key for which the API server is to blame; if None, by OUTAGE_S at most.
        workers: how many keys are synced at a time.
        on_start: is awaited beside the workers when this process begins to work.
        """
        clock = clock or LoopClock()
        self.name = name
        self.queue = queue if queue is not None else _queue(name, metrics, clock)
        self._sync = sync
        self._workers = workers
        self._on_start = on_start
        self._clock = clock
        self._outage = outage or default_controller_rate_limiter(max_delay_s=OUTAGE_S, clock=clock)
        self._metrics = ReconcileMetrics(metrics, name, workers=workers, clock=clock)

    def watch(self, informer: SharedIndexInformer[T], key_of: Callable[[T], str]) -> None:
        """Queue, for every object of the informer that is added, changed or deleted, the key that `key_of` returns for it.

        The objects of the informer's first list have low priority: behind those that change from then on (PQ-04).
        """

        def enqueue(item: T | Tombstone[T], *, low_priority: bool = False) -> None:
            self.queue.add(key_of(object_of(item)), low_priority=low_priority)

        informer.add_event_handler(
            EventHandlerFuncs(
                on_add=lambda item, is_in_initial_list: enqueue(item, low_priority=is_in_initial_list),
                on_update=lambda _, item: enqueue(item),
                on_delete=enqueue,
            )
        )

    def check(self) -> str | None:
        """Return what is wrong with the workers, or None."""
        return self._metrics.check()

    async def run(self) -> None:
        """Sync keys until the queue is shut down. What is still in it then is left to the next leader."""
        async with asyncio.TaskGroup() as group:
            if self._on_start is not None:
                group.create_task(self._on_start(), name=f"{self.name}-start")
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name}-worker-{number}")
            log.info("workers_started", controller=self.name, workers=self._workers)

    async def _work(self) -> None:
        while not self.queue.shutting_down:
            try:
                key = await self.queue.get()
            except ShutDown:
                return
            try:
                # `uid` is known when the object was read; until then it must not be that of the last one.
                with structlog.contextvars.bound_contextvars(
                    **{self.name: key}, uid="", reconcile_id=uuid.uuid4().hex[:8]
                ):
                    await self._sync_counted(key)
            finally:
                self.queue.done(key)
            # A sync that finds nothing to do never suspends, and `get` does not either while keys wait: let others run.
            await asyncio.sleep(0)

    async def _sync_counted(self, key: str) -> None:
        started = self._clock.monotonic()
        self._metrics.begun()
        result: Result = "error"  # also when it is cut short
        try:
            result = await self._sync_safely(key)
        finally:
            self._metrics.ended(result, self._clock.monotonic() - started)

    async def _sync_safely(self, key: str) -> Result:
        try:
            await self._sync(key)
        except (ConflictError, RequeueError) as error:
            # The cache is behind the server. The newer version will arrive and queue the key; this retry is the safety net.
            log.debug("sync_conflict", error=str(error))
            self.queue.add_rate_limited(key)
            return "requeue"
        except ApiError as error:
            log.warning("sync_failed", error=str(error), tries=self._tries(key))
            if isinstance(error, _OUTAGE):
                self.queue.add_after(key, self._outage.when(key))
            else:
                self.queue.add_rate_limited(key)
            return "error"
        except Exception:  # a bug in the sync of one object must not end the worker that serves all the others
            log.exception("sync_crashed", tries=self._tries(key))
            self.queue.add_rate_limited(key)
            return "panic"
        self.queue.forget(key)
        self._outage.forget(key)
        return "success"

    def _tries(self, key: str) -> int:
        return self.queue.num_requeues(key) + self._outage.num_requeues(key) + 1


def _queue(name: str, metrics: MetricsProvider, clock: Clock) -> RateLimitingQueue[str]:
    return RateLimitingQueue(default_controller_rate_limiter(), name=name, metrics=metrics, clock=clock)
