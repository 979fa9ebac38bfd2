"""What the page shows of jobs, as values for JSON: rows of the list, and the view of one job; and log lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from tfjob_operator.api.text import clean, tail_of
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1.types import InvalidSpec, child_name
from tfjob_operator.api.v1.validation import MAX_REPLICAS, read_spec
from tfjob_operator.api.v1alpha1 import constants as alpha
from tfjob_operator.api.v1alpha1.validation import read_spec as read_alpha_spec
from tfjob_operator.cli.model.facts import JobFacts, PodFacts, job_facts, pod_facts
from tfjob_operator.cli.model.job_events import JobEvents
from tfjob_operator.cli.model.objects import EventDetails, PodDetails
from tfjob_operator.cli.model.replica_names import ReplicaName, replica_of
from tfjob_operator.cli.model.snapshot import BACK_OFF, JobSnapshot, ReplicaSnapshot
from tfjob_operator.cli.model.words import abridged, accelerator_hours, ended_by
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


@dataclass(frozen=True, slots=True)
class SpecSummary:
    """What a job says: its facts, its queue, the restart limit of its spec, and the errors in it."""

    facts: JobFacts
    queue: str = ""
    mistakes: str = ""
    max_restarts: int | None = None


def spec_summary_of(job: PageJob) -> SpecSummary:
    """Parse the spec of a job. Never raises, whatever the specification."""
    facts = job_facts({"apiVersion": f"{job.resource.group}/", **msgspec.json.decode(msgspec.json.encode(job))})
    if job.is_alpha:
        dialect = alpha.TENSORFLOW if job.resource == alpha.TENSORFLOW.resource else alpha.KUBEFLOW
        old = read_alpha_spec(dialect, facts.name, job.spec)
        mistakes = clean(old.text, MAX_TEXT_BYTES) if isinstance(old, InvalidSpec) else ""
        return SpecSummary(facts, facts.queue, mistakes)
    spec = read_spec(facts.name, job.spec, was_good=job.status.begun is not None)
    if isinstance(spec, InvalidSpec):
        return SpecSummary(facts, facts.queue, clean(spec.text, MAX_TEXT_BYTES))
    most = spec.failure_policy.max_restarts if spec.failure_policy is not None else None
    return SpecSummary(facts, facts.queue or spec.scheduling.queue, max_restarts=most)


def snapshot_of(
    summary: SpecSummary,
    pods: Iterable[PodFacts] | None,
    events: Iterable[EventDetails],
    now: float,
    waits: tuple[str, str] | None = None,
) -> JobSnapshot:
    """Return the snapshot of a job; `pods` is None without permission to list them."""
    read = (event for event in events if event.type == "Warning" or event.involved_object.kind == TFJOBS.kind)
    return JobSnapshot(summary.facts, pods, now, events=JobEvents(map(msgspec.to_builtins, read)), waits=waits)


def pod_facts_of(summary: SpecSummary, pod: PodDetails) -> PodFacts:
    """Return the facts of a pod of the job."""
    return pod_facts(msgspec.to_builtins(pod), summary.facts.name, summary.facts.runtime_id)


def row_of(job: PageJob, summary: SpecSummary, seen: JobSnapshot) -> dict[str, Any]:
    """Return the row of a job. Times are in seconds since 1970, None if unknown.

    `quiet`: the reason `note` is intended, or temporary. `until` is the time of a delayed restart.
    """
    facts, is_delayed = summary.facts, seen.reason.startswith(BACK_OFF)
    return {
        "key": job.key,
        "namespace": facts.namespace,
        "api": facts.group,
        "name": facts.name,
        "uid": facts.uid,
        "state": seen.state,
        "since": facts.since,
        "note": clean(BACK_OFF.rstrip(":") if is_delayed else seen.reason, MAX_TEXT_BYTES),
        "until": facts.next_restart if is_delayed else None,
        "quiet": seen.is_quiet,
        "why": abridged(seen.message, MAX_WHY) if seen.reason else "",
        "replicas": _counts(seen),
        "restarts": seen.restarts,
        "queue": clean(summary.queue, MAX_TEXT_BYTES),
        "created": facts.created,
        "started": facts.started if seen.lasted_s is not None else None,
        "ended": facts.ended,
        "over": facts.end == seen.state,
        "deleting": facts.is_deleted,
    }


def job_view(
    job: PageJob, summary: SpecSummary, pods: Sequence[PodDetails], events: Sequence[EventDetails], seen: JobSnapshot
) -> dict[str, Any]:
    """Return everything on the page of one job, except logs, manifest and diagnosis."""
    held, spec = summary.facts.held, msgspec.json.decode(job.spec)
    return {
        "row": row_of(job, summary, seen),
        "message": abridged(
            str((summary.facts.stalled or summary.facts.condition).get("message") or ""), MAX_TEXT_BYTES
        ),
        "held": clean(str(held.get("message") or ""), MAX_TEXT_BYTES) if held is not None else "",
        "mistakes": summary.mistakes,
        "tensorboard": isinstance(spec, dict) and any(key.lower() == "tensorboard" for key in spec),
        "replicas": _replicas(job, summary, pods, seen),
        "events": _events(job, events),
        "timeline": timeline_view(job, pods, events),
        "alpha": summary.facts.is_alpha,
        "attempts": _attempts(job, summary),
        "accelerators": accelerator_hours(job.status.accelerator_seconds),
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
                "number": attempt.number,
                "start": seconds(attempt.start_time),
                "end": seconds(attempt.end_time),
                "why": clean(ended_by(attempt), MAX_TEXT_BYTES),
            }
            for attempt in status.attempt_history
        ],
        "avoided": [
            {
                "name": clean(node.name, MAX_TEXT_BYTES),
                "failures": node.failures,
                "until": seconds(node.expiration_time),
            }
            for node in status.avoided_nodes
            if node.expiration_time is not None
        ],
    }


def _counts(seen: JobSnapshot) -> list[dict[str, Any]]:
    found: dict[str, list[ReplicaSnapshot]] = {kind: [] for kind, size in seen.job.sizes.items() if size}
    for replica in seen.replicas:
        if replica.index < seen.job.sizes.get(replica.type, 0):
            found[replica.type].append(replica)
    return [
        {
            "type": kind,
            "wanted": seen.job.sizes[kind],
            "ready": seen.ready_of(kind) if seen.has_pods or seen.job.manager else None,
            "succeeded": seen.succeeded_of(kind),
            "failed": sum(replica.pod is not None and replica.pod.has_failed for replica in replicas),
        }
        for kind, replicas in found.items()
    ]


def _replicas(
    job: PageJob, summary: SpecSummary, pods: Iterable[PodDetails], seen: JobSnapshot
) -> list[dict[str, Any]]:
    """Return all replicas, including those without a pod, in the order of types and indices."""
    if seen.wanted > MAX_REPLICAS:
        return []
    details = {pod.metadata.uid: pod for pod in pods}
    return [
        replica_view(replica, replica.pod, details[replica.pod.uid])
        if replica.pod is not None
        else missing_view(replica, _name_of(job, summary, replica.type, replica.index))
        for replica in seen.replicas
    ]


def _name_of(job: PageJob, summary: SpecSummary, kind: str, index: int) -> str:
    """Return the name of a replica's pod or, in the alpha dialect, of its batch Job."""
    if summary.facts.is_alpha and job.status.runtime_id:
        return f"{kind.lower()}-{job.status.runtime_id}-{index}"
    return child_name(job.metadata.name, kind, index)


