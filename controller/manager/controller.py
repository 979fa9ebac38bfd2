"""The worker loop of a controller: workers take keys from a queue and sync them; failed keys are retried with growing delays.

The metrics have the names of controller-runtime's, and a liveness check of the workers is derived from them.
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

ReconcileResult = Literal["success", "error", "requeue", "requeue_after", "terminal", "panic"]
"""How a sync ended: done; failed; with a stale view, so the key is retried; done until later; failed with an error that retries
cannot fix; crashed by a bug."""
RESULTS: Final = ("success", "error", "requeue", "requeue_after")
"""Values of the label `result`. Terminal errors and panics count as errors, and are also counted separately."""
_LABELS: Final = ("controller",)


# From a sync with nothing to do (below 0.1 ms) to one in which every request timed out.
RECONCILE_BUCKETS: Final = (0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
RECONCILES: Final = Metric("controller_runtime_reconcile_total", "Reconciles", labels=(*_LABELS, "result"))
ERRORS: Final = Metric("controller_runtime_reconcile_errors_total", "Reconciles that failed", labels=_LABELS)
TERMINAL_ERRORS: Final = Metric(
    "controller_runtime_terminal_reconcile_errors_total", "Reconciles that failed and are not retried", labels=_LABELS
)
PANICS: Final = Metric(
    "controller_runtime_reconcile_panics_total", "Reconciles that crashed because of a bug", labels=_LABELS
)
RECONCILE_TIME: Final = Metric(
    "controller_runtime_reconcile_time_seconds", "Duration of a reconcile in seconds", RECONCILE_BUCKETS, _LABELS
)
WORKERS: Final = Metric("controller_runtime_max_concurrent_reconciles", "Workers", labels=_LABELS)
ACTIVE_WORKERS: Final = Metric(
    "controller_runtime_active_workers", "Workers that are currently reconciling", labels=_LABELS
)
STUCK_S: Final = 1800.0
"""If no worker starts or finishes a sync for this long, the operator has a bug: every request has a timeout, and the longest
request with all its retries takes 13 minutes. It is not shorter because a restart would not help with a slow API server."""


class ReconcileMetrics:
    """The metrics of one controller's workers."""

    def __init__(self, provider: MetricsProvider, controller: str, *, workers: int, clock: Clock) -> None:
        """Create all series of the controller with this name and number of workers."""
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

    def started(self) -> None:
        """Record that a worker started a reconcile."""
        self._active += 1
        self._moved_at = self._clock.monotonic()

    def finished(self, result: ReconcileResult, seconds: float) -> None:
        """Record that a worker finished a reconcile, and its duration."""
        self._active -= 1
        self._time.observe(seconds)
        if result in {"panic", "terminal"}:
            (self._panics if result == "panic" else self._terminal_errors).inc()
            result = "error"
        if result == "error":
            self._errors.inc()
        self._results[result].inc()

    def check(self) -> str | None:
        """Return an error if all workers are busy and none makes progress, else None."""
        if self._active < self._workers:
            return None
        still_s = self._clock.monotonic() - self._moved_at
        if still_s <= STUCK_S:
            return None
        return f"all {self._workers} workers have been busy with the same keys for {still_s:.0f} s"


log = structlog.get_logger(__name__)
OUTAGE_S: Final = 30.0
"""The longest delay of a key that failed because of the API server or the network. With client-go's 1000 s, a job could wait
as long again after an outage. It equals the longest back-off of a reflector, and also caps the bucket shared
by all keys."""
_OUTAGE: Final = (TransportError, ServerError, TooManyRequestsError, NoStatusError, DecodeError)


_LOG_FIELDS: Final = frozenset({"uid", "reconcile_id", "event", "level", "timestamp"})


class RequeueError(ApiError):
    """Raised by a sync whose view of the cluster is stale: the key is retried with back-off, without counting an error."""


class TerminalError(ApiError):
    """Raised by a sync for an error that retries cannot fix: it is logged and counted, and the key waits for its next event.

    Like controller-runtime's `reconcile.TerminalError`.
    """


@dataclass(frozen=True, slots=True)
class Result:
    """An optional return value of a sync: sync the key again after this many seconds. Its back-off is reset."""

    requeue_after_s: float


