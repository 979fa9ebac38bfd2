"""The metrics of a controller's workers, named as controller-runtime's, and a check of the workers by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from tfjob_operator.workqueue.metrics import Metric

if TYPE_CHECKING:
    from tfjob_operator.workqueue import Clock, MetricsProvider

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
