"""The rows of `list`: the state of each job, from the job, its pods and the Warning events about them. Pure.

Objects are used as raw JSON: importing msgspec for typed decoding would take a fifth of the command's time. Only the
fields that a row needs are kept, so that a list or watch of ten thousand jobs stays small.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from tfjob_operator.api.text import MAX_NAME, clean
from tfjob_operator.cli import jobs
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.queues import waits_for
from tfjob_operator.cli.sizes import restarts_of, sizes_of

UNKNOWN: Final = "<unknown>"
"""kubectl's text for unknown values."""
COLUMNS: Final = ("NAME", "STATE", "READY", "RESTARTS", "DURATION", "AGE", "REASON", "MESSAGE")
"""MESSAGE is only shown by `-o wide`."""
STATES: Final = ("New", "Created", "Running", "Restarting", "Suspended", jobs.ENDING, "Succeeded", "Failed")
POD_SELECTOR: Final = "training.kubeflow.org/operator-name"
"""Selects the pods of all jobs of both dialects, whatever the label's value."""
_JOB_LABELS: Final = ("training.kubeflow.org/job-name", "tf_job_name")
_TYPE_LABELS: Final = ("training.kubeflow.org/replica-type", "job_type")
_INDEX_LABELS: Final = ("training.kubeflow.org/replica-index", "task_index")
_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_STARTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_PLAIN: Final = frozenset({"", "TFJobFailed", "TFJobSucceeded"})
"""Condition reasons that add nothing to the state."""
_EXIT: Final = re.compile(r"exited with code (\d+)(?: \((\w+)\))?")
QUIET: Final = frozenset({"Terminating", "Suspended", "Queued", "Pending", "ContainerCreating", "PodInitializing"})
"""Reasons that are intended, or temporary."""
BACK_OFF: Final = "BackOff:"
"""The reason of a job with a delayed restart, followed by the remaining time."""
_MAX_MESSAGE: Final = 1000
_SLOW_S: Final = 60.0
"""The seconds within which the operator should have created a job's pods."""
_BACK_OFF_S: Final = 600.0
"""A container that has been running this long has recovered: the kubelet resets its back-off then."""


class JobFacts(NamedTuple):
    """The fields of a job that a row needs. `reason` and `message` are from its status.

    `end` is Succeeded or Failed, once that is decided, else "". From then on missing pods are no problem.
    `attempt` is the number of restarts of the whole job; until `next_restart` some pods are not created. `sorted_by` is
    the value of the field given by `--sort-by`. Times are in seconds since 1970.
    """

    namespace: str
    name: str
    uid: str
    state: str
    wanted: int
    succeeded: int
    restarts: Mapping[tuple[str, int], int]
    created: float | None
    started: float | None
    ended: float | None
    reason: str
    message: str
    end: str
    attempt: int = 0
    next_restart: float | None = None
    sorted_by: Any = None


class PodFacts(NamedTuple):
    """The fields of a pod that a row needs. `owner` is the UID of its job, "" if it belongs to a batch Job.

    `reason` is the problem of the pod, and `starting` is its progress before it runs; each is "" if there is none.
    """

    replica: tuple[str, int]
    owner: str
    uid: str
    created: str
    ready: bool
    succeeded: bool
    starting: str
    restarts: int
    reason: str
    message: str


class WarningEvent(NamedTuple):
    """The newest Warning event about an object that was not created, or does not start."""

    at: str
    reason: str
    message: str


