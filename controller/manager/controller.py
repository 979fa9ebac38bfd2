"""The loop of every controller: workers take keys out of a queue and sync them; failed keys come again after growing delays.

The metrics are named as controller-runtime's, and a check of the workers is computed from them.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

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
from tfjob_operator.informers import EventHandlerFuncs, SharedIndexInformer, Tombstone, object_of
from tfjob_operator.informers.deltas import T
from tfjob_operator.workqueue import (
    Clock,
    LoopClock,
    MetricsProvider,
    RateLimitingQueue,
    ShutDown,
    default_controller_rate_limiter,
)
from tfjob_operator.workqueue.metrics import NO_METRICS, Metric
from tfjob_operator.workqueue.rate_limiters import RateLimiter, WithMaxWaitRateLimiter

Outcome = Literal["success", "error", "requeue", "requeue_after", "terminal", "panic"]
"""How a sync ended: done; with an error; with a stale view, so that the key is retried; done until later; with an error that
no retry can fix; by a bug."""
RESULTS: Final = ("success", "error", "requeue", "requeue_after")
"""Values of the label `result`. A terminal error and a panic are counted as errors, and also separately."""
_LABELS: Final = ("controller",)


# From a sync that finds nothing to do (below 0.1 ms) to one whose requests have all run into their limits.
RECONCILE_BUCKETS: Final = (0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
RECONCILES: Final = Metric("controller_runtime_reconcile_total", "Reconciles", labels=(*_LABELS, "result"))
ERRORS: Final = Metric("controller_runtime_reconcile_errors_total", "Reconciles that failed", labels=_LABELS)
TERMINAL_ERRORS: Final = Metric(
    "controller_runtime_terminal_reconcile_errors_total", "Reconciles that failed and are not retried", labels=_LABELS
)
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
        self._terminal_errors = provider.counter(TERMINAL_ERRORS, controller)
        self._panics = provider.counter(PANICS, controller)
        self._time = provider.histogram(RECONCILE_TIME, controller)
        provider.gauge(WORKERS, controller, read=lambda: workers)
        provider.gauge(ACTIVE_WORKERS, controller, read=lambda: self._active)

    def begun(self) -> None:
        """Note that a worker begins a reconcile."""
        self._active += 1
        self._moved_at = self._clock.monotonic()

    def ended(self, result: Outcome, seconds: float) -> None:
        """Note that a worker has ended one, after so many seconds."""
        self._active -= 1
        self._time.observe(seconds)
        if result in {"panic", "terminal"}:
            (self._panics if result == "panic" else self._terminal_errors).inc()
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
still for as long again as an outage took. It is what a reflector waits at most. The bucket that all keys share is cut there,
too."""
_OUTAGE: Final = (TransportError, ServerError, TooManyRequestsError, NoStatusError, DecodeError)


_LOG_FIELDS: Final = frozenset({"uid", "reconcile_id", "event", "level", "timestamp"})


class RequeueError(ApiError):
    """Raised by a sync whose view of the cluster is stale: the key is retried with back-off, and nothing counts as failed."""


class TerminalError(ApiError):
    """Raised by a sync for an error that no retry can fix: it is logged and counted, and the key waits for its next event.

    As controller-runtime's `reconcile.TerminalError`.
    """


@dataclass(frozen=True, slots=True)
class Result:
    """What a sync may return instead of None: sync the key again after so many seconds; its back-off is reset."""

    requeue_after_s: float


