"""The rows of `list`: snapshots of jobs, from the jobs, their pods, events about these, and Kueue's Workloads. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

from tfjob_operator.api.text import MAX_NAME, clean
from tfjob_operator.api.v1.states import CONDITIONS, ENDING, NEW
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model import queues
from tfjob_operator.cli.model.facts import (
    TENSORFLOW_GROUP,
    JobFacts,
    PodFacts,
    controller_of,
    job_facts,
    job_of_pod,
    mapping,
    pod_facts,
)
from tfjob_operator.cli.model.job_events import JobEvents
from tfjob_operator.cli.model.snapshot import JobSnapshot

UNKNOWN: Final = "<unknown>"
"""kubectl's text for unknown values."""
COLUMNS: Final = ("NAME", "STATE", "READY", "RESTARTS", "DURATION", "AGE", "REASON", "MESSAGE")
"""MESSAGE is only shown by `-o wide`."""
STATES: Final = (NEW, *CONDITIONS[:-2], ENDING, *CONDITIONS[-2:])
POD_SELECTOR: Final = "training.kubeflow.org/operator-name"
"""Selects the pods of all jobs of both dialects, whatever the label's value."""
_MAX_MESSAGE: Final = 1000


class Listing:
    """The objects seen so far. `has_pods` is False without permission to list pods; `has_queued`: a job waits in a queue."""

    def __init__(self, *, sort_by: str = "") -> None:
        self.has_pods = True
        self.jobs: dict[str, JobFacts] = {}
        self._sort_by = sort_by
        self._sorted_by: dict[str, Any] = {}
        self._pods: dict[str, dict[str, PodFacts]] = defaultdict(dict)
        self._job_of: dict[str, str] = {}
        self._events = JobEvents()
        self._waits: dict[str, tuple[str, str]] = {}
        self.has_queued = False

    def put_job(self, body: Mapping[str, Any], *, gone: bool = False) -> str:
        """Store a job, possibly a deleted one; return its key."""
        job = job_facts(body, gone=gone)
        key = _key(job.namespace, job.group, job.name)
        self.jobs[key] = job
        self.has_queued |= bool(job.queue and job.is_suspended)
        if "." in self._sort_by:
            self._sorted_by[key] = _value(body, self._sort_by)
        return key

    def forget(self, key: str) -> None:
        """Forget a deleted job."""
        job = self.jobs.pop(key, None)
        self._sorted_by.pop(key, None)
        if job is not None:
            self._events.forget(job.uid)
            self._waits.pop(job.uid, None)

    def put_pod(self, body: Mapping[str, Any], *, gone: bool = False) -> str:
        """Store a pod, or remove a deleted one; return the key of its job, "" if it has none."""
        namespace, group, job = job_of_pod(body)
        pod = pod_facts(body, job)
        if not job:
            return ""
        key = _key(namespace, group, job)
        if gone:
            for known in (self._pods[key], self._job_of):
                known.pop(pod.uid, None)
            self._events.forget(pod.uid)
        else:
            self._pods[key][pod.uid] = pod
            self._job_of[pod.uid] = key
        return key

    def put_event(self, body: Mapping[str, Any]) -> str:
        """Store an event; return the key of its job, "" for none."""
        about = mapping(body.get("involvedObject"))
        uid, group = str(about.get("uid", "")), str(about.get("apiVersion", "")).partition("/")[0]
        key = self._job_of.get(uid) or _key(str(about.get("namespace")), group, str(about.get("name")))
        known = key in self.jobs and (uid in self._job_of or uid == self.jobs[key].uid)
        return key if known and self._events.put(body) else ""

    def put_workload(self, body: Mapping[str, Any]) -> str:
        """Store the Workload of a queued job; return the key of the job, "" if it is not listed."""
        meta = mapping(body.get("metadata"))
        owner = controller_of(meta)
        key = _key(
            str(meta.get("namespace")), str(owner.get("apiVersion", "")).partition("/")[0], str(owner.get("name"))
        )
        if key not in self.jobs or self.jobs[key].uid != owner.get("uid"):
            return ""
        self._waits[self.jobs[key].uid] = queues.waits_for(body)
        return key

    def needs_events(self, now: float) -> frozenset[str]:
        """Return the field selectors of the events without which the reason of a job may be unknown: usually none."""
        return frozenset(chain.from_iterable(self.snapshot(key, now).needs_events() for key in self.jobs))

    def row(self, key: str, now: float) -> tuple[str, ...]:
        """Return the row of a job, with a cell for each of COLUMNS."""
        job, snapshot = self.jobs[key], self.snapshot(key, now)
        return (
            job.name if job.group != TENSORFLOW_GROUP else f"tfjob.{job.group}/{job.name}",
            snapshot.state,
            f"{snapshot.ready}/{snapshot.wanted}" if snapshot.has_pods or job.manager else UNKNOWN,
            str(snapshot.restarts),
            duration(snapshot.lasted_s) if snapshot.lasted_s is not None else "",
            duration(now - job.created) if job.created is not None else UNKNOWN,
            clean(snapshot.reason, MAX_NAME),
            " ".join(clean(snapshot.message, _MAX_MESSAGE).split()),
        )

    def ordered(self, keys: Iterable[str], now: float) -> list[str]:
        """Return jobs in the order of `sort_by`; those without a value come first."""
        return sorted(keys, key=lambda key: self._order(key, now)) if self._sort_by else list(keys)

    def _order(self, key: str, now: float) -> tuple[int, Any]:
        job = self.jobs[key]
        if "." in self._sort_by:
            value = self._sorted_by.get(key)
        elif self._sort_by == "age":
            value = now - job.created if job.created is not None else None
        elif self._sort_by == "duration":
            value = self.snapshot(key, now).lasted_s
        else:
            value = self.row(key, now)[COLUMNS.index(self._sort_by.upper())]
            head = value.partition("/")[0]
            value = int(head) if head.isdecimal() and self._sort_by in {"ready", "restarts"} else value
        if value is None:
            return 0, 0
        return (1, value) if isinstance(value, (int, float)) else (2, str(value))

    def snapshot(self, key: str, now: float) -> JobSnapshot:
        """Return the snapshot of a job."""
        job = self.jobs[key]
        pods = self._pods.get(key, {}).values() if self.has_pods else None
        return JobSnapshot(job, pods, now, events=self._events, waits=self._waits.get(job.uid))


def _key(namespace: str, group: str, name: str) -> str:
    return f"{namespace}/{group}/{name}"


def _value(body: Any, path: str) -> Any:
    """Return the value of a field, None if it is not set."""
    for part in path.lstrip(".").split("."):
        body = body.get(part) if isinstance(body, dict) else None
    return body
