"""The status of a job by replica: values, and their display as a tree. Pure."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from tfjob_operator.api.meta import Struct
from tfjob_operator.api.text import clean, last_words, quoted
from tfjob_operator.api.v1 import conditions as v1_conditions
from tfjob_operator.api.v1.indices import format_indices, parse_indices
from tfjob_operator.api.v1.types import AvoidedNode, EndRecord, JobAttempt
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.objects import PodDetails
from tfjob_operator.cli.model.pods import condition_of, is_up, statuses
from tfjob_operator.cli.model.replicas import ReplicaName, order_of, replica_of
from tfjob_operator.cli.model.words import ago, avoided_now, ended_by
from tfjob_operator.cli.sizes import restarts_of, sizes_of
from tfjob_operator.cli.timelines.build import ended_of, training_of, utc
from tfjob_operator.cli.timelines.values import TimelineJob

Paint = Callable[[str, str], str]


class ReplicaSummary(Struct, frozen=True, omit_defaults=False):
    """A replica's newest pod, or several replicas in one state without pods: `pod` is "", `count` is their number.

    `replica` is `worker-0`, or `worker-[3,5-9]`. `restarts` counts all restarts that the job has recorded.
    """

    replica: str
    state: str
    pod: str = ""
    count: int = 1
    node: str = ""
    created: datetime | None = None
    restarts: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""


class ReplicaTypeSummary(Struct, frozen=True, omit_defaults=False):
    """The replicas of one type: how many are requested, how many are running, and which pods are missing."""

    type: str
    wanted: int
    running: int
    succeeded: int
    failed: int
    missing: str = ""
    replicas: tuple[ReplicaSummary, ...] = ()


class ConditionSummary(Struct, frozen=True, omit_defaults=False):
    """A condition of the job."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


class JobSummary(Struct, frozen=True, omit_defaults=False):
    """A job. `state` is as in the STATE column; `max_restarts` is from its spec, the other attempt fields from its status.

    `ending` is how the job will end if it is Ending, else None.
    """

    namespace: str
    name: str
    state: str
    created: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    conditions: tuple[ConditionSummary, ...] = ()
    types: tuple[ReplicaTypeSummary, ...] = ()
    attempt: int = 0
    counted_restarts: int = 0
    max_restarts: int | None = None
    next_restart_time: datetime | None = None
    attempt_history: tuple[JobAttempt, ...] = ()
    avoided_nodes: tuple[AvoidedNode, ...] = ()
    ending: EndRecord | None = None


MISSING: Final = "Missing"
_COMMON: Final = {"ContainerCreating", "PodInitializing", ""}
"""Waiting reasons that occur in every start."""


def job_summary_of(job: TimelineJob, body: Mapping[str, Any], pods: Sequence[PodDetails]) -> JobSummary:
    """Return the state of a job. `body` is the whole raw job, of either dialect."""
    meta, status = job.metadata, job.status
    conditions = status.conditions or ()
    is_ending = v1_conditions.is_ending(status)
    state = v1_conditions.ENDING if is_ending else conditions[-1].type if conditions else status.phase or "New"
    return JobSummary(
        namespace=meta.namespace,
        name=meta.name,
        state=state,
        created=utc(meta.creation_timestamp),
        started=utc(status.start_time),
        ended=utc(status.completion_time),
        conditions=tuple(
            ConditionSummary(
                type=each.type,
                status=each.status,
                reason=each.reason,
                message=each.message,
                since=utc(each.last_transition_time),
            )
            for each in conditions
        ),
        types=tuple(_types(job, body, pods)),
        attempt=status.attempt,
        counted_restarts=status.counted_restarts,
        max_restarts=_max_restarts(body),
        next_restart_time=utc(status.next_restart_time),
        attempt_history=status.attempt_history or (),
        avoided_nodes=status.avoided_nodes or (),
        ending=v1_conditions.end_record(status) if is_ending else None,
    )


def _max_restarts(body: Mapping[str, Any]) -> int | None:
    found: Any = body
    for key in ("spec", "runPolicy", "failurePolicy", "maxRestarts"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, int) else None


