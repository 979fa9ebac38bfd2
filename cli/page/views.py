"""What the page shows of jobs, as values for JSON: rows of the list, and the view of one job; and log lines. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from tfjob_operator.api.core import IMAGE_REASONS
from tfjob_operator.api.text import clean
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.indices import parse_indices
from tfjob_operator.api.v1.types import InvalidSpec, child_name
from tfjob_operator.api.v1.validation import MAX_REPLICAS, read_spec
from tfjob_operator.api.v1alpha1 import constants as alpha
from tfjob_operator.api.v1alpha1.validation import read_spec as read_alpha_spec
from tfjob_operator.cli.diagnosis.facts import natural_sort_key
from tfjob_operator.cli.model.objects import ContainerStatusDetails, EventDetails, PodDetails
from tfjob_operator.cli.model.pods import condition_of, statuses
from tfjob_operator.cli.model.replicas import ReplicaName, order_of, replica_of
from tfjob_operator.cli.model.words import ended_by
from tfjob_operator.cli.page.objects import PageJob
from tfjob_operator.cli.timelines.build import timeline_of, training_of
from tfjob_operator.cli.timelines.values import (
    AttemptSpan,
    Interval,
    PodHistory,
    PodOutcome,
    PodState,
    ReplicaTimeline,
    Span,
    TimelineJob,
)

MAX_EVENTS: Final = 200
"""The most events of a job that are shown, newest ones: the API server keeps them for an hour."""

_PLAIN_ENDS: Final = {"", c.ConditionReason.FAILED, c.ConditionReason.SUCCEEDED}
"""Reasons that add nothing to the state."""
_CREATED: Final = {c.EventReason.CREATED_POD, alpha.AlphaEventReason.CREATED}
"""Reasons of events about created replicas."""
_OVER: Final = {alpha.Phase.DONE, alpha.Phase.FAILED}
"""The phases of finished alpha jobs, which the operators of 2018 wrote without conditions."""


@dataclass(frozen=True, slots=True)
class SpecSummary:
    """The parsed spec of a job: sizes by type, queue, restart limit, and errors."""

    sizes: Mapping[str, int]
    queue: str = ""
    mistakes: str = ""
    alpha: bool = False
    max_restarts: int | None = None


def spec_summary_of(job: PageJob) -> SpecSummary:
    """Parse the spec of a job. Never raises, whatever the specification."""
    queue = (job.metadata.labels or {}).get(c.LABEL_QUEUE, "")
    name, begun = job.metadata.name, job.status.begun
    if job.is_alpha:
        dialect = alpha.TENSORFLOW if job.resource == alpha.TENSORFLOW.resource else alpha.KUBEFLOW
        old = read_alpha_spec(dialect, name, job.spec)
        if not isinstance(old, InvalidSpec):
            return SpecSummary({alpha.V1_TYPES[each.type]: each.replicas for each in old.replicas}, queue, alpha=True)
        invalid = old
    else:
        spec = read_spec(name, job.spec, was_good=begun is not None)
        if not isinstance(spec, InvalidSpec):
            policy = spec.failure_policy
            most = policy.max_restarts if policy is not None else None
            return SpecSummary(spec.sizes, queue or spec.scheduling.queue, max_restarts=most)
        invalid = spec
    return SpecSummary(begun.replicas if begun is not None else {}, queue, clean(invalid.text, MAX_WORDS), job.is_alpha)


def row_of(
    job: PageJob, summary: SpecSummary, pods: Sequence[PodDetails], events: Iterable[EventDetails] = ()
) -> dict[str, Any]:
    """Return the row of a job. Times are in seconds since 1970, None if unknown. Only a job without pods needs events."""
    meta, status = job.metadata, job.status
    last = _last(job)
    state = conditions.ENDING if conditions.is_ending(status) else last.type if last is not None else ""
    restarts = _restarts(job, summary, pods)
    note, why = _reason(job, summary, pods, events)
    return {
        "key": job.key,
        "namespace": meta.namespace,
        "api": job.resource.group,
        "name": meta.name,
        "uid": meta.uid,
        "state": state or status.phase or "New",
        "since": seconds(last.last_transition_time) if last is not None else None,
        "note": note,
        "why": " ".join(clean(why, MAX_WHY).split()),
        "replicas": _counts(job, summary, pods),
        "restarts": restarts.total() + status.attempt,
        "queue": clean(summary.queue, MAX_WORDS),
        "created": seconds(meta.creation_timestamp),
        "started": seconds(status.start_time) if restarts.total() or _has_run(job, pods) else None,
        "ended": seconds(status.completion_time),
        "deleting": meta.deletion_timestamp is not None,
    }


def job_view(
    job: PageJob, summary: SpecSummary, pods: Sequence[PodDetails], events: Sequence[EventDetails]
) -> dict[str, Any]:
    """Return everything on the page of one job, except logs, manifest and diagnosis."""
    held = conditions.find(job.status.conditions, c.ConditionType.HELD)
    is_held = held is not None and held.status == conditions.TRUE and not conditions.is_over(job.status)
    last, spec = _last(job), msgspec.json.decode(job.spec)
    return {
        "row": row_of(job, summary, pods, events),
        "message": clean(last.message, MAX_WORDS) if last is not None else "",
        "held": clean(held.message, MAX_WORDS) if held is not None and is_held else "",
        "mistakes": summary.mistakes,
        "tensorboard": isinstance(spec, dict) and any(key.lower() == "tensorboard" for key in spec),
        "replicas": _replicas(job, summary, pods),
        "events": _events(job, events),
        "timeline": timeline_view(job, pods, events),
        "alpha": summary.alpha,
        "attempts": _attempts(job, summary),
    }


def _attempts(job: PageJob, summary: SpecSummary) -> dict[str, Any]:
    """Return the restarts of the whole job with reasons, the time of the next one, and the avoided nodes."""
    status = job.status
    return {
        "number": status.attempt,
        "counted": status.counted_restarts,
        "most": summary.max_restarts,
        "next": seconds(status.next_restart_time),
        "history": [
            {
                "number": each.number,
                "start": seconds(each.start_time),
                "end": seconds(each.end_time),
                "why": clean(ended_by(each), MAX_WORDS),
            }
            for each in status.attempt_history
        ],
        "avoided": [
            {"name": clean(each.name, MAX_WORDS), "failures": each.failures, "until": seconds(each.expiration_time)}
            for each in status.avoided_nodes
            if each.expiration_time is not None
        ],
    }


def _last(job: PageJob) -> Any:
    """Return the condition that gives the job's state, as in the STATE column: the last True one, or the one to come."""
    if (end := conditions.decided_end(job.status)) is not None:
        return end
    states = (each for each in reversed(job.status.conditions) if each.status == conditions.TRUE)
    return next((each for each in states if each.type != c.ConditionType.HELD), None)


