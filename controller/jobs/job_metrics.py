"""The metrics of jobs, in both dialects. Condition transitions are counted and logged once they are on the API server."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.v1 import conditions, states
from tfjob_operator.api.v1.constants import LABEL_QUEUE, MANAGED_BY_US, ConditionType
from tfjob_operator.api.v1.constants import ConditionReason as Reason
from tfjob_operator.api.v1.reader import Reader
from tfjob_operator.api.v1.templates import decode_spec
from tfjob_operator.api.v1.types import JobAttempt, JobCondition, TFJob, by_outcome
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaStatus
from tfjob_operator.informers import Indexer
from tfjob_operator.workqueue.metrics import NO_METRICS, Counter, Metric, MetricsProvider

FRAMEWORK: Final = "tensorflow"
"""The label that distinguishes TFJobs from other kinds in the family `training_operator_jobs_*`."""
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
FAILURES: Final = Metric(
    "tf_operator_job_failures_total", "Number of jobs failed, by reason", labels=("namespace", "reason")
)
REASONS: Final = (Reason.FAILED, Reason.BY_RULE, Reason.LIMIT, Reason.INVALID, Reason.REFUSED, Reason.TOO_LARGE)
ACTIONS: Final = Metric(
    "tf_operator_failure_policy_actions_total",
    "Number of replica failures matched by a rule of a failure policy",
    labels=("namespace", "rule", "action", "replica_type"),
)
ACCELERATORS: Final = Metric(
    "tf_operator_accelerator_seconds_total",
    "Seconds for which ended pods held extended resources, by outcome",
    labels=("namespace", "resource", "outcome"),
)
MAX_CHOSEN: Final = 100
"""Maximum number of series per namespace of a metric with names that users choose. Further names count as OTHER."""
OTHER: Final = "other"
START: Final = Metric(
    "tf_operator_job_start_seconds",
    "Seconds from the creation or resumption of a job until it was first Running",
    buckets=(1, 5, 15, 30, 60, 120, 300, 900, 3600, 14_400, 86_400),
    labels=("namespace",),
)
REFUSED_STATUSES: Final = Metric(
    "tf_operator_jobs_status_refused", "Number of jobs whose status the API server refuses to store", labels=()
)
JOBS: Final = Metric("tf_operator_jobs", "Number of jobs by state", labels=("namespace", "state"))
WAITING_SINCE: Final = Metric(
    "tf_operator_jobs_waiting_since_timestamp_seconds",
    "Since when the job that has waited longest in a state is in it, in Unix time",
    labels=("namespace", "state"),
)
QUEUED: Final = "Queued"
"""In WAITING_SINCE: a job with the label of a queue is suspended. What a user suspends does not wait."""
STATE_INDEX: Final = "state"
WAITING_INDEX: Final = "waiting"
KEPT_S: Final = 2 * 86_400.0
"""How long the series of a namespace without jobs are exported: a nightly job must not lose its counters."""
_COUNTED: Final = {
    ConditionType.CREATED: "created",
    ConditionType.SUCCEEDED: "successful",
    ConditionType.FAILED: "failed",
    ConditionType.RESTARTING: "restarted",
}
_BAD: Final = frozenset({ConditionType.FAILED, ConditionType.RESTARTING, ConditionType.STALLED})
log = structlog.get_logger(__name__)


def index_by_state(job: TFJob | AlphaJob) -> Sequence[str]:
    """Return the value of `STATE_INDEX` for a job."""
    return (f"{job.metadata.namespace}/{state_of(job)}",)


def state_of(job: TFJob | AlphaJob) -> str:
    """Return the state of a job, see `states`."""
    status = job.status
    pairs = ((condition.type, condition.status) for condition in status.conditions or ())
    outcome = status.state if isinstance(status, AlphaStatus) else ""
    return states.state_of(pairs, is_ending=conditions.is_ending(status), phase=status.phase, outcome=outcome)


def index_by_wait(job: TFJob | AlphaJob) -> Sequence[str]:
    """Return the values of `WAITING_INDEX` for a job: namespace, state, and the minute in which the job entered the state.

    Jobs of the same minute share a value, so that a scrape does not read each of thousands of suspended jobs.
    """
    waits = [(state, since) for state, since in waits_of(job) if since is not None]
    if not (waits and _is_ours(job)):  # in this order: most jobs do not wait
        return []
    return [f"{job.metadata.namespace}/{state}/{int(since.timestamp()) // 60 * 60}" for state, since in waits]


def waits_of(job: TFJob | AlphaJob) -> Iterator[tuple[str, datetime | None]]:
    """Yield the states in which a job waits, with the times since when it does: Held and Stalled, and that of the job."""
    meta, status, state = job.metadata, job.status, state_of(job)
    if state in states.ENDS:
        return
    found = status.conditions or ()
    aside = {ConditionType.HELD, ConditionType.STALLED} if state == ConditionType.RUNNING else {ConditionType.HELD}
    for each in found:
        if each.type in aside and each.status == conditions.TRUE:
            yield each.type, each.last_transition_time
    if state == states.NEW:
        yield state, meta.creation_timestamp
    elif state == states.ENDING:
        record = conditions.end_record(status)
        yield state, None if record is None else record.time
    elif state == ConditionType.CREATED:
        times = [each.last_transition_time for each in found if each.type in states.CONDITIONS]
        yield state, max((moment for moment in times if moment is not None), default=meta.creation_timestamp)
    elif state == ConditionType.RESTARTING or (state == ConditionType.SUSPENDED and LABEL_QUEUE in (meta.labels or ())):
        condition = conditions.find(found, state)
        since = None if condition is None else condition.last_transition_time
        yield QUEUED if state == ConditionType.SUSPENDED else state, since


def _is_ours(job: TFJob | AlphaJob) -> bool:
    """Return False for a job that another controller manages: it waits for that one."""
    if b'"managedBy"' not in bytes(job.spec):  # few jobs have it, and specs may be large
        return True
    policy = decode_spec(Reader(), job.spec).get("runPolicy")
    manager = policy.get("managedBy") if isinstance(policy, dict) else None
    return not isinstance(manager, str) or manager in MANAGED_BY_US


JOB_INDEXERS: Final = {WAITING_INDEX: index_by_wait, STATE_INDEX: index_by_state}
"""The indexes of every cache of jobs, from which gauges are read."""


class JobMetrics:
    """Counts transitions of jobs in total and by namespace, and reads the number of jobs in each state from the caches."""

    def __init__(self, metrics: MetricsProvider = NO_METRICS) -> None:
        """Create the series without labels."""
        self._metrics = metrics
        self._totals = {name: metrics.counter(metric) for name, metric in TOTALS.items()}
        self.refused_statuses: set[str] = set()
        """The UIDs of the jobs whose status the API server refuses to store (`refusals`)."""
        metrics.gauge(REFUSED_STATUSES, read=lambda: float(len(self.refused_statuses)))
        self.indexers: list[Indexer[Any]] = []
        """The caches of jobs, with `JOB_INDEXERS`."""
        self._idle_since: dict[str, float | None] = {}
        """When each namespace with series lost its last job; None while it has jobs."""
        self._chosen: dict[str, dict[Metric, set[tuple[str, ...]]]] = {}
        """The values of the other labels of ACTIONS and ACCELERATORS, by namespace."""

    def expect(self, namespaces: Iterable[str]) -> None:
        """Create the series of these namespaces at zero, before the first transition."""
        for namespace in namespaces:
            if namespace not in self._idle_since:
                self._idle_since[namespace] = None
                for metric, values in _series_of(namespace):
                    (self._metrics.histogram if metric.buckets else self._metrics.counter)(metric, *values)

    def _started_indexers(self) -> list[Indexer[Any]]:
        """Return the caches that are being filled: the pages are served before the informers start."""
        return [indexer for indexer in self.indexers if indexer.started]

    def by_state(self, now: float) -> collections.Counter[tuple[str, ...]]:
        """Return the number of jobs by namespace and state.

        Series are created for namespaces with jobs, even if another controller manages all these jobs. They are removed once a
        namespace has had no jobs for KEPT_S.
        """
        found: collections.Counter[tuple[str, ...]] = collections.Counter()
        for indexer in self._started_indexers():
            for value in indexer.index_values(STATE_INDEX):
                found[tuple(value.split("/"))] += len(indexer.index_keys(STATE_INDEX, value))
        busy = {namespace for namespace, _ in found}
        self.expect(busy)
        for namespace, since in [*self._idle_since.items()]:
            if namespace in busy or since is None:
                self._idle_since[namespace] = None if namespace in busy else now
            elif now - since > KEPT_S:
                del self._idle_since[namespace]
                chosen = self._chosen.pop(namespace, {}).items()
                more = [(metric, (namespace, *each)) for metric, known in chosen for each in known]
                for metric, values in (*_series_of(namespace), *more):
                    self._metrics.remove(metric, *values)
        return found

    def waiting_since(self) -> dict[tuple[str, ...], float]:
        """Return since when the job that has waited longest does, by namespace and state, in Unix time to the minute."""
        found: dict[tuple[str, ...], float] = {}
        for indexer in self._started_indexers():
            for value in indexer.index_values(WAITING_INDEX):
                namespace, state, since = value.split("/")
                place = (namespace, state)
                found[place] = min(found.get(place, math.inf), float(since))
        return found

    def count(self, transition: str, namespace: str) -> None:
        """Count one of TRANSITIONS."""
        self.expect([namespace])
        self._totals[transition].inc()
        self._metrics.counter(BY_NAMESPACE[transition], namespace, FRAMEWORK).inc()

    def observe(self, job: ObjectMeta, before: Sequence[JobCondition], after: Sequence[JobCondition]) -> None:
        """Count and log each condition that became True. `before` are the conditions that `after` replaced."""
        were_true = {each.type for each in before if each.status == conditions.TRUE}
        for condition in after:
            if condition.status != conditions.TRUE or condition.type in were_true:
                continue
            if condition.type in _COUNTED:
                self.count(_COUNTED[ConditionType(condition.type)], job.namespace)
            if condition.type == ConditionType.FAILED and condition.reason in REASONS:
                self._metrics.counter(FAILURES, job.namespace, condition.reason).inc()
            if condition.type == ConditionType.RUNNING and ConditionType.RESTARTING not in were_true:
                self._started(job, condition, after)
            write = log.warning if condition.type in _BAD else log.info
            write("tfjob_condition", condition=condition.type, reason=condition.reason, message=condition.message)

    def ended(self, namespace: str, before: Sequence[JobAttempt], after: Sequence[JobAttempt]) -> None:
        """Count the rules that ended attempts. `before` is the history that `after` replaced."""
        known = {each.number for each in before}
        for attempt in after:
            if attempt.number not in known and attempt.rule:
                self.decided(namespace, attempt.rule, attempt.action, attempt.replica_type)

    def decided(self, namespace: str, rule: str, action: str, replica_type: str) -> None:
        """Count a failure matched by a rule."""
        self._chosen_by_user(ACTIONS, namespace, rule, action, replica_type).inc()

    def spent(
        self, namespace: str, before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]]
    ) -> None:
        """Count the seconds of accelerators that a status has, and the one that it replaced has not."""
        known = {(resource, outcome): seconds for resource, outcome, seconds in by_outcome(before)}
        for resource, outcome, seconds in by_outcome(after):
            added = seconds - known.get((resource, outcome), 0)
            if added > 0:
                self._chosen_by_user(ACCELERATORS, namespace, resource, outcome).inc(added)

    def _chosen_by_user(self, metric: Metric, namespace: str, *values: str) -> Counter:
        """Return the series of a metric whose first value is chosen by users."""
        self.expect([namespace])
        known = self._chosen.setdefault(namespace, {}).setdefault(metric, set())
        if values not in known and len(known) >= MAX_CHOSEN:
            values = (OTHER, *values[1:])
        known.add(values)
        return self._metrics.counter(metric, namespace, *values)

    def _started(self, job: ObjectMeta, running: JobCondition, found: Sequence[JobCondition]) -> None:
        """Record the duration of a start. For a resumed job, the start begins when its condition Suspended became False."""
        suspended = conditions.find(tuple(found), ConditionType.SUSPENDED)
        since = suspended.last_transition_time if suspended is not None else job.creation_timestamp
        if since is not None and running.last_transition_time is not None:
            self.expect([job.namespace])
            seconds = (running.last_transition_time - since).total_seconds()
            self._metrics.histogram(START, job.namespace).observe(max(0.0, seconds))


def log_finished(job: TFJob) -> None:
    """Log the end of a job with what it took, for accounting. Lines of one job have the same UID."""
    meta, status = job.metadata, job.status
    started, ended, created = status.start_time, status.completion_time, meta.creation_timestamp
    log.info(
        "job_finished",
        uid=meta.uid,
        resource_version=meta.resource_version,
        outcome=state_of(job),
        waiting_s=max(0, int((started - created).total_seconds()))
        if started is not None and created is not None
        else None,
        duration_s=int((ended - started).total_seconds()) if started is not None and ended is not None else None,
        attempts=status.attempt + 1,
        restarts=sum(restart.total for restart in status.restarts),
        accelerator_seconds=msgspec.json.encode(status.accelerator_seconds).decode(),
    )


def _series_of(namespace: str) -> Iterator[tuple[Metric, tuple[str, ...]]]:
    for metric in BY_NAMESPACE.values():
        yield metric, (namespace, FRAMEWORK)
    for reason in REASONS:
        yield FAILURES, (namespace, reason)
    yield START, (namespace,)