def _events(job: PageJob, events: Iterable[EventDetails]) -> list[dict[str, Any]]:
    own = job.resource.kind
    created = seconds(job.metadata.creation_timestamp) or 0
    shown: list[dict[str, Any]] = [
        {
            "id": event.metadata.uid,
            "type": clean(event.type, MAX_TEXT_BYTES),
            "reason": clean(event.reason, MAX_TEXT_BYTES),
            "message": clean(event.message),
            "object": event.involved_object.name if event.involved_object.kind != own else "",
            "count": event.series.count if event.series is not None else max(event.count, 1),
            "at": seconds(event.at),
        }
        for event in events
        if event.involved_object.kind != own or event.involved_object.uid in {"", job.metadata.uid}
        if (seconds(event.at) or created) >= created - 1  # pods of an earlier job had the same names
    ]
    return sorted(shown, key=lambda each: (-(each["at"] or 0), each["id"]))[:MAX_EVENTS]


MAX_LANES: Final = 200
"""The most replicas that are drawn, those with most restarts first: a screen has no room for more."""


def timeline_view(job: PageJob, pods: Sequence[PodDetails], events: Sequence[EventDetails]) -> dict[str, Any]:
    """Return lanes of replicas with the histories of their pods, and when the job was suspended or on hold.

    An end of None means now.
    """
    timeline = timeline_of(msgspec.convert(job, TimelineJob, from_attributes=True), pods, events)
    worst = sorted(range(len(timeline.replicas)), key=lambda index: _urgency(timeline.replicas[index]))
    return {
        "start": seconds(timeline.start),
        "end": seconds(timeline.end),
        "lanes": [_lane(timeline.replicas[index], timeline.start) for index in sorted(worst[:MAX_LANES])],
        "more": max(0, len(timeline.replicas) - MAX_LANES),
        "attempts": [_plain(attempt) for attempt in timeline.attempts],
        "spans": [
            {"kind": kind, **_plain(span)}
            for kind, spans in (
                ("suspended", timeline.suspensions),
                ("held", timeline.holds),
                ("ending", [timeline.ending] if timeline.ending is not None else []),
            )
            for span in spans
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
    lost = replica.restarts - sum(pod.restarts for pod in lives) - len(lives) + 1
    if lost > 0:
        ends = [begin, *(pod.end for pod in lives[:-1])]
        pauses = zip(ends, lives, strict=True)
        gaps = [(life.start - end, end, index) for index, (end, life) in enumerate(pauses) if life.start and end]
        length, start, index = max(gaps, default=(timedelta(), None, 0))
        if start is not None and length > timedelta():
            interval = Interval(PodState.UNSTABLE, start, start + length)
            lives.insert(index, PodHistory("", start=start, end=start + length, intervals=(interval,), restarts=lost))
    return {"type": replica.name.type, "index": replica.name.number, "lives": _plain((*lives,))}


_OF_LIFE: Final = ("pod", "node", "start", "end", "ending", "exit_code", "reason", "restarts", "intervals")


def _plain(value: Any) -> Any:
    """Return a part of a timeline as JSON, with times in seconds and truncated texts."""
    if isinstance(value, datetime):
        return seconds(value)
    if isinstance(value, str):
        return clean(value, MAX_TEXT_BYTES)
    if isinstance(value, PodHistory | Interval | Span | AttemptSpan):
        names = _OF_LIFE if isinstance(value, PodHistory) else value._fields
        return {name: _plain(getattr(value, name)) for name in names}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


MAX_WHY: Final = 200
"""The most bytes of a message in a row of the list."""
MAX_TEXT_BYTES: Final = 600
"""The most bytes of a message in a table: the events have the rest."""


def place_of(pod: PodDetails) -> ReplicaName:
    """Return the replica type and index from the labels of a pod; ("", 0) if they were removed."""
    replica = replica_of(pod.metadata.labels, "", "")
    return replica._replace(number=max(0, replica.number))


def newest_of(pods: Iterable[PodDetails]) -> dict[ReplicaName, PodDetails]:
    """Return the newest pod of each replica."""
    ordered = sorted(pods, key=lambda pod: (seconds(pod.metadata.creation_timestamp) or 0, pod.metadata.name))
    return {place_of(pod): pod for pod in ordered}


def replica_view(replica: ReplicaSnapshot, facts: PodFacts, pod: PodDetails) -> dict[str, Any]:
    """Return a replica's row in the table of replicas."""
    main = training_of(pod)
    running = main.state.running if main is not None and main.state is not None else None
    return {
        **missing_view(replica, facts.name),
        "uid": facts.uid,
        "node": facts.node,
        "exit": facts.exit_code,
        "created": seconds(pod.metadata.creation_timestamp),
        "started": seconds(running.started_at if running is not None else pod.status.start_time),
        "message": tail_of(facts.message or facts.problem_message, MAX_TEXT_BYTES),
        "containers": [each.name for each in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))],
        "inPlace": main.restart_count if main is not None else 0,
    }


def missing_view(replica: ReplicaSnapshot, name: str) -> dict[str, Any]:
    """Return the row of a replica without a pod."""
    return {
        "name": name,
        "uid": "",
        "type": replica.type,
        "index": max(replica.index, 0),
        "state": replica.state,
        "ready": replica.ready,
        "trouble": clean(replica.why, MAX_TEXT_BYTES),
        "node": "",
        "restarts": replica.restarts,
        "exit": 0 if replica.has_succeeded else None,
        "created": None,
        "message": "",
        "containers": [],
        "inPlace": 0,
    }


def seconds(then: datetime | None) -> float | None:
    """Return a time in seconds since 1970, as browsers use it."""
    return None if then is None else round(then.timestamp(), 3)


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
