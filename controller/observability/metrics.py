"""Prometheus metrics: one registry per process, the `MetricsProvider` for all packages, and event loop metrics.

prometheus_client is imported only in `controller.observability`. Everything here belongs to the loop's thread: gauges are
computed at each scrape, so the page must be rendered on that thread (`http_server` does).

Late timers indicate that the loop is blocked, which also blocks leases, probes and all jobs. A growing number of tasks
indicates a leak.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from tfjob_operator.workqueue.clock import Clock
from tfjob_operator.workqueue.metrics import Metric, MetricsProvider

F = TypeVar("F", Counter, Gauge, Histogram)
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
exposition: Final = generate_latest
"""Renders the metrics page, in CONTENT_TYPE, supported by every Prometheus since 0.4."""


def new_registry() -> CollectorRegistry:
    """Return a registry with the process's CPU, memory and open files, and the garbage collector's metrics."""
    # Otherwise every counter has a second series with its creation time, which is not used.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class PrometheusMetrics:
    """`workqueue.MetricsProvider` for all packages. A family is created with its first series.

    `prefix` is put before the names of `prefixed` metrics: `kettle_operator_` gives `kettle_operator_event_loop_tasks`.
    """

    def __init__(self, registry: CollectorRegistry, *, prefix: str = "") -> None:
        self._registry = registry
        self._prefix = prefix
        self._families: dict[str, Counter | Gauge | Histogram] = {}

    def counter(self, metric: Metric, *values: str) -> Counter:
        """See `MetricsProvider.counter`."""
        return self._series(Counter, metric, values)

    def gauge(self, metric: Metric, *values: str, read: Callable[[], float]) -> None:
        """See `MetricsProvider.gauge`."""
        self._series(Gauge, metric, values).set_function(read)

    def gauges(self, metric: Metric, read: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """See `MetricsProvider.gauges`."""
        self._registry.register(_GaugeFamily(self._named(metric), read))

    def remove(self, metric: Metric, *values: str) -> None:
        """See `MetricsProvider.remove`."""
        self._families[metric.name].remove(*values)

    def histogram(self, metric: Metric, *values: str) -> Histogram:
        """See `MetricsProvider.histogram`."""
        return self._series(Histogram, metric, values, buckets=metric.buckets)

    def _series(self, kind: type[F], metric: Metric, values: tuple[str, ...], **how: Any) -> F:
        family: Any = self._families.get(metric.name)
        if family is None:
            name = self._named(metric).name
            family = kind(name, metric.help, metric.labels, registry=self._registry, **how)
            self._families[metric.name] = family
        series: F = family.labels(*values) if values else family
        return series

    def _named(self, metric: Metric) -> Metric:
        return replace(metric, name=f"{self._prefix}{metric.name}", prefixed=False) if metric.prefixed else metric


class _GaugeFamily(Collector):
    """Gauges whose series are computed at each scrape."""

    def __init__(self, metric: Metric, read: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        self._metric, self._read = metric, read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Compute the series."""
        family = GaugeMetricFamily(self._metric.name, self._metric.help, labels=self._metric.labels)
        for values, value in self._read().items():
            family.add_metric(values, value)
        yield family


PERIOD_S: Final = 0.5
"""A loop blocked for this long is always detected; one blocked for a tenth of it, one time in ten. Two wake-ups a second have
no measurable cost."""


# From a healthy millisecond to 10 s, beyond which the lease is at risk.
BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LAG: Final = Metric("event_loop_lag_seconds", "Delay of an event loop timer in seconds", BUCKETS, (), prefixed=True)
TASKS: Final = Metric("event_loop_tasks", "Number of tasks of the event loop", (), (), prefixed=True)


class LoopLag:
    """Measures the delay of timers, and counts tasks."""

    def __init__(self, metrics: MetricsProvider, clock: Clock) -> None:
        self._clock = clock
        self._lag = metrics.histogram(LAG)
        metrics.gauge(TASKS, read=lambda: len(asyncio.all_tasks()))

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due = self._clock.monotonic() + PERIOD_S
            await asyncio.sleep(PERIOD_S)
            self._lag.observe(max(0.0, self._clock.monotonic() - due))
