"""The counters of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.workqueue.metrics import NO_METRICS, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfjob_operator.workqueue.metrics import Counter, MetricsProvider

FRAMEWORK: Final = "tensorflow"
"""The label that separates TFJobs from other kinds of jobs in the family `training_operator_jobs_*`."""
TRANSITIONS: Final = {
    "created": "Jobs that were taken on",
    "deleted": "Jobs that were deleted, of those that were worked on",
    "successful": "Jobs that have succeeded",
    "failed": "Jobs that have failed",
    "restarted": "Times that a job began to restart replicas",
}
TOTALS: Final = {name: Metric(f"tf_operator_jobs_{name}_total", text, labels=()) for name, text in TRANSITIONS.items()}
BY_NAMESPACE: Final = {
    name: Metric(f"training_operator_jobs_{name}_total", f"{text}, by namespace", labels=("job_namespace", "framework"))
    for name, text in TRANSITIONS.items()
}


class JobMetrics:
    """Counts the transitions of jobs in two families that dashboards of other operators read: one in total, one by namespace.

    Namespaces become labels when they have their first job.
    """

    def __init__(self, metrics: MetricsProvider = NO_METRICS) -> None:
        """Make the families."""
        self._metrics = metrics
        self._totals = {name: metrics.counter(metric) for name, metric in TOTALS.items()}

    def expect(self, namespaces: Iterable[str]) -> None:
        """Create the series of these namespaces, at zero, before anything happens in them."""
        for namespace in namespaces:
            for transition in TRANSITIONS:
                self._of(transition, namespace)

    def job_created(self, namespace: str) -> None:
        """Count a job that got its Created condition."""
        self._count("created", namespace)

    def job_deleted(self, namespace: str) -> None:
        """Count a job that was deleted."""
        self._count("deleted", namespace)

    def job_succeeded(self, namespace: str) -> None:
        """Count a job that got its Succeeded condition."""
        self._count("successful", namespace)

    def job_failed(self, namespace: str) -> None:
        """Count a job that got its Failed condition."""
        self._count("failed", namespace)

    def job_restarted(self, namespace: str) -> None:
        """Count a job that got its Restarting condition."""
        self._count("restarted", namespace)

    def _count(self, transition: str, namespace: str) -> None:
        self.expect([namespace])
        self._totals[transition].inc()
        self._of(transition, namespace).inc()

    def _of(self, transition: str, namespace: str) -> Counter:
        return self._metrics.counter(BY_NAMESPACE[transition], namespace, FRAMEWORK)
