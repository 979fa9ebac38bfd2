"""The metrics protocols used by every package, and the metrics of a queue.

This module does not depend on Prometheus. Each package declares its metric families as `Metric`s and gets their series from a
`MetricsProvider`. `PrometheusMetrics` (`controller.observability`) is the provider for Prometheus; `NO_METRICS` records
nothing. prometheus_client's labeled children satisfy the protocols directly. A queue without a provider or a name has no
`QueueMetrics`; the only cost is a None check.

Gauges are computed at scrape time, on the queue's own loop: they are exact, and cost nothing between scrapes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from tfjob_operator.workqueue.clock import Clock

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric family: name, help text and label names.

    `buckets` (upper bounds, in the unit of the name) apply to histograms only. Metrics of objects that exist several times in a
    process, such as queues and informers, have the label `name`. The name of a `prefixed` metric, which is about the whole
    process, follows the program's own prefix, such as `kettle_operator_`.
    """

    name: str
    help: str
    buckets: tuple[float, ...] = ()
    labels: tuple[str, ...] = ("name",)
    prefixed: bool = False


# 10 ns is below the resolution of any clock used here; a sync that takes over 10 s is stuck rather than slow.
DURATION_BUCKETS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)

DEPTH = Metric("workqueue_depth", "Items waiting to be processed, including items added again while being processed")
ADDS = Metric(
    "workqueue_adds_total", "Adds accepted by the queue; adding an item that is already waiting is not counted"
)
QUEUE_DURATION = Metric("workqueue_queue_duration_seconds", "Seconds from add to get", DURATION_BUCKETS)
WORK_DURATION = Metric("workqueue_work_duration_seconds", "Seconds from get to done", DURATION_BUCKETS)
UNFINISHED_WORK = Metric(
    "workqueue_unfinished_work_seconds", "Total time that items in progress have been processed so far"
)
LONGEST_RUNNING = Metric(
    "workqueue_longest_running_processor_seconds", "Time for which the longest-running item has been processed"
)
RETRIES = Metric("workqueue_retries_total", "Adds after a delay")


class Counter(Protocol):
    """A value that only increases."""

    def inc(self, amount: float = 1, /) -> None:
        """Add one, or `amount`."""
        ...


class Histogram(Protocol):
    """A distribution."""

    def observe(self, amount: float, /) -> None:
        """Count one value."""
        ...


class MetricsProvider(Protocol):
    """Creates series. A series starts at zero when first requested; later requests return the same series."""

    def counter(self, metric: Metric, *values: str) -> Counter:
        """Return the series of `metric` with these label values."""
        ...

    def gauge(self, metric: Metric, *values: str, read: Callable[[], float]) -> None:
        """Add the series of `metric` with these label values; `read` is called at each scrape, on the loop."""
        ...

    def gauges(self, metric: Metric, read: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """Add a gauge family; `read` returns its series, keyed by label values, at each scrape."""
        ...

    def histogram(self, metric: Metric, *values: str) -> Histogram:
        """Return the series of `metric` with these label values."""
        ...

    def remove(self, metric: Metric, *values: str) -> None:
        """Remove a series, which must exist."""
        ...


class _NoMetrics:
    """A no-op provider that is also its own no-op series."""

    def counter(self, _metric: Metric, *_values: str) -> _NoMetrics:
        return self

    histogram = counter

    def _nothing(self, *_values: object, read: object = None) -> None:
        pass

    gauge = gauges = remove = inc = observe = _nothing


NO_METRICS: Final[MetricsProvider] = _NoMetrics()
"""The provider that records nothing."""


class QueueMetrics(Generic[T]):
    """The metrics of one queue.

    The queue calls `add` for every accepted add, and `get` and `done` for every item that is processed. Invariants:
    - `_added` holds the time of the first add of every dirty item, and of every item handed to a getter that has not run yet.
      For an item added during processing, the time is that of this add, not of `done`;
    - `_started` holds the start time of every item in progress.
    """

    __slots__ = ("_added", "_adds", "_clock", "_queue_duration", "_started", "_work_duration")

    def __init__(self, provider: MetricsProvider, name: str, clock: Clock, depth: Callable[[], float]) -> None:
        """Create the series of the queue `name`; `depth` returns the number of dirty items."""
        self._clock = clock
        self._added: dict[T, float] = {}
        self._started: dict[T, float] = {}
        self._adds = provider.counter(ADDS, name)
        self._queue_duration = provider.histogram(QUEUE_DURATION, name)
        self._work_duration = provider.histogram(WORK_DURATION, name)
        provider.gauge(DEPTH, name, read=depth)
        provider.gauge(UNFINISHED_WORK, name, read=self.unfinished_work)
        provider.gauge(LONGEST_RUNNING, name, read=self.longest_running)

    def add(self, item: T) -> None:
        """Record that `item` became dirty."""
        self._adds.inc()
        self._added.setdefault(item, self._clock.monotonic())

    def get(self, item: T, *, is_dirty: bool) -> None:
        """Record that processing of `item` started; `is_dirty` if it was added again after its assignment to a getter."""
        now = self._clock.monotonic()
        self._started[item] = now
        self._queue_duration.observe(now - self._added.pop(item))
        if is_dirty:
            self._added[item] = now

    def done(self, item: T) -> None:
        """Record that processing of `item` finished."""
        self._work_duration.observe(self._clock.monotonic() - self._started.pop(item))

    def unfinished_work(self) -> float:
        """Return the total seconds that items in progress have taken so far; a steady increase means a stuck worker."""
        now = self._clock.monotonic()
        return sum(now - started for started in self._started.values())

    def longest_running(self) -> float:
        """Return for how many seconds the longest-running item has been processed; 0 if no item is in progress."""
        now = self._clock.monotonic()
        return max((now - started for started in self._started.values()), default=0.0)