def _reason(
    job: PageJob, summary: SpecSummary, pods: Sequence[PodDetails], events: Iterable[EventDetails]
) -> tuple[str, str]:
    """Return in a few words why a job does not run or has failed, and a message; "" if there is no such reason."""
    last = _last(job)
    message = last.message if last is not None else ""
    if job.metadata.deletion_timestamp is not None:
        return "being deleted", ""
    problems = [(problem, pod) for pod in _newest(summary, pods) if (problem := problem_of(pod))]
    most = Counter(problem for problem, _ in problems).most_common(1)
    note = clean(most[0][0], MAX_WORDS) if most else ""
    worst = next((pod for problem, pod in problems if problem == most[0][0]), None)
    words = _state(worst, training_of(worst))[-1] if worst is not None else ""
    if conditions.is_over(job.status) or job.status.phase in _OVER:
        if conditions.is_true(job.status, c.ConditionType.SUCCEEDED) or (
            last is not None and last.type == c.ConditionType.SUCCEEDED
        ):
            return "", ""
        plain = last is None or last.reason in _PLAIN_ENDS
        return (note, words or message) if plain else (clean(last.reason, MAX_WORDS), message)
    held = conditions.find(job.status.conditions, c.ConditionType.HELD)
    if held is not None and held.status == conditions.TRUE:
        return "on hold: invalid edit", held.message
    if summary.mistakes:
        return "invalid spec", summary.mistakes
    if not note and job.status.next_restart_time is not None:
        note, words = "BackOff", f"next restart at {job.status.next_restart_time:%H:%M:%S} UTC"
    if note:
        return note, words
    state = last.type if last is not None else ""
    warning = _warning(job, events) if not pods and state != c.ConditionType.SUSPENDED else None
    if warning is not None:
        is_quota = "exceeded quota" in warning.message  # like `kubectl tfjob list`
        return "QuotaExceeded" if is_quota else clean(warning.reason, MAX_WORDS), warning.message
    return "", message if state == c.ConditionType.RESTARTING else ""