class Controller:
    """Syncs the keys of one queue.

    Invariants: a key is held by one worker at most (the queue sees to it); whatever a sync raises costs its key a retry
    after a growing delay, and no other key anything.
    """

    def __init__(
        self,
        name: str,
        sync: Callable[[str], Awaitable[Result | None]],
        *,
        queue: RateLimitingQueue[str] | None = None,
        outage: RateLimiter[str] | None = None,
        workers: int = 1,
        sync_timeout_s: float | None = None,
        on_start: Callable[[], Coroutine[object, object, None]] | None = None,
        metrics: MetricsProvider = NO_METRICS,
        clock: Clock | None = None,
    ) -> None:
        """Prepare; nothing runs yet.

        name: labels the metrics, and is the field of each log line of a sync in which its key stands.
        sync: brings the object of a key closer to what it should be, and raises ApiError when it must be tried again, or
            TerminalError when that would not help. It should not look at what woke it. It may bind `uid`
            (`structlog.contextvars`) as soon as it knows it.
        queue: where the informers' handlers put keys; if None, a new queue of the controller's name.
        outage: delays a key for which the API server is to blame; if None, by OUTAGE_S at most.
        workers: how many keys are synced at a time.
        sync_timeout_s: cancels a sync that takes longer, which then has failed with a TimeoutError; None: no limit.
        on_start: is awaited beside the workers when this process begins to work.
        """
        if name in _LOG_FIELDS:
            raise ValueError(
                f"a controller cannot be named {name!r}: every log line of a sync has a field of that name"
            )
        clock = clock or LoopClock()
        self.name = name
        self.queue = queue if queue is not None else _queue(name, metrics, clock)
        self._sync = sync
        self._workers = workers
        self._sync_timeout_s = sync_timeout_s
        self._on_start = on_start
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._outage = outage or WithMaxWaitRateLimiter(
            default_controller_rate_limiter(max_delay_s=OUTAGE_S, clock=clock), OUTAGE_S
        )
        self._metrics = ReconcileMetrics(metrics, name, workers=workers, clock=clock)

    def watch(self, informer: SharedIndexInformer[T], key_of: Callable[[T], str | Iterable[str] | None]) -> None:
        """Queue the keys that `key_of` returns for each object of the informer that is added, changed or deleted.

        It returns a key, several, or None. An update queues those of the old object as well as those of the new one, so that
        a former owner learns of its loss (as controller-runtime's EnqueueRequestsFromMapFunc). The objects of the informer's
        first list have low priority: behind those that change from then on (PQ-04).
        """

        def keys(item: T | Tombstone[T]) -> Iterable[str]:
            found = key_of(object_of(item))
            return () if found is None else (found,) if isinstance(found, str) else found

        def enqueue(keys: Iterable[str], *, low_priority: bool = False) -> None:
            for key in keys:
                self.queue.add(key, low_priority=low_priority)

        informer.add_event_handler(
            EventHandlerFuncs(
                on_add=lambda item, is_in_initial_list: enqueue(keys(item), low_priority=is_in_initial_list),
                on_update=lambda old, new: enqueue(dict.fromkeys((*keys(old), *keys(new)))),
                on_delete=lambda item: enqueue(keys(item)),
            )
        )

    def check(self) -> str | None:
        """Return what is wrong with the workers, or None."""
        ended = sum(task.done() for task in self._tasks)
        if ended and not self.queue.shutting_down:
            return f"{ended} of {self._workers} workers of {self.name} have ended"
        return self._metrics.check()

    async def run(self) -> None:
        """Sync keys until the queue is shut down. What is still in it then is left to the next leader.

        Raises RuntimeError when it runs already.
        """
        if any(not task.done() for task in self._tasks):
            raise RuntimeError(f"controller {self.name} is already running")
        async with asyncio.TaskGroup() as group:
            if self._on_start is not None:
                group.create_task(self._on_start(), name=f"{self.name}-start")
            self._tasks = [
                group.create_task(self._work(), name=f"{self.name}-worker-{number}") for number in range(self._workers)
            ]
            log.info("workers_started", controller=self.name, workers=self._workers)

    async def _work(self) -> None:
        with contextlib.suppress(ShutDown):
            while not self.queue.shutting_down:
                await self._sync_next()
                # A sync that finds nothing to do never suspends, and `get` does not either while keys wait: let others run.
                await asyncio.sleep(0)

    async def _sync_next(self) -> None:
        """Sync the next key. Raises ShutDown when there is none any more."""
        key = await self.queue.get()
        try:
            # `uid` is known when the object was read; until then it must not be that of the last one.
            fields = {self.name: key, "uid": "", "reconcile_id": uuid.uuid4().hex[:8]}
            with structlog.contextvars.bound_contextvars(**fields):
                await self._sync_counted(key)
        finally:
            self.queue.done(key)

    async def _sync_counted(self, key: str) -> None:
        started = self._clock.monotonic()
        self._metrics.begun()
        result: Outcome = "error"  # also when it is cut short
        try:
            result = await self._sync_safely(key)
        finally:
            self._metrics.ended(result, self._clock.monotonic() - started)

    async def _sync_safely(self, key: str) -> Outcome:
        try:
            async with asyncio.timeout(self._sync_timeout_s):
                result = await self._sync(key)
        except asyncio.CancelledError:
            if (worker := asyncio.current_task()) is not None and worker.cancelling():
                raise
            # Something that the sync awaited was cancelled, not this worker, which serves all other keys.
            log.warning("sync_failed", error="cancelled by itself", tries=self._tries(key))
            self.queue.add_rate_limited(key)
            return "error"
        except Exception as error:  # noqa: BLE001 - the sync of one object must not end the worker that serves all the others
            return self._failed(key, error)
        self.queue.forget(key)
        self._outage.forget(key)
        if result is None:
            return "success"
        self.queue.add_after(key, result.requeue_after_s)
        return "requeue_after"

    def _failed(self, key: str, error: Exception) -> Outcome:
        """Log an error as what it is, and queue the key accordingly. A group is what the worst of its errors is."""
        errors = list(_leaves(error))
        text = "; ".join(dict.fromkeys(map(_text, errors)))
        if all(isinstance(each, (ConflictError, RequeueError)) for each in errors):
            # The cache is behind the server. The newer version will arrive and queue the key; this retry is the safety net.
            log.debug("sync_conflict", error=text)
            self.queue.add_rate_limited(key)
            return "requeue"
        if not all(isinstance(each, (ApiError, TimeoutError)) for each in errors):
            log.error("sync_crashed", exc_info=error, tries=self._tries(key))
            self.queue.add_rate_limited(key)
            return "panic"
        log.warning("sync_failed", error=text, tries=self._tries(key))
        if any(isinstance(each, TerminalError) for each in errors):
            self.queue.forget(key)
            self._outage.forget(key)
            return "terminal"
        if any(isinstance(each, _OUTAGE) for each in errors):
            self.queue.add_after(key, self._outage.when(key))
        else:
            self.queue.add_rate_limited(key)
        return "error"

    def _tries(self, key: str) -> int:
        return self.queue.num_requeues(key) + self._outage.num_requeues(key) + 1


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group, and of the groups in it; of any other error that alone."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _queue(name: str, metrics: MetricsProvider, clock: Clock) -> RateLimitingQueue[str]:
    return RateLimitingQueue(default_controller_rate_limiter(), name=name, metrics=metrics, clock=clock)
