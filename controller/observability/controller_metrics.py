"""What a controller does: its jobs, its reconciles, its lost events, and whether it leads."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import CollectorRegistry

    from tfjob_operator.workqueue.clock import Clock

TRANSITIONS: Final = {
    "created": "Jobs that were taken on",
    "deleted": "Jobs that were deleted, of those that were worked on",
    "successful": "Jobs that have succeeded",
    "failed": "Jobs that have failed",
    "restarted": "Times that a job began to restart replicas",
}
RESULTS: Final = ("success", "error", "requeue")

# From a sync that finds nothing to do (below 0.1 ms) to one whose requests have all run into their limits.
RECONCILE_BUCKETS: Final = (0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

STUCK_S: Final = 1800.0
"""No worker finishing or beginning anything for so long is a fault of ours: every request has a limit, and the longest that
one can take with all its retries is 13 minutes. It is long because a restart would not help a slow API server."""


class JobCounters:
    """Counts the transitions of jobs in two families that dashboards of other operators read: one sum, and one by namespace.

    The label's values are the namespaces that have held jobs since this process began.
    """

    def __init__(self, registry: CollectorRegistry, *, framework: str) -> None:
        """Make the families; `framework` is a label of the second one."""
        self._framework = framework
        self._all = {
            name: Counter(f"tf_operator_jobs_{name}_total", text, registry=registry)
            for name, text in TRANSITIONS.items()
        }
        labels = ("job_namespace", "framework")
        self._by_namespace = {
            name: Counter(f"training_operator_jobs_{name}_total", f"{text}, by namespace", labels, registry=registry)
            for name, text in TRANSITIONS.items()
        }

    def expect(self, namespaces: Iterable[str]) -> None:
        """Let the series of these namespaces be there, at zero, before anything happens in them."""
        for namespace, family in product(namespaces, self._by_namespace.values()):
            family.labels(namespace, self._framework)

    def job_created(self, namespace: str) -> None:
        """Count a job that was taken on."""
        self._count("created", namespace)

    def job_deleted(self, namespace: str) -> None:
        """Count a job that was deleted."""
        self._count("deleted", namespace)

    def job_succeeded(self, namespace: str) -> None:
        """Count a job that has succeeded."""
        self._count("successful", namespace)

    def job_failed(self, namespace: str) -> None:
        """Count a job that has failed."""
        self._count("failed", namespace)

    def job_restarted(self, namespace: str) -> None:
        """Count a job that restarts replicas."""
        self._count("restarted", namespace)

    def _count(self, transition: str, namespace: str) -> None:
        self.expect([namespace])
        self._all[transition].inc()
        self._by_namespace[transition].labels(namespace, self._framework).inc()


class ReconcileMetrics:
    """The books of one controller's workers, under controller-runtime's names; and from them whether the workers live."""

    def __init__(self, registry: CollectorRegistry, controller: str, *, workers: int, clock: Clock) -> None:
        """Make all series of the controller with that name, which has so many workers."""
        self._clock = clock
        self._workers = workers
        self._active = 0
        self._moved_at = 0.0
        prefix, labels = "controller_runtime", ("controller",)
        results = Counter(f"{prefix}_reconcile_total", "Reconciles", (*labels, "result"), registry=registry)
        self._results = {result: results.labels(controller, result) for result in RESULTS}
        self._errors = Counter(
            f"{prefix}_reconcile_errors_total", "Reconciles that failed", labels, registry=registry
        ).labels(controller)
        self._panics = Counter(
            f"{prefix}_reconcile_panics_total", "Reconciles that failed by a bug of ours", labels, registry=registry
        ).labels(controller)
        self._time = Histogram(
            f"{prefix}_reconcile_time_seconds",
            "Seconds that a reconcile took",
            labels,
            registry=registry,
            buckets=RECONCILE_BUCKETS,
        ).labels(controller)
        Gauge(f"{prefix}_max_concurrent_reconciles", "Workers", labels, registry=registry).labels(controller).set(
            workers
        )
        Gauge(f"{prefix}_active_workers", "Workers that reconcile now", labels, registry=registry).labels(
            controller
        ).set_function(lambda: self._active)

    def begun(self) -> None:
        """Note that a worker begins a reconcile."""
        self._active += 1
        self._moved_at = self._clock.monotonic()

    def ended(self, result: str, seconds: float) -> None:
        """Note that a worker has ended one; `result` is one of success, error, requeue, and panic."""
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
        """Return what is wrong with the workers, or None: that all of them are at work and none gets anywhere."""
        if self._active < self._workers:
            return None
        still_s = self._clock.monotonic() - self._moved_at
        if still_s <= STUCK_S:
            return None
        return f"all {self._workers} workers have been busy with the same keys for {still_s:.0f} s"


class EventMetrics:
    """Counts events that were not written (`controller.events.RecorderMetrics`)."""

    def __init__(self, registry: CollectorRegistry, *, types: Iterable[str], reasons: Iterable[str]) -> None:
        """Make the series of all types and reasons that there are."""
        self._dropped = Counter(
            "tf_operator_events_dropped_total", "Events that were not written", ("type", "why"), registry=registry
        )
        for event_type, why in product(types, reasons):
            self._dropped.labels(event_type, why)

    def event_dropped(self, event_type: str, why: str) -> None:
        """See `RecorderMetrics.event_dropped`."""
        self._dropped.labels(event_type, why).inc()


def add_leader_gauge(registry: CollectorRegistry, leads: Callable[[], bool]) -> None:
    """Tell whether this process leads: `leads` is asked at each scrape."""
    gauge = Gauge("tf_operator_is_leader", "Whether this process does the work: 1 or 0", registry=registry)
    gauge.set_function(lambda: float(leads()))