def _warning(job: PageJob, events: Iterable[EventDetails]) -> EventDetails | None:
    """Return the newest Warning event about a job, None if a replica was created later."""
    own = [each for each in events if each.involved_object.uid == job.metadata.uid]
    found = [each for each in own if each.type == "Warning" or each.reason in _CREATED]
    last = max(found, key=lambda each: seconds(each.at) or 0, default=None)
    return last if last is not None and last.type == "Warning" else None


def _has_run(job: PageJob, pods: Iterable[PodDetails]) -> bool:
    """Return True if any replica has run. `startTime` is no proof: it is set with the first status, even without pods."""
    begun = {c.ConditionType.RUNNING, c.ConditionType.RESTARTING, c.ConditionType.SUCCEEDED}
    counts = job.status.replica_statuses.values()
    return (
        any(each.type in begun for each in job.status.conditions)
        or any(each.active or each.succeeded or each.failed for each in counts)
        or job.status.phase in {*_OVER, alpha.Phase.RUNNING, alpha.Phase.CLEAN_UP}
        or any(is_ready(pod) for pod in pods)
    )


def _restarts(job: PageJob, summary: SpecSummary, pods: Iterable[PodDetails]) -> Counter[tuple[str, int]]:
    """Return the restarts of each replica as in `list`: the recorded ones, or the pods' own if there are more."""
    found: Counter[tuple[str, int]] = Counter()
    for pod in pods:
        place, main = place_of(pod), training_of(pod)
        found[place] += (place in found) + (main.restart_count if main is not None else 0)
    on_record = Counter({(each.type, each.index): each.total for each in job.status.restarts})
    return found if summary.alpha else found | on_record


def _newest(summary: SpecSummary, pods: Sequence[PodDetails]) -> Sequence[PodDetails]:
    """Return the current pod of each replica; the alpha dialect also keeps failed pods that have a successor."""
    return [*newest_of(pods).values()] if summary.alpha else pods


def _counts(job: PageJob, summary: SpecSummary, pods: Sequence[PodDetails]) -> list[dict[str, Any]]:
    ready = Counter(place_of(pod)[0] for pod in _newest(summary, pods) if is_ready(pod))
    counted = job.status.replica_statuses
    kinds = dict.fromkeys((*summary.sizes, *counted))
    return [
        {
            "type": kind,
            "wanted": summary.sizes.get(kind, 0),
            "ready": ready[kind],
            "succeeded": counted[kind].succeeded if kind in counted else 0,
            "failed": counted[kind].failed if kind in counted else 0,
        }
        for kind in kinds
        if summary.sizes.get(kind, 0) or ready[kind]
    ]