class Listing:
    """The objects seen so far. `has_pods` is False without permission to list pods; `has_queued`: a job waits in a queue."""

    def __init__(self, *, sort_by: str = "") -> None:
        self.has_pods = True
        self.jobs: dict[str, JobFacts] = {}
        self._sort_by = sort_by
        self._pods: dict[str, dict[str, PodFacts]] = defaultdict(dict)
        self._job_of: dict[str, str] = {}
        self._events: dict[str, WarningEvent] = {}
        self._waits: dict[str, tuple[str, str]] = {}
        self.has_queued = False

    def put_job(self, body: Mapping[str, Any], now: float, *, gone: bool = False) -> str:
        """Store a job, possibly a deleted one; return its key."""
        meta = body["metadata"]
        key = _key(meta["namespace"], jobs.group_of(body), meta["name"])
        self.jobs[key] = _job_facts(body, now, self._sort_by, gone=gone)
        self.has_queued |= self.jobs[key].reason == "Queued"
        return key

    def forget(self, key: str) -> None:
        """Forget a deleted job."""
        job = self.jobs.pop(key, None)
        if job is not None:
            self._events.pop(job.uid, None)
            self._waits.pop(job.uid, None)

    def put_pod(self, body: Mapping[str, Any], now: float, *, gone: bool = False) -> str:
        """Store a pod, or remove a deleted one; return the key of its job, "" if it has none."""
        meta = body["metadata"]
        labels = meta.get("labels") or {}
        job, uid = _first(labels, _JOB_LABELS), str(meta.get("uid", ""))
        if not job:
            return ""
        key = _key(meta["namespace"], jobs.TENSORFLOW_GROUP if jobs.TENSORFLOW_GROUP in labels else jobs.GROUP, job)
        if gone:
            for known in (self._pods[key], self._job_of, self._events):
                known.pop(uid, None)
        else:
            self._pods[key][uid] = _pod_facts(body, now)
            self._job_of[uid] = key
        return key

    def put_event(self, body: Mapping[str, Any]) -> str:
        """Store a Warning event; return the key of its job, "" for none."""
        about = body.get("involvedObject") or {}
        uid, reason = str(about.get("uid", "")), str(body.get("reason", ""))
        group = str(about.get("apiVersion", "")).partition("/")[0]
        key = self._job_of.get(uid) or _key(str(about.get("namespace")), group, str(about.get("name")))
        known = key in self.jobs and (uid in self._job_of or uid == self.jobs[key].uid)
        if not known or (not reason.startswith("Failed") and not reason.endswith("Unavailable")):
            return ""
        at = str(body.get("lastTimestamp") or body.get("eventTime") or "")
        if uid not in self._events or at >= self._events[uid].at:
            self._events[uid] = WarningEvent(at, reason, str(body.get("message", "")))
        return key

    def put_workload(self, body: Mapping[str, Any]) -> str:
        """Store the Workload of a queued job; return the key of the job, "" if it is not listed."""
        meta = body["metadata"]
        owner = _controller(meta)
        key = _key(meta["namespace"], str(owner.get("apiVersion", "")).partition("/")[0], str(owner.get("name")))
        if key not in self.jobs or self.jobs[key].uid != owner.get("uid"):
            return ""
        self._waits[self.jobs[key].uid] = waits_for(body)
        return key

    def needs_events(self) -> bool:
        """Return True if only events explain what a job waits for: a pod was not created, or does not start."""
        return self.has_pods and any(map(self._is_stuck, self.jobs))

    def row(self, key: str, now: float) -> tuple[str, ...]:
        """Return the row of a job, with a cell for each of COLUMNS."""
        job, pods = self.jobs[key], self._replicas(key)
        reason, message = self._reason(key, pods, now)
        restarts = Counter(job.restarts)
        for replica, found in pods.items():
            restarts[replica] = max(restarts[replica], sum(each.restarts for each in found) + len(found) - 1)
        ready = sum(found[-1].ready for found in pods.values())
        end = job.ended if job.end else now
        return (
            job.name,
            job.state,
            f"{ready}/{job.wanted}" if self.has_pods else UNKNOWN,
            str(restarts.total() + job.attempt),
            duration(end - job.started) if job.started is not None and end is not None else "",
            duration(now - job.created) if job.created is not None else UNKNOWN,
            clean(reason, MAX_NAME),
            " ".join(clean(message, _MAX_MESSAGE).split()),
        )

    def ordered(self, keys: Iterable[str], now: float) -> list[str]:
        """Return jobs in the order of `sort_by`; those without a value come first."""
        return sorted(keys, key=lambda key: self._order(key, now)) if self._sort_by else list(keys)

    def _order(self, key: str, now: float) -> tuple[int, Any]:
        job = self.jobs[key]
        if "." in self._sort_by:
            value = job.sorted_by
        elif self._sort_by in {"age", "duration"}:
            since, until = (job.created, now) if self._sort_by == "age" else (job.started, job.ended or now)
            value = until - since if since is not None else None
        else:
            value = self.row(key, now)[COLUMNS.index(self._sort_by.upper())]
            head = value.partition("/")[0]
            value = int(head) if head.isdecimal() and self._sort_by in {"ready", "restarts"} else value
        if value is None:
            return 0, 0
        return (1, value) if isinstance(value, (int, float)) else (2, str(value))

    def _replicas(self, key: str) -> dict[tuple[str, int], list[PodFacts]]:
        """Return the pods of each replica, newest last: the alpha dialect keeps failed pods."""
        found: dict[tuple[str, int], list[PodFacts]] = {}
        for pod in sorted(self._pods.get(key, {}).values(), key=lambda each: (each.replica, each.created)):
            if pod.owner in {"", self.jobs[key].uid}:
                found.setdefault(pod.replica, []).append(pod)
        return found

    def _reason(self, key: str, pods: Mapping[tuple[str, int], Sequence[PodFacts]], now: float) -> tuple[str, str]:
        """Return a job's problem and a message: from its status, else from the majority of its pods, else from events."""
        job, newest = self.jobs[key], [found[-1] for found in pods.values()]
        if job.reason == "Queued" and (waits := self._waits.get(job.uid)):
            return waits
        if job.reason and not (job.end and job.reason == "TFJobFailed"):
            return job.reason, job.message
        reasons = Counter(each.reason for each in newest if each.reason)
        if reasons and job.end != "Succeeded":
            reason = reasons.most_common(1)[0][0]
            return reason, next(each.message for each in newest if each.reason == reason) or job.message
        if job.next_restart is not None and job.next_restart > now and not job.end:
            return f"{BACK_OFF}{duration(job.next_restart - now)}", f"next restart at {_clock(job.next_restart)}"
        if job.end:
            found = _EXIT.search(job.message)
            return (found[2] or f"ExitCode:{found[1]}" if found else job.reason), job.message
        return self._waits_for(key, newest, now) if self._is_stuck(key) else ("", job.message)

    def _waits_for(self, key: str, newest: Sequence[PodFacts], now: float) -> tuple[str, str]:
        """Return what a job with missing or starting pods waits for, from events if there are any."""
        job = self.jobs[key]
        uids = (job.uid, *(each.uid for each in newest if each.starting))
        event = next((self._events[uid] for uid in uids if uid in self._events), None)
        if event is not None:
            return "QuotaExceeded" if "exceeded quota" in event.message else event.reason, event.message
        waiting = Counter(each.starting for each in newest if each.starting)
        if waiting:
            return waiting.most_common(1)[0][0], job.message
        # A restarting job is being handled by an operator, so a missing pod is just a delayed restart.
        late = now - (job.started or job.created or now) > _SLOW_S
        if self.has_pods and late and job.state != "Restarting":
            return "NotReconciled", "no operator has created the pods of this job"
        return "", job.message

    def _is_stuck(self, key: str) -> bool:
        job = self.jobs[key]
        if job.end or job.reason:
            return False
        return self._missing(key) or any(each.starting for each in self._pods.get(key, {}).values())

    def _missing(self, key: str) -> bool:
        pods = self._pods.get(key, {}).values()
        there = {each.replica for each in pods if not each.succeeded}
        done = max(self.jobs[key].succeeded, sum(each.succeeded for each in pods))
        return len(there) + done < self.jobs[key].wanted


