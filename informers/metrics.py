"""The metrics of an informer, with the informer's name as label.

Gauges are computed at scrape time. The `reflector_*` names are earlier names of client-go, which no longer reports them. The
`informer_*` names are current names of client-go, and our own.
"""

from __future__ import annotations

from collections.abc import Callable

from tfjob_operator.workqueue.metrics import Metric, MetricsProvider

# An empty list takes 1 ms, and list requests time out after 60 s; watches end after 300 to 600 s.
LIST_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
WATCH_BUCKETS = (1.0, 10.0, 60.0, 120.0, 300.0, 400.0, 500.0, 600.0, 1200.0)
COUNT_BUCKETS = (0.0, 1.0, 10.0, 100.0, 500.0, 1000.0, 5000.0, 10_000.0, 50_000.0, 100_000.0)
LATENCY_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

LISTS = Metric("reflector_lists_total", "Complete lists received, by list requests or streaming lists")
LIST_DURATION = Metric(
    "reflector_list_duration_seconds", "Seconds from the first request to the last object", LIST_BUCKETS
)
ITEMS_PER_LIST = Metric("reflector_items_per_list", "Objects in a complete list", COUNT_BUCKETS)
WATCHES = Metric("reflector_watches_total", "Watches that were opened and have ended")
SHORT_WATCHES = Metric("reflector_short_watches_total", "Watches that ended within a second without an event")
WATCH_DURATION = Metric(
    "reflector_watch_duration_seconds", "Seconds from the request of a watch to its end", WATCH_BUCKETS
)
ITEMS_PER_WATCH = Metric("reflector_items_per_watch", "Events in a watch, bookmarks included", COUNT_BUCKETS)
LAST_VERSION = Metric("reflector_last_resource_version", "Last resourceVersion received")
DISCONNECTED = Metric("reflector_disconnected_seconds", "Seconds since a watch was last open; 0 while one is open")
FAILURES = Metric("reflector_failures_total", "Failures of lists and watches that require a new list")
UNDECODABLE = Metric("informer_undecodable_objects_total", "Objects skipped because they could not be decoded")

QUEUED_ITEMS = Metric("informer_queued_items", "Deltas waiting to be applied to the store")
PROCESSING_LATENCY = Metric(
    "informer_processing_latency_seconds", "Seconds to apply a batch of deltas", LATENCY_BUCKETS
)
STORED_OBJECTS = Metric("informer_store_objects", "Objects in the store")
STORE_VERSION = Metric("informer_store_resource_version", "resourceVersion up to which the store is complete")
HANDLER_ERRORS = Metric("informer_handler_errors_total", "Notifications whose handler raised")


class ReflectorMetrics:
    """The metrics of one reflector."""

    def __init__(
        self,
        provider: MetricsProvider,
        name: str,
        *,
        last_version: Callable[[], float],
        disconnected: Callable[[], float],
    ) -> None:
        """Create the series of the informer `name`; the functions return the current values of its gauges."""
        self._lists = provider.counter(LISTS, name)
        self._list_duration = provider.histogram(LIST_DURATION, name)
        self._items_per_list = provider.histogram(ITEMS_PER_LIST, name)
        self._watches = provider.counter(WATCHES, name)
        self._short_watches = provider.counter(SHORT_WATCHES, name)
        self._watch_duration = provider.histogram(WATCH_DURATION, name)
        self._items_per_watch = provider.histogram(ITEMS_PER_WATCH, name)
        self.failures = provider.counter(FAILURES, name)
        self.undecodable = provider.counter(UNDECODABLE, name)
        provider.gauge(LAST_VERSION, name, read=last_version)
        provider.gauge(DISCONNECTED, name, read=disconnected)

    def listed(self, seconds: float, items: int) -> None:
        """Record a complete list."""
        self._lists.inc()
        self._list_duration.observe(seconds)
        self._items_per_list.observe(items)

    def watched(self, seconds: float, events: int, *, short: bool) -> None:
        """Record a watch that has ended; `short` if it was a very short one."""
        self._watches.inc()
        if short:
            self._short_watches.inc()
        self._watch_duration.observe(seconds)
        self._items_per_watch.observe(events)


class InformerMetrics:
    """The metrics of one informer, without its reflector's."""

    def __init__(
        self,
        provider: MetricsProvider,
        name: str,
        *,
        queued: Callable[[], float],
        stored: Callable[[], float],
        store_version: Callable[[], float],
    ) -> None:
        """Create the series of the informer `name`; the functions return the current values of its gauges."""
        self.processing_latency = provider.histogram(PROCESSING_LATENCY, name)
        self.handler_errors = provider.counter(HANDLER_ERRORS, name)
        provider.gauge(QUEUED_ITEMS, name, read=queued)
        provider.gauge(STORED_OBJECTS, name, read=stored)
        provider.gauge(STORE_VERSION, name, read=store_version)


def version_as_number(version: str) -> float:
    """Return a resourceVersion for a gauge. Versions are opaque, so return 0 for one that is not a number.

    Only the last 15 digits are used, which fit a float exactly.
    """
    return float(version[-15:]) if version.isdecimal() else 0.0