def _types(job: TimelineJob, body: Mapping[str, Any], pods: Sequence[PodDetails]) -> Iterator[ReplicaTypeSummary]:
    wanted = {_type(kind): size for kind, size in sizes_of(body)}
    newest: dict[ReplicaName, PodDetails] = {}
    for pod in sorted(pods, key=_began):
        newest[replica_of(pod.metadata.labels, job.metadata.name, pod.metadata.name)] = pod
    there: dict[str, dict[ReplicaName, PodDetails]] = defaultdict(dict)
    for name in sorted(newest, key=order_of):
        there[name.type][name] = newest[name]
    restarts = {ReplicaName(_type(kind), index): times for kind, index, times in restarts_of(body)}
    is_true = {each.type for each in job.status.conditions or () if each.status == "True"}
    missing = MISSING if job.status.next_restart_time is None else "BackOff"
    for kind in sorted({*wanted, *there}, key=lambda each: order_of(ReplicaName(each))):
        size = wanted.get(kind, 0)
        absent = set(range(size)) - {name.number for name in there[kind]}
        succeeded = parse_indices(_finished(body, kind), size) & absent
        lost = absent - succeeded
        why = "No pod" if v1_conditions.is_over(job.status) else "Suspended" if "Suspended" in is_true else missing
        rows = [_standing(name, pod, restarts.get(name, 0)) for name, pod in there[kind].items()]
        rows += [
            _without_pod(kind, indices, each) for indices, each in ((succeeded, "Succeeded"), (lost, why)) if indices
        ]
        phases = [pod.status.phase for pod in there[kind].values()]
        yield ReplicaTypeSummary(
            type=kind,
            wanted=size,
            running=sum(map(is_up, there[kind].values())),
            succeeded=phases.count("Succeeded") + len(succeeded),
            failed=phases.count("Failed"),
            missing=format_indices(lost) if lost and why == MISSING else "",
            replicas=tuple(rows),
        )


def _began(pod: PodDetails) -> float:
    created = utc(pod.metadata.creation_timestamp)
    return created.timestamp() if created is not None else 0.0


def _type(name: object) -> str:
    return replica_of(None, "", f"-{name}-0").type or str(name)


def _finished(body: Mapping[str, Any], kind: str) -> str:
    """Return the succeeded replicas of a type, in the format of the status."""
    status = body.get("status")
    finished = status.get("finishedIndices") if isinstance(status, dict) else None
    for key, indices in finished.items() if isinstance(finished, dict) else ():
        if _type(key) == kind and isinstance(indices, str):
            return indices
    return ""


def _without_pod(kind: str, indices: set[int], state: str) -> ReplicaSummary:
    shown = format_indices(indices)
    name = f"{kind.lower()}-{shown if len(indices) == 1 else f'[{shown}]'}"
    return ReplicaSummary(replica=name, state=state, count=len(indices))


def _standing(name: ReplicaName, pod: PodDetails, recorded: int) -> ReplicaSummary:
    training, ended = training_of(pod), ended_of(pod)
    state, message = _state(pod)
    in_place = training.restart_count if training is not None else 0
    return ReplicaSummary(
        replica=f"{name.type.lower()}-{name.number}" if name.type else pod.metadata.name,
        state=state,
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        created=utc(pod.metadata.creation_timestamp),
        restarts=max(recorded, in_place),
        exit_code=ended.exit_code if ended is not None else None,
        reason=pod.status.reason or (ended.reason if ended is not None else ""),
        message=message or last_words(ended.message if ended is not None else ""),
    )


