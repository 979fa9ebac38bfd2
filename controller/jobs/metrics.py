"""The counters of jobs: counts and logs transitions of conditions once they are on the API server, and paces status writes.

A status write costs as much as creating two pods, so a less important one is delayed until it carries more changes (`Window`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import JobCondition
from tfjob_operator.workqueue.metrics import NO_METRICS, Counter, Metric, MetricsProvider

FRAMEWORK: Final = "tensorflow"
"""The label that separates TFJobs from other kinds of jobs in the family `training_operator_jobs_*`."""
TRANSITIONS: Final = {
    "created": "Number of jobs created",
    "deleted": "Number of jobs deleted",
    "successful": "Number of jobs succeeded",
    "failed": "Number of jobs failed",
    "restarted": "Number of times a job restarted replicas",
}
TOTALS: Final = {name: Metric(f"tf_operator_jobs_{name}_total", text, labels=()) for name, text in TRANSITIONS.items()}
BY_NAMESPACE: Final = {
    name: Metric(f"training_operator_jobs_{name}_total", f"{text}, by namespace", labels=("job_namespace", "framework"))
    for name, text in TRANSITIONS.items()
}


class JobMetrics:
    """Counts transitions of jobs in two families, in total and by namespace, which become labels with their first job."""

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


log = structlog.get_logger(__name__)


def observe(metrics: JobMetrics, namespace: str, before: Sequence[JobCondition], after: Sequence[JobCondition]) -> None:
    """Count and log each condition that has become True. `before` are the conditions that `after` replaced."""
    counters: dict[str, Callable[[str], None]] = {
        ConditionType.CREATED: metrics.job_created,
        ConditionType.SUCCEEDED: metrics.job_succeeded,
        ConditionType.FAILED: metrics.job_failed,
        ConditionType.RESTARTING: metrics.job_restarted,
    }
    were_true = {each.type for each in before if each.status == conditions.TRUE}
    for condition in after:
        if condition.status != conditions.TRUE or condition.type in were_true:
            continue
        if condition.type in counters:
            counters[condition.type](namespace)
        tell = log.warning if condition.type in {ConditionType.FAILED, ConditionType.RESTARTING} else log.info
        tell("tfjob_condition", condition=condition.type, reason=condition.reason, message=condition.message)


COUNTER_WINDOW_S: Final = 1.0
"""How long a status waits in which only counters changed."""
START_WINDOW_S: Final = 5.0
"""How long it waits where pods have only become active, and other jobs are in the queue: in a burst the pods of a job start
one after the other, and one write reports them all. When no other job waits, COUNTER_WINDOW_S applies (U12). What a
pod's end proves never waits that long."""


@dataclass(slots=True)
class Window:
    """The delay of a job's status write, by one monotonic clock: since `opened_at` a change waits, `write_by` it is written."""

    opened_at: float | None = None
    write_by: float | None = None

    def left_s(self, now: float, *, starts: bool, busy: bool) -> float:
        """Return for how many seconds a status that is computed now still waits; 0 or less means: write it now.

        starts: it differs only in that more pods are active.
        busy: other jobs wait for a worker.
        """
        if self.opened_at is None:
            self.opened_at = now
        if starts:
            latest = self.opened_at + (START_WINDOW_S if busy else COUNTER_WINDOW_S)
        else:
            latest = self.write_by = now + COUNTER_WINDOW_S if self.write_by is None else self.write_by
        return (latest if self.write_by is None else min(latest, self.write_by)) - now

    def close(self) -> None:
        """End the wait: the status is written."""
        self.opened_at = self.write_by = None