def _replicas(job: PageJob, summary: SpecSummary, pods: Sequence[PodDetails]) -> list[dict[str, Any]]:
    """Return all replicas, including those without a pod, in the order of types and indices."""
    restarts = _restarts(job, summary, pods)
    found = [replica_view(pod, restarts[place_of(pod)]) for pod in _newest(summary, pods)]
    if sum(summary.sizes.values()) <= MAX_REPLICAS:
        # In the alpha dialect the name of a pod is unknown before it exists.
        there = {(each["type"], each["index"]) if summary.alpha else each["name"] for each in found}
        for kind, size in summary.sizes.items():
            done = parse_indices(job.status.finished_indices.get(kind, ""), size)
            for index in range(size):
                name = _name_of(job, summary, kind, index)
                if ((kind, index) if summary.alpha else name) not in there:
                    found.append(missing_view(name, kind, index, done=index in done, restarts=restarts[kind, index]))
    return sorted(
        found, key=lambda each: (order_of(ReplicaName(each["type"], each["index"])), natural_sort_key(each["name"]))
    )


def _name_of(job: PageJob, summary: SpecSummary, kind: str, index: int) -> str:
    """Return the name of a replica's pod or, in the alpha dialect, of its batch Job."""
    if summary.alpha and job.status.runtime_id:
        return f"{kind.lower()}-{job.status.runtime_id}-{index}"
    return child_name(job.metadata.name, kind, index)


def _events(job: PageJob, events: Iterable[EventDetails]) -> list[dict[str, Any]]:
    own = job.resource.kind
    created = seconds(job.metadata.creation_timestamp) or 0
    shown: list[dict[str, Any]] = [
        {
            "id": each.metadata.uid,
            "type": clean(each.type, MAX_WORDS),
            "reason": clean(each.reason, MAX_WORDS),
            "message": clean(each.message),
            "object": each.involved_object.name if each.involved_object.kind != own else "",
            "count": each.series.count if each.series is not None else max(each.count, 1),
            "at": seconds(each.at),
        }
        for each in events
        if each.involved_object.kind != own or each.involved_object.uid in {"", job.metadata.uid}
        if (seconds(each.at) or created) >= created - 1  # pods of an earlier job had the same names
    ]
    return sorted(shown, key=lambda each: (-(each["at"] or 0), each["id"]))[:MAX_EVENTS]


MAX_LANES: Final = 200
"""The most replicas that are drawn, those with most restarts first: a screen has no room for more."""


def timeline_view(job: PageJob, pods: Sequence[PodDetails], events: Sequence[EventDetails]) -> dict[str, Any]:
    """Return lanes of replicas with the histories of their pods, and when the job was suspended or on hold.

    An end of None means now.
    """
    timeline = timeline_of(msgspec.convert(job, TimelineJob, from_attributes=True), pods, events)
    worst = sorted(range(len(timeline.replicas)), key=lambda place: _urgency(timeline.replicas[place]))
    return {
        "start": seconds(timeline.start),
        "end": seconds(timeline.end),
        "lanes": [_lane(timeline.replicas[place], timeline.start) for place in sorted(worst[:MAX_LANES])],
        "more": max(0, len(timeline.replicas) - MAX_LANES),
        "attempts": [_plain(each) for each in timeline.attempts],
        "spans": [
            {"kind": kind, **_plain(each)}
            for kind, spans in (
                ("suspended", timeline.suspensions),
                ("held", timeline.holds),
                ("ending", [timeline.ending] if timeline.ending is not None else []),
            )
            for each in spans
        ],
    }


def _urgency(replica: ReplicaTimeline) -> tuple[bool, int]:
    """Return a replica's sort key for when not all fit: first those not running, then those with restarts."""
    last = replica.lives[-1] if replica.lives else None
    runs = last is not None and bool(last.intervals) and last.intervals[-1].state is PodState.RUNNING
    return runs or (last is not None and last.ending is PodOutcome.SUCCEEDED), -replica.restarts


