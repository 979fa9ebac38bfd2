"""Metrics for Prometheus: one registry for each process, and the `MetricsProvider` that all packages use.

prometheus_client is imported in `controller.observability` alone. Everything here belongs to the loop's thread: gauges are
read at each scrape from where their values are kept, so the page must be made on that thread (`http_server` does).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

if TYPE_CHECKING:
    from tfjob_operator.workqueue.metrics import Metric

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
"""What `exposition` is written in; every Prometheus since 0.4 reads it."""


def new_registry() -> CollectorRegistry:
    """Return a registry with the process's CPU, memory and open files, and the interpreter's garbage collections."""
    # Else every counter has a second series, which says when it was made: nothing reads it.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    """Return the page that Prometheus scrapes."""
    return generate_latest(registry)


class PrometheusMetrics:
    """`workqueue.MetricsProvider` for all packages. A family is created with its first series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}

    def counter(self, metric: Metric, *values: str) -> Counter:
        """See `MetricsProvider.counter`."""
        family = self._counters.get(metric.name)
        if family is None:
            family = Counter(metric.name, metric.help, metric.labels, registry=self._registry)
            self._counters[metric.name] = family
        return family.labels(*values) if values else family

    def gauge(self, metric: Metric, *values: str) -> Gauge:
        """See `MetricsProvider.gauge`."""
        family = self._gauges.get(metric.name)
        if family is None:
            family = Gauge(metric.name, metric.help, metric.labels, registry=self._registry)
            self._gauges[metric.name] = family
        return family.labels(*values) if values else family

    def histogram(self, metric: Metric, *values: str) -> Histogram:
        """See `MetricsProvider.histogram`."""
        family = self._histograms.get(metric.name)
        if family is None:
            family = Histogram(metric.name, metric.help, metric.labels, registry=self._registry, buckets=metric.buckets)
            self._histograms[metric.name] = family
        return family.labels(*values) if values else family
