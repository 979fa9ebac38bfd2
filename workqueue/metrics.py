"""The protocols through which everything here is counted, and the metrics of a queue.

Nothing here knows Prometheus. Each package names its metric families as `Metric`s and asks a `MetricsProvider` for their
series. `PrometheusMetrics` (`controller.observability`) is the provider for Prometheus, `NO_METRICS` the one that counts
nothing. The protocols fit prometheus_client's labelled children as they are. A queue without a provider, or without a name,
counts nothing: it has None in place of a `QueueMetrics`, and pays one comparison.

Gauges are read when they are scraped, on the queue's own loop: exact then, and free between scrapes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from tfjob_operator.workqueue.clock import Clock

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family: its name, its help text, and the names of its labels.

    `buckets` (upper bounds, in the unit of the name) are for histograms only. What exists several times in a process, such
    as a queue or an informer, has the label `name`.
    """

    name: str
    help: str
    buckets: tuple[float, ...] = ()
    labels: tuple[str, ...] = ("name",)


# from 10 ns, below which no clock here can see, to 10 s, above which a sync is stuck rather than slow.
DURATION_BUCKETS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)

DEPTH = Metric("workqueue_depth", "Items that wait to be worked on, with those added again while in work")
ADDS = Metric("workqueue_adds_total", "Adds that the queue took; an add of an item that waits already is not one")
QUEUE_DURATION = Metric("workqueue_queue_duration_seconds", "Seconds from add to get", DURATION_BUCKETS)
WORK_DURATION = Metric("workqueue_work_duration_seconds", "Seconds from get to done", DURATION_BUCKETS)
UNFINISHED_WORK = Metric("workqueue_unfinished_work_seconds", "Sum of the ages of the items in work")
LONGEST_RUNNING = Metric("workqueue_longest_running_processor_seconds", "Age of the oldest item in work")
RETRIES = Metric("workqueue_retries_total", "Adds after a delay")


class Counter(Protocol):
    """A number that only grows."""

    def inc(self) -> None:
        """Add one."""
        ...


class Histogram(Protocol):
    """A distribution."""

    def observe(self, amount: float, /) -> None:
        """Count one value."""
        ...


class MetricsProvider(Protocol):
    """Makes series. A series exists, at zero, from when it is first asked for; a second request returns the same one."""

    def counter(self, metric: Metric, *values: str) -> Counter:
        """Return the series of `metric` whose labels have these values."""
        ...

    def gauge(self, metric: Metric, *values: str, read: Callable[[], float]) -> None:
        """Add the series of `metric` whose labels have these values; `read` is called at each scrape, on the loop."""
        ...

    def gauges(self, metric: Metric, read: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """Add a family of gauges; `read` returns its series at each scrape, by the values of the labels."""
        ...

    def histogram(self, metric: Metric, *values: str) -> Histogram:
        """Return the series of `metric` whose labels have these values."""
        ...

    def remove(self, metric: Metric, *values: str) -> None:
        """Remove a series, which must exist."""
        ...


class _NoMetrics:
    """A provider, and a series of each kind, that nobody reads."""

    def counter(self, _metric: Metric, *_values: str) -> _NoMetrics:
        return self

    histogram = counter

    def _nothing(self, *_values: object, read: object = None) -> None:
        pass

    gauge = gauges = remove = inc = observe = _nothing


NO_METRICS: Final[MetricsProvider] = _NoMetrics()
"""The provider that counts nothing."""


class QueueMetrics(Generic[T]):
    """The metrics of one queue. Its owner reports every accepted add, every get, and every done.

    Invariants:
    - `_added` has the time of the first add of every dirty item, and of every one on its way to a getter; an add during
      work counts from that add, not from done;
    - `_started` has the time of the get of every item in work.
    """

    __slots__ = ("_added", "_adds", "_clock", "_queue_duration", "_started", "_work_duration")

    def __init__(self, provider: MetricsProvider, name: str, clock: Clock, depth: Callable[[], float]) -> None:
        """Create the series of the queue `name`; `depth` returns how many items are dirty."""
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
        """Note that `item` became dirty."""
        self._adds.inc()
        self._added.setdefault(item, self._clock.monotonic())

    def get(self, item: T, *, is_dirty: bool) -> None:
        """Note that work on `item` begins; `is_dirty` if it was added again between its hand-over and now."""
        now = self._clock.monotonic()
        self._started[item] = now
        self._queue_duration.observe(now - self._added.pop(item))
        if is_dirty:
            self._added[item] = now

    def done(self, item: T) -> None:
        """Note that work on `item` ended."""
        self._work_duration.observe(self._clock.monotonic() - self._started.pop(item))

    def unfinished_work(self) -> float:
        """Return the sum of the ages of the items in work, in seconds; a steady climb means a stuck worker."""
        now = self._clock.monotonic()
        return sum(now - started for started in self._started.values())

    def longest_running(self) -> float:
        """Return the age of the oldest item in work, in seconds; 0 when there is none."""
        now = self._clock.monotonic()
        return max((now - started for started in self._started.values()), default=0.0)