def _lane(replica: ReplicaTimeline, begin: datetime | None) -> dict[str, Any]:
    """Return the history of a replica.

    If no pod or event shows a restart any longer, it is drawn in the longest gap between pods.
    """
    lives = [*replica.lives]
    lost = replica.restarts - sum(each.restarts for each in lives) - len(lives) + 1
    if lost > 0:
        ends = [begin, *(each.end for each in lives[:-1])]
        pauses = zip(ends, lives, strict=True)
        gaps = [(life.start - end, end, place) for place, (end, life) in enumerate(pauses) if life.start and end]
        length, start, place = max(gaps, default=(timedelta(), None, 0))
        if start is not None and length > timedelta():
            interval = Interval(PodState.UNSTABLE, start, start + length)
            lives.insert(place, PodHistory("", start=start, end=start + length, intervals=(interval,), restarts=lost))
    return {"type": replica.name.type, "index": replica.name.number, "lives": _plain((*lives,))}


_OF_LIFE: Final = ("pod", "node", "start", "end", "ending", "exit_code", "reason", "restarts", "intervals")


def _plain(value: Any) -> Any:
    """Return a part of a timeline as JSON, with times in seconds and truncated texts."""
    if isinstance(value, datetime):
        return seconds(value)
    if isinstance(value, str):
        return clean(value, MAX_WORDS)
    if isinstance(value, PodHistory | Interval | Span | AttemptSpan):
        names = _OF_LIFE if isinstance(value, PodHistory) else value._fields
        return {name: _plain(getattr(value, name)) for name in names}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


MAX_WHY: Final = 200
"""The most bytes of a message in a row of the list."""
MAX_WORDS: Final = 600
"""The most bytes of a message in a table: the events have the rest."""
BAD_WAITS: Final = IMAGE_REASONS | {
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
}
"""The reasons of waiting containers that will not start without intervention."""
OOM_KILLED: Final = "OOMKilled"
"""The reason of a run that is more informative than the following CrashLoopBackOff."""


def place_of(pod: PodDetails) -> ReplicaName:
    """Return the replica type and index from the labels of a pod; ("", 0) if they were removed."""
    replica = replica_of(pod.metadata.labels, "", "")
    return replica._replace(number=max(0, replica.number))


def newest_of(pods: Iterable[PodDetails]) -> dict[ReplicaName, PodDetails]:
    """Return the newest pod of each replica."""
    ordered = sorted(pods, key=lambda pod: (seconds(pod.metadata.creation_timestamp) or 0, pod.metadata.name))
    return {place_of(pod): pod for pod in ordered}


def is_ready(pod: PodDetails) -> bool:
    """Return True if a pod is running, ready, and not being deleted."""
    ready = condition_of(pod.status.conditions, "Ready")
    return pod.status.phase == "Running" and ready is not None and ready.status == "True" and not _is_terminating(pod)


def problem_of(pod: PodDetails) -> str:
    """Return the problem of a pod in one word, "" for none."""
    if pod.status.phase == "Succeeded" or _is_terminating(pod):
        return ""
    for status in statuses(pod):
        waiting = status.state.waiting if status.state is not None else None
        if waiting is not None and waiting.reason in BAD_WAITS:
            last = status.last_state.terminated if status.last_state is not None else None
            return OOM_KILLED if last is not None and last.reason == OOM_KILLED else waiting.reason
    if pod.status.phase == "Failed":
        ended = _state(pod, training_of(pod))[1]
        return pod.status.reason or (f"exit code {ended}" if ended else "Failed")
    scheduled = condition_of(pod.status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return scheduled.reason or "Unschedulable"
    return ""


def replica_view(pod: PodDetails, restarts: int) -> dict[str, Any]:
    """Return a pod's row in the table of replicas. `restarts` counts the restarts of the replica, summed over all its pods."""
    kind, index = place_of(pod)
    main = training_of(pod)
    running = main.state.running if main is not None and main.state is not None else None
    word, exit_code, message = _state(pod, main)
    return {
        **missing_view(pod.metadata.name, kind, index, done=False, restarts=restarts),
        "uid": pod.metadata.uid,
        "state": word,
        "ready": is_ready(pod),
        "trouble": problem_of(pod),
        "node": pod.spec.node_name,
        "exit": exit_code,
        "created": seconds(pod.metadata.creation_timestamp),
        "started": seconds(running.started_at if running is not None else pod.status.start_time),
        "message": clean(message, MAX_WORDS),
        "containers": [each.name for each in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))],
        "inPlace": main.restart_count if main is not None else 0,
    }


