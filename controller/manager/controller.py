"""The worker loop of a controller: workers take keys from a queue and sync them; failed keys are retried with growing delays.

The metrics have the names of controller-runtime's, and a liveness check of the workers is derived from them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

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
from tfjob_operator.api.meta import DeclaredLabels, Object
from tfjob_operator.informers import EventHandlerFuncs, SharedIndexInformer, object_of
from tfjob_operator.informers.deltas import T
from tfjob_operator.informers.handlers import T_contra
from tfjob_operator.informers.listers import parse_labels
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
TIMEOUTS: Final = Metric(
    "controller_runtime_reconcile_timeouts_total", "Reconciles that were cancelled by their timeout", labels=_LABELS
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
        self._timeouts = provider.counter(TIMEOUTS, controller)
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

    def timed_out(self) -> None:
        """Record that a reconcile reached the controller's own time limit; it also counts as an error."""
        self._timeouts.inc()

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
MAX_CONFLICTS: Final = 12
"""A conflict means that the cache is stale, and the next retry finds a newer one. After this many failures in a row, which take
10 s, a newer cache has not helped: the name belongs to an object that the cache does not have, for example one outside of the
informer's selector. The conflict is then logged and counted as an error."""
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
    """An optional return value of a sync: sync the key again after this many seconds. Its back-off is reset.

    With 0, as in controller-runtime, the sync is done, and the key waits for its next event. Raises ValueError for a negative,
    infinite or undefined time. To retry at once, raise `RequeueError`, which is delayed by the back-off.
    """

    requeue_after_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.requeue_after_s < math.inf:
            raise ValueError(
                f"a key cannot be requeued after {self.requeue_after_s} s: return None if the sync is done"
            )


class Predicate(Protocol[T_contra]):
    """Decides whether an event queues keys, like controller-runtime's predicates."""

    def __call__(self, old: T_contra | None, new: T_contra | None, /) -> bool:
        """Return False to ignore the event. `old` is None for an add, `new` is None for a deletion."""
        ...


def generation_changed(old: Object | None, new: Object | None) -> bool:
    """Ignore updates that leave `metadata.generation` as it is: those of the status, labels and annotations, and resyncs.

    Also return True if the object was replaced by another of its name, and for kinds without a generation, such as ConfigMaps,
    whose changes would all be ignored. If a controller ignores updates of the status, it does not repair one that another
    client changed.
    """
    if old is None or new is None or _is_replaced(old, new):
        return True
    return not new.metadata.generation or new.metadata.generation != old.metadata.generation


def labels_changed(old: Object | None, new: Object | None) -> bool:
    """Ignore updates that leave the labels as they are.

    Also return True if the object was replaced by another of its name, and for metadata that declares no labels, such as
    `Meta`, which cannot show a change.
    """
    if old is None or new is None or _is_replaced(old, new):
        return True
    before, after = old.metadata.label_map(), new.metadata.label_map()
    return dict(before) != dict(after) or (isinstance(after, DeclaredLabels) and not after.declared)


def has_labels(selector: str) -> Predicate[Object]:
    """Return a predicate that ignores objects whose labels do not match. Raises SelectorError.

    An update is not ignored if the labels matched before it: otherwise the controller would not notice that they no longer do.
    """
    parsed = parse_labels(selector)
    return lambda old, new: any(item is not None and parsed.matches(item.metadata.label_map()) for item in (old, new))


def all_of(*predicates: Predicate[T]) -> Predicate[T]:
    """Return a predicate that ignores an event if any of these does."""
    return lambda old, new: all(predicate(old, new) for predicate in predicates)


def any_of(*predicates: Predicate[T]) -> Predicate[T]:
    """Return a predicate that ignores an event only if all of these do."""
    return lambda old, new: any(predicate(old, new) for predicate in predicates)


def none_of(*predicates: Predicate[T]) -> Predicate[T]:
    """Return a predicate that ignores an event unless all of these do."""
    return lambda old, new: not any(predicate(old, new) for predicate in predicates)