def _clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M:%S} UTC"


def state_of(body: Mapping[str, Any]) -> str:
    """Return the state of a job: Ending, its last True condition, or a phase of the alpha dialect; see STATES."""
    if jobs.decided_end(body) is not None:
        return jobs.ENDING
    status = body.get("status") or {}
    conditions = [each for each in status.get("conditions") or () if each.get("type") != "Held"]
    current = [each for each in conditions if each.get("status") == "True"] or conditions
    if current:
        return str(current[-1].get("type"))
    if status.get("phase") in {"Done", "CleanUp", "Failed"} and status.get("state") in STATES:
        return str(status["state"])
    return str(status.get("phase") or "New")


def _key(namespace: str, group: str, name: str) -> str:
    return f"{namespace}/{group}/{name}"


def _job_facts(body: Mapping[str, Any], now: float, sort_by: str, *, gone: bool) -> JobFacts:
    meta, status = body["metadata"], body.get("status") or {}
    state, conditions = state_of(body), jobs.conditions_of(body)
    decided = jobs.decided_end(body)
    end = str(decided["type"]) if decided is not None else state if state in {"Succeeded", "Failed"} else ""
    condition = decided or conditions.get("Held") or conditions.get(state) or {}
    reason, message = str(condition.get("reason") or ""), str(condition.get("message") or status.get("reason") or "")
    suspended = state == "Suspended" or bool((jobs.spec_of(body).get("runPolicy") or {}).get("suspend"))
    if "deletionTimestamp" in meta or gone:
        reason = "Terminating"
    elif end:
        if reason == "JobFailed":
            from tfjob_operator.api.v1.constants import limit_of  # it imports msgspec

            reason = limit_of(reason, message) or reason
        reason = "" if end == "Succeeded" else "TFJobFailed" if reason in _PLAIN else reason
    elif "Held" not in conditions:
        queued = _QUEUE_LABEL in (meta.get("labels") or {})
        reason = ("Queued" if queued else "Suspended") if suspended else ""
    counts = status.get("replicaStatuses")
    started = _seconds(status.get("startTime"))
    return JobFacts(
        namespace=meta["namespace"],
        name=meta["name"] if jobs.group_of(body) == jobs.GROUP else jobs.full_name(body),
        uid=str(meta.get("uid", "")),
        state=state,
        wanted=sum(size for _, size in sizes_of(body)),
        succeeded=sum(each.get("succeeded") or 0 for each in counts.values()) if isinstance(counts, dict) else 0,
        restarts={(kind.lower(), index): times for kind, index, times in restarts_of(body)},
        created=_seconds(meta.get("creationTimestamp")),
        started=None if suspended and not end else started,
        ended=_seconds((decided or status).get("completionTime")),
        reason=reason,
        message=message,
        end=end,
        attempt=attempt if isinstance(attempt := status.get("attempt"), int) else 0,
        next_restart=_seconds(status.get("nextRestartTime")),
        sorted_by=_value(body, sort_by) if "." in sort_by else None,
    )