def _state(pod: PodDetails) -> tuple[str, str]:
    """Return the state of a pod, like kubectl's column STATUS, and a message."""
    status = pod.status
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating", ""
    if status.phase in {"Succeeded", "Failed"}:
        return status.reason or status.phase, last_words(status.message)
    for each in statuses(pod):
        waiting = each.state.waiting if each.state is not None else None
        if waiting is not None and waiting.reason not in _COMMON:
            ended = each.last_state.terminated if each.last_state is not None else None
            left = ended.message if ended is not None else ""
            return waiting.reason, last_words(left) or last_words(waiting.message)
    scheduled = condition_of(status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return scheduled.reason or "Pending", last_words(scheduled.message)
    training = training_of(pod)
    if training is not None and training.state is not None and training.state.waiting is not None:
        return training.state.waiting.reason or status.phase or "Pending", ""
    return status.phase or "Pending", ""


MIN_WIDTH: Final = 30
"""The minimum width in columns; lines on a narrower terminal are this long."""
_MAX_NODES: Final = 10
_NAMES: Final = ("REPLICA", "STATE", "NODE", "AGE", "RESTARTS", "EXIT")
_LEFT_OUT: Final = ("NODE", "AGE", "RESTARTS", "EXIT")
"""The columns that a narrow terminal omits, in this order."""
GOOD: Final = frozenset({"Running", "Succeeded", "Completed"})
BAD: Final = frozenset(
    {"Failed", "Error", "Missing", "Evicted", "OOMKilled", "CrashLoopBackOff", "ImagePullBackOff", "Unschedulable"}
)


class TreeSymbols(NamedTuple):
    """The characters of a tree."""

    branch: str
    last: str
    line: str
    space: str = "   "


UNICODE: Final = TreeSymbols("├─ ", "└─ ", "│  ")
ASCII: Final = TreeSymbols("|- ", "`- ", "|  ")


def tone_of(state: str) -> str:
    """Return the color of a state: red if a user should look at it, yellow if it changes by itself."""
    if state in GOOD:
        return "green"
    return "red" if state in BAD or state.startswith(("Err", "Invalid", "CreateContainer")) else "yellow"


def render(
    standing: JobSummary, now: datetime, paint: Paint, width: int = 80, signs: TreeSymbols = UNICODE
) -> list[str]:
    """Return the lines: the job and its conditions, then the replicas of each type with their last messages."""
    width = max(width, MIN_WIDTH)
    return [*_head(standing, now, paint, width), "", *_tree(standing, now, paint, width, signs)]


def _head(job: JobSummary, now: datetime, paint: Paint, width: int) -> Iterator[str]:
    name, state = quoted(job.name), quoted(job.state)
    created = f", created {ago(now, job.created)}" if job.created is not None else ""
    over = f", after {duration((job.ended - job.started).total_seconds())}" if job.ended and job.started else ""
    plain = textwrap.shorten(f"{name} in {quoted(job.namespace)}: {state}{over}{created}", 4 * width)
    first, *rest = textwrap.wrap(plain, width, subsequent_indent="  ") or [""]
    yield first.replace(f": {state}", f": {paint(state, tone_of(job.state))}", 1)
    yield from rest
    for each in job.conditions:
        if each.status == "True":
            when = f" {ago(now, each.since)}" if each.since is not None else ""
            text = f"{quoted(each.type)}{when}: {_one_line(each.message) or quoted(each.reason)}"
            yield from textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ")
    if job.ending is not None:
        since, message = ago(now, utc(job.ending.time)), _one_line(job.ending.message)
        text = f"Ends as {job.ending.type}, decided {since or 'already'}: {message or quoted(job.ending.reason)}"
        yield from textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ")
    for text in _attempts(job, now):
        yield from textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _attempts(job: JobSummary, now: datetime) -> Iterator[str]:
    """Yield the restarts of the whole job with reasons, newest first; when the next one is due; and the avoided nodes."""
    if job.attempt:
        used = f": {job.counted_restarts} of {job.max_restarts} restarts used" if job.max_restarts is not None else ""
        yield f"Attempt {job.attempt}{used}"
    if job.next_restart_time is not None and job.next_restart_time > now and job.ended is None:
        yield f"Next restart in {duration((job.next_restart_time - now).total_seconds())}"
    for each in reversed(job.attempt_history):
        start, end = utc(each.start_time), utc(each.end_time)
        ran = f" after {duration((end - start).total_seconds())}" if start is not None and end is not None else ""
        yield f"Attempt {each.number} ended {ago(now, end)}{ran}: {ended_by(each)}"
    nodes = list(avoided_now(job.avoided_nodes, now).values())
    if nodes and job.ended is None:
        more = f" and {len(nodes) - _MAX_NODES} more" if len(nodes) > _MAX_NODES else ""
        yield f"Avoids {', '.join(nodes[:_MAX_NODES])}{more}"


def _tree(job: JobSummary, now: datetime, paint: Paint, width: int, signs: TreeSymbols) -> Iterator[str]:
    rows = [_cells(each, now) for kind in job.types for each in kind.replicas]
    if not rows:
        yield "no replicas"
        return
    table = _Table(rows, signs, paint, width)
    yield table.header()
    left = iter(rows)
    for kind in job.types:
        yield _summary(kind, paint, width)
        for number, each in enumerate(kind.replicas, 1):
            is_last = number == len(kind.replicas)
            yield table.row(next(left), signs.last if is_last else signs.branch)
            indent = (signs.space if is_last else signs.line) + "  "
            if message := _one_line(each.message):
                yield from textwrap.wrap(message, width, initial_indent=indent, subsequent_indent=indent, max_lines=3)


def _summary(kind: ReplicaTypeSummary, paint: Paint, width: int) -> str:
    counts = [f"{kind.running} of {kind.wanted} running"]
    counts += [
        f"{number} {word}" for number, word in ((kind.succeeded, "succeeded"), (kind.failed, "failed")) if number
    ]
    text = f"{quoted(kind.type) or 'Others'}: {', '.join(counts)}"
    indices = kind.missing if kind.missing.isdecimal() else f"[{kind.missing}]"
    missing = f", {quoted(kind.type).lower()}-{indices} missing" if kind.missing else ""
    room = max(width - len(text), 0)
    cut = missing if len(missing) <= room else f"{missing[: max(room - 3, 0)]}..."[:room]
    return f"{text[:width]}{paint(cut, 'red')}"


def _cells(each: ReplicaSummary, now: datetime) -> Sequence[str]:
    age = duration((now - each.created).total_seconds()) if each.created is not None else ""
    reason = (
        f" ({quoted(each.reason)})" if each.reason and each.reason not in {"Error", "Completed", each.state} else ""
    )
    code = f"{each.exit_code}{reason}" if each.exit_code is not None else ""
    has_pod = bool(each.pod)
    name = quoted(each.replica)
    return name, quoted(each.state), quoted(each.node), age, str(each.restarts) if has_pod else "", code


def _columns(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the columns that fit, without empty ones."""
    shown = [place for place in range(len(_NAMES)) if place < 2 or any(cells[place] for cells in rows)]
    for name in ("", *_LEFT_OUT):
        shown = [place for place in shown if _NAMES[place] != name]
        needed = sum(max(len(cells[place]) for cells in (_NAMES, *rows)) + 2 for place in shown) + 1
        if needed <= width:
            break
    return shown


class _Table:
    """Rows with aligned columns, of which as many are shown as fit."""

    def __init__(self, rows: Sequence[Sequence[str]], signs: TreeSymbols, paint: Paint, width: int) -> None:
        self._shown = _columns(rows, width)
        self._widths = [max(len(cells[place]) for cells in (_NAMES, *rows)) for place in self._shown]
        self._widths[0] += len(signs.branch)
        self._paint = paint
        self._width = width

    def header(self) -> str:
        return self._plain(_NAMES, "")

    def row(self, cells: Sequence[str], mark: str) -> str:
        """Return a row, cut at the terminal's width, with a colored state."""
        line, start = self._plain(cells, mark), self._widths[0] + 2
        end = start + len(cells[1])
        return line[:start] + self._paint(line[start:end], tone_of(cells[1])) + line[end:]

    def _plain(self, cells: Sequence[str], mark: str) -> str:
        texts = [cells[place] for place in self._shown]
        texts[0] = mark + texts[0]
        line = "  ".join(text.ljust(size) for text, size in zip(texts, self._widths, strict=True))
        return line.rstrip()[: self._width]


def _one_line(text: str) -> str:
    return " ".join(clean(text, 1000).split())