def _is_replaced(old: Object, new: Object) -> bool:
    """Return True for an object that was deleted and created again while no watch was open."""
    return old.metadata.uid != new.metadata.uid


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

        Raises ValueError for a name that is missing or a field of the log, and if no sync could ever succeed: without workers,
        or without time.
        """
        if not name or name in _LOG_FIELDS:
            raise ValueError(
                f"a controller cannot be named {name!r}: its keys need a log field that no other part of the line has"
            )
        if workers < 1:
            raise ValueError(f"controller {name} needs at least one worker, got {workers}")
        if sync_timeout_s is not None and not sync_timeout_s > 0:
            raise ValueError(
                f"sync_timeout_s of controller {name} must be positive, not {sync_timeout_s}; None means no limit"
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
        self.informers: list[SharedIndexInformer[Any]] = []
        """The informers for which `watch` was called."""
        self._outage = outage or WithMaxWaitRateLimiter(
            default_controller_rate_limiter(max_delay_s=OUTAGE_S, clock=clock), OUTAGE_S
        )
        self._metrics = ReconcileMetrics(metrics, name, workers=workers, clock=clock)

    def watch(
        self,
        informer: SharedIndexInformer[T],
        key_of: Callable[[T], str | Iterable[str] | None],
        *,
        predicate: Predicate[T] | None = None,
    ) -> None:
        """Queue the keys that `key_of` returns for each object that is added, changed or deleted in the informer.

        `key_of` returns one key, several, or None. An update queues the keys of both the old and the new object, so that a
        former owner is notified (like controller-runtime's EnqueueRequestsFromMapFunc). Objects of the informer's first list,
        and resyncs that change nothing, have low priority. `predicate` ignores events for which it returns False. If `key_of`
        or `predicate` raises an error, the event is lost: it is logged and counted, but not repeated before the next resync.
        """

        def enqueue(old: T | None, new: T | None, *, low_priority: bool = False) -> None:
            if predicate is not None and not predicate(old, new):
                return
            found: dict[str, None] = {}
            for item in (old, new):
                keys = None if item is None else key_of(item)
                found |= dict.fromkeys(() if keys is None else (keys,) if isinstance(keys, str) else keys)
            for key in found:
                self.queue.add(key, low_priority=low_priority)

        informer.add_event_handler(
            EventHandlerFuncs(
                on_add=lambda item, is_in_initial_list: enqueue(None, item, low_priority=is_in_initial_list),
                on_update=lambda old, new: enqueue(
                    old, new, low_priority=old.metadata.resource_version == new.metadata.resource_version
                ),
                on_delete=lambda item: enqueue(object_of(item), None),
            )
        )
        self.informers.append(informer)
        informer.watched_by.append(self)

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
        key, low_priority = await self.queue.get_with_priority()
        try:
            # `uid` is known once the object was read; until then it must not be the previous one.
            fields = {self.name: key, "uid": "", "reconcile_id": uuid.uuid4().hex[:8]}
            with structlog.contextvars.bound_contextvars(**fields):
                await self._sync_counted(key, low_priority=low_priority)
        finally:
            self.queue.done(key)

    async def _sync_counted(self, key: str, *, low_priority: bool) -> None:
        started = self._clock.monotonic()
        self._metrics.started()
        result: ReconcileResult = "error"  # also if cancelled
        try:
            result = await self._sync_safely(key, low_priority=low_priority)
        finally:
            self._metrics.finished(result, self._clock.monotonic() - started)

    async def _sync_safely(self, key: str, *, low_priority: bool) -> ReconcileResult:
        limit = asyncio.timeout(self._sync_timeout_s)
        try:
            async with limit:
                result = _checked(await self._sync(key))
        except asyncio.CancelledError:
            if (worker := asyncio.current_task()) is not None and worker.cancelling():
                raise
            # Something awaited by the sync was cancelled, but not this worker, which serves all other keys.
            log.warning("sync_failed", error="cancelled from within", tries=self._tries(key))
            self.queue.add_rate_limited(key, low_priority=low_priority)
            return "error"
        except Exception as error:  # noqa: BLE001 - an error in one sync must not end the worker
            if limit.expired() and isinstance(error, TimeoutError):
                error = TimeoutError(f"the sync did not end within {self._sync_timeout_s:g} s")
            return self._failed(key, error, low_priority=low_priority)
        finally:
            if limit.expired():
                self._metrics.timed_out()
        self._forget(key)
        if result is None or not result.requeue_after_s:
            return "success"
        self.queue.add_after(key, result.requeue_after_s, low_priority=low_priority)
        return "requeue_after"

    def _failed(self, key: str, error: Exception, *, low_priority: bool) -> ReconcileResult:
        """Log the error according to its type, and requeue the key. An exception group is treated as its most severe error."""
        errors = list(_flatten(error))
        text = "; ".join(dict.fromkeys(map(_text, errors)))
        tries = self._tries(key)
        if all(_is_stale(each, tries) for each in errors):
            # The cache is stale. The newer version will queue the key; this retry is a safety net.
            log.debug("sync_conflict", error=text)
            self.queue.add_rate_limited(key, low_priority=low_priority)
            return "requeue"
        if not all(isinstance(each, (ApiError, TimeoutError)) for each in errors):
            log.error("sync_crashed", exc_info=error, tries=tries)
            self.queue.add_rate_limited(key, low_priority=low_priority)
            return "panic"
        log.warning("sync_failed", error=text, tries=tries)
        if any(isinstance(each, TerminalError) for each in errors):
            self._forget(key)
            return "terminal"
        if any(isinstance(each, _OUTAGE) for each in errors):
            self.queue.add_after(key, self._outage.when(key), low_priority=low_priority)
        else:
            self.queue.add_rate_limited(key, low_priority=low_priority)
        return "error"

    def _forget(self, key: str) -> None:
        self.queue.forget(key)
        self._outage.forget(key)

    def _tries(self, key: str) -> int:
        return self.queue.num_requeues(key) + self._outage.num_requeues(key) + 1


def _checked(result: object) -> Result | None:
    """Return what a sync has returned. Raises TypeError, which concerns only this key: for example, for `return 60`."""
    if not isinstance(result, Result | None):
        raise TypeError(f"a sync must return a Result or None, not {result!r}")
    return result


def _flatten(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, or the errors of a group, including nested groups."""
    if isinstance(error, BaseExceptionGroup):
        for exception in error.exceptions:
            yield from _flatten(exception)
    else:
        yield error


def _is_stale(error: BaseException, tries: int) -> bool:
    """Return True if the key failed because of a stale cache, so that a retry with a newer one may succeed."""
    if isinstance(error, RequeueError):
        return True
    return isinstance(error, ConflictError) and tries <= MAX_CONFLICTS and not error.by_field_manager


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _queue(name: str, metrics: MetricsProvider, clock: Clock) -> RateLimitingQueue[str]:
    return RateLimitingQueue(default_controller_rate_limiter(), name=name, metrics=metrics, clock=clock)