def _pod_facts(body: Mapping[str, Any], now: float) -> PodFacts:
    meta, status = body["metadata"], body.get("status") or {}
    labels = meta.get("labels") or {}
    owner = _controller(meta)
    leaving = "deletionTimestamp" in meta
    index = str(_first(labels, _INDEX_LABELS))
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = [((each.get("state") or {}).get("waiting") or {}).get("reason") for each in statuses]
    phase = status.get("phase")
    reason, message = ("", "") if leaving else _trouble(status, statuses, conditions, now)
    return PodFacts(
        replica=(str(_first(labels, _TYPE_LABELS)).lower(), int(index) if index.isdecimal() else -1),
        owner="" if owner.get("kind") == "Job" else str(owner.get("uid", "")),
        uid=str(meta.get("uid", "")),
        created=str(meta.get("creationTimestamp", "")),
        ready=not leaving and (conditions.get("Ready") or {}).get("status") == "True",
        succeeded=phase == "Succeeded",
        starting="" if phase != "Pending" or reason else next(filter(None, waiting), "Pending"),
        restarts=max((each.get("restartCount") or 0 for each in status.get("containerStatuses") or ()), default=0),
        reason=reason,
        message=message,
    )


def _trouble(
    status: Mapping[str, Any],
    statuses: Iterable[Mapping[str, Any]],
    conditions: Mapping[Any, Mapping[str, Any]],
    now: float,
) -> tuple[str, str]:
    """Return a pod's problem, in the words of `kubectl get pods`, and a message; "" for none."""
    if status.get("phase") == "Succeeded":
        return "", ""
    for each in statuses:
        state, last = each.get("state") or {}, (each.get("lastState") or {}).get("terminated") or {}
        waiting, running, ended = (state.get(name) or {} for name in ("waiting", "running", "terminated"))
        if waiting.get("reason", "") not in _STARTING:
            by_memory = last.get("reason") == "OOMKilled" and waiting["reason"] == "CrashLoopBackOff"
            return "OOMKilled" if by_memory else waiting["reason"], last.get("message") or waiting.get("message") or ""
        if ended.get("exitCode"):
            return status.get("reason") or _exit(ended), ended.get("message") or status.get("message") or ""
        since = _seconds(running.get("startedAt"))
        if (
            last.get("exitCode")
            and (each.get("restartCount") or 0) > 1
            and since is not None
            and now - since < _BACK_OFF_S
        ):
            return _exit(last), last.get("message") or ""
    if status.get("phase") == "Failed":
        return status.get("reason") or "Error", status.get("message") or ""
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False":
        return scheduled.get("reason") or "Unschedulable", scheduled.get("message") or ""
    return "", ""


def _exit(ended: Mapping[str, Any]) -> str:
    reason = str(ended.get("reason") or "Error")
    return reason if reason != "Error" else f"ExitCode:{ended.get('exitCode')}"


def _controller(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((each for each in meta.get("ownerReferences") or () if each.get("controller")), {})


def _first(labels: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((labels[name] for name in names if name in labels), "")


def _seconds(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return None


def _value(body: Any, path: str) -> Any:
    """Return the value of a field, None if it is not set."""
    for part in path.lstrip(".").split("."):
        body = body.get(part) if isinstance(body, dict) else None
    return body