def missing_view(name: str, kind: str, index: int, *, done: bool, restarts: int) -> dict[str, Any]:
    """Return the row of a replica without a pod: it has finished and was cleaned up, or was not created yet."""
    return {
        "name": name,
        "uid": "",
        "type": kind,
        "index": index,
        "state": "Succeeded" if done else "No pod",
        "trouble": "",
        "node": "",
        "restarts": restarts,
        "exit": 0 if done else None,
        "created": None,
        "message": "",
        "containers": [],
        "inPlace": 0,
    }


def seconds(then: datetime | None) -> float | None:
    """Return a time in seconds since 1970, as browsers use it."""
    return None if then is None else round(then.timestamp(), 3)


def _state(pod: PodDetails, main: ContainerStatusDetails | None) -> tuple[str, int | None, str]:
    """Return a state, an exit code and the newest message of a pod."""
    state = main.state if main is not None else None
    last = main.last_state.terminated if main is not None and main.last_state is not None else None
    if state is not None and state.terminated is not None:
        over = state.terminated
        word = "Terminating" if _is_terminating(pod) else pod.status.phase or "Ended"
        return word, over.exit_code, over.message or pod.status.message or over.reason
    code = last.exit_code if last is not None else None
    if _is_terminating(pod):
        return "Terminating", code, pod.status.message
    if state is not None and state.waiting is not None and state.waiting.reason:
        return state.waiting.reason, code, (last.message if last is not None else "") or state.waiting.message
    scheduled = condition_of(pod.status.conditions, "PodScheduled")
    if pod.status.phase != "Running" and scheduled is not None and scheduled.status == "False":
        return scheduled.reason or "Unschedulable", code, scheduled.message
    return pod.status.phase or "Pending", code, pod.status.message


def _is_terminating(pod: PodDetails) -> bool:
    return pod.metadata.deletion_timestamp is not None


MAX_LINE: Final = 4_096
"""The most bytes of a line that are shown: browsers take seconds to wrap longer ones."""
_CODES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colors, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # titles, links: up to their end
    r"|\x1b[ -/]*[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_BACK: Final = re.compile(rb"\x08+")


class LogLines:
    """Splits a stream of bytes into lines. At most `MAX_LINE` bytes of an incomplete line are kept.

    If a program overwrites a line (progress bars end with a carriage return or backspaces), the last version counts.
    """

    def __init__(self) -> None:
        self._head = b""
        self._left_out = 0

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Yield the lines completed by a chunk."""
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            self._take(piece)
            yield self._line()
        self._take(rest)

    def end(self) -> Iterator[str]:
        """Yield the incomplete last line, if any."""
        if self._head:
            yield self._line()

    def _take(self, piece: bytes) -> None:
        begin = piece.rstrip(b"\r").rfind(b"\r") + 1
        if begin:
            self._head, self._left_out, piece = b"", 0, piece[begin:]
        room = MAX_LINE - len(self._head)
        self._head += piece[:room]
        self._left_out += max(0, len(piece) - room)

    def _line(self) -> str:
        text = _BACK.sub(b"\r", self._head).rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
        more = f" ... {self._left_out} more bytes" if self._left_out else ""
        self._head, self._left_out = b"", 0
        return clean(_CODES.sub("", text).expandtabs(), MAX_LINE) + more