class Controller:
    """Syncs the keys of one queue.

    Invariants: the queue ensures that at most one worker processes a key at a time; an error in a sync delays only the retry of
    that key.
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
        """Create a controller; nothing runs yet.

        name: labels the metrics, and is the log field that contains the key during a sync.
        sync: moves the object with this key closer to its desired state; raises ApiError to be retried, or TerminalError if
            that would not help. It should not depend on the event that woke it. It may bind `uid` (`structlog.contextvars`)
            once known.
        queue: where the informers' handlers add keys; by default a new queue with the controller's name.
        outage: delays keys that failed because of the API server; by default at most OUTAGE_S.
        workers: the number of keys synced concurrently.
        sync_timeout_s: cancels a sync that takes longer, which then fails with a TimeoutError; None for no limit.
        on_start: awaited alongside the workers when this process becomes active.
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
        """Queue the keys that `key_of` returns for each object that is added, changed or deleted in the informer.

        `key_of` returns one key, several, or None. An update queues the keys of both the old and the new object, so that a
        former owner is notified (like controller-runtime's EnqueueRequestsFromMapFunc). Objects of the informer's first list
        have low priority.
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
        """Return the problem of the workers, or None."""
        ended = sum(task.done() for task in self._tasks)
        if ended and not self.queue.shutting_down:
            return f"{ended} of {self._workers} workers of {self.name} have ended"
        return self._metrics.check()

    async def run(self) -> None:
        """Sync keys until the queue is shut down. Remaining keys are left to the next leader.

        Raises RuntimeError if it is running already.
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
                # A sync with nothing to do never suspends, nor does `get` while keys are queued: yield to other tasks.
                await asyncio.sleep(0)

    async def _sync_next(self) -> None:
        """Sync the next key. Raises ShutDown if there is none."""
        key = await self.queue.get()
        try:
            # `uid` is known once the object was read; until then it must not be the previous one.
            fields = {self.name: key, "uid": "", "reconcile_id": uuid.uuid4().hex[:8]}
            with structlog.contextvars.bound_contextvars(**fields):
                await self._sync_counted(key)
        finally:
            self.queue.done(key)

    async def _sync_counted(self, key: str) -> None:
        started = self._clock.monotonic()
        self._metrics.started()
        result: ReconcileResult = "error"  # also if cancelled
        try:
            result = await self._sync_safely(key)
        finally:
            self._metrics.finished(result, self._clock.monotonic() - started)

    async def _sync_safely(self, key: str) -> ReconcileResult:
        try:
            async with asyncio.timeout(self._sync_timeout_s):
                result = await self._sync(key)
        except asyncio.CancelledError:
            if (worker := asyncio.current_task()) is not None and worker.cancelling():
                raise
            # Something awaited by the sync was cancelled, but not this worker, which serves all other keys.
            log.warning("sync_failed", error="cancelled from within", tries=self._tries(key))
            self.queue.add_rate_limited(key)
            return "error"
        except Exception as error:  # noqa: BLE001 - an error in one sync must not end the worker
            return self._failed(key, error)
        self.queue.forget(key)
        self._outage.forget(key)
        if result is None:
            return "success"
        self.queue.add_after(key, result.requeue_after_s)
        return "requeue_after"

    def _failed(self, key: str, error: Exception) -> ReconcileResult:
        """Log the error according to its type, and requeue the key. An exception group is treated as its most severe error."""
        errors = list(_flatten(error))
        text = "; ".join(dict.fromkeys(map(_text, errors)))
        if all(isinstance(each, (ConflictError, RequeueError)) for each in errors):
            # The cache is stale. The newer version will queue the key; this retry is a safety net.
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


def _flatten(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, or the errors of a group, including nested groups."""
    if isinstance(error, BaseExceptionGroup):
        for exception in error.exceptions:
            yield from _flatten(exception)
    else:
        yield error


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _queue(name: str, metrics: MetricsProvider, clock: Clock) -> RateLimitingQueue[str]:
    return RateLimitingQueue(default_controller_rate_limiter(), name=name, metrics=metrics, clock=clock)
