"""The status of a job by replica: values, and their display as a tree. Pure."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from tfjob_operator.api.meta import Struct
from tfjob_operator.api.text import quoted, tail_of
from tfjob_operator.api.v1.indices import format_indices
from tfjob_operator.api.v1.states import ENDING
from tfjob_operator.api.v1.types import AvoidedNode, EndRecord, JobAttempt, execution_of
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.facts import PodFacts, seconds
from tfjob_operator.cli.model.facts import text as text_of
from tfjob_operator.cli.model.failures import has_read_logs
from tfjob_operator.cli.model.job_events import LOGS_UNAVAILABLE
from tfjob_operator.cli.model.replica_names import ReplicaName, order_of
from tfjob_operator.cli.model.snapshot import JobSnapshot, ReplicaSnapshot, snapshot_of
from tfjob_operator.cli.model.words import abridged, accelerator_hours, ago, avoided_now, ended_by, wrapped
from tfjob_operator.cli.timelines.build import utc
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
    """The replicas of one type: how many are requested, ready and running, and which pods are missing."""

    type: str
    wanted: int
    ready: int
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
    """A job. `state`, `message` and the three counts are those of `list`.

    `logs_unavailable` is the Warning that progressDeadlineSeconds has no effect.

    `reason` is a word for scripts, and `reason_detail` what `list` shows behind it, as in `ExitCode:3`. `max_restarts` is from
    its spec, the other attempt fields from its status. `ending` is how the job will end if it is Ending, else None.
    """

    namespace: str
    name: str
    state: str
    reason: str = ""
    reason_detail: str = ""
    message: str = ""
    ready: int = 0
    wanted: int = 0
    restarts: int = 0
    created: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    conditions: tuple[ConditionSummary, ...] = ()
    types: tuple[ReplicaTypeSummary, ...] = ()
    attempt: int = 0
    counted_restarts: int = 0
    execution_attempt: int = 0
    max_restarts: int | None = None
    next_restart_time: datetime | None = None
    attempt_history: tuple[JobAttempt, ...] = ()
    avoided_nodes: tuple[AvoidedNode, ...] = ()
    ending: EndRecord | None = None
    logs_unavailable: ConditionSummary | None = None
    accelerator_seconds: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)

    @property
    def full_reason(self) -> str:
        """The reason as in `list`."""
        return f"{self.reason}{self.reason_detail and ':'}{self.reason_detail}"


def job_summary_of(  # noqa: PLR0917 - the order of `snapshot_of`
    job: TimelineJob,
    body: Mapping[str, Any],
    pods: Iterable[Mapping[str, Any]],
    now: datetime,
    events: Iterable[Mapping[str, Any]] = (),
    workload: Mapping[str, Any] | None = None,
) -> JobSummary:
    """Return the state of a job. `body` is the whole raw job, of either dialect; the other objects are raw too."""
    meta, status, events = job.metadata, job.status, [*events]
    seen = snapshot_of(body, pods, now.timestamp(), events, workload)
    reason, _, detail = seen.reason.partition(":")
    return JobSummary(
        namespace=meta.namespace,
        name=meta.name,
        state=seen.state,
        reason=reason,
        reason_detail=detail,
        message=seen.message,
        ready=seen.ready,
        wanted=seen.wanted,
        restarts=seen.restarts,
        created=utc(meta.creation_timestamp),
        started=utc(status.start_time),
        ended=utc(status.completion_time),
        conditions=tuple(
            ConditionSummary(
                type=condition.type,
                status=condition.status,
                reason=condition.reason,
                message=condition.message,
                since=utc(condition.last_transition_time),
            )
            for condition in status.conditions or ()
        ),
        types=tuple(_types(seen)),
        attempt=status.attempt,
        counted_restarts=status.counted_restarts,
        execution_attempt=execution_of(status.attempt, status.execution_attempt),
        max_restarts=_max_restarts(body),
        next_restart_time=utc(status.next_restart_time),
        attempt_history=status.attempt_history or (),
        avoided_nodes=status.avoided_nodes or (),
        ending=status.begun.ending if seen.state == ENDING and status.begun is not None else None,
        logs_unavailable=_logs_unavailable(job, events),
        accelerator_seconds=status.accelerator_seconds or {},
    )


def _logs_unavailable(job: TimelineJob, events: Iterable[Mapping[str, Any]]) -> ConditionSummary | None:
    """Return the newest Warning that the operator may not read logs, unless it has read some since."""
    status, found = job.status, [event for event in events if event.get("reason") == LOGS_UNAVAILABLE]
    times = {seconds(event.get("lastTimestamp") or event.get("eventTime")) or 0.0: event for event in found}
    if not times:
        return None
    since = datetime.fromtimestamp(max(times), UTC)
    if has_read_logs(status.conditions or (), status.attempt_history or (), since):
        return None
    return ConditionSummary(LOGS_UNAVAILABLE, "True", message=text_of(times[max(times)].get("message")), since=since)


def _max_restarts(body: Mapping[str, Any]) -> int | None:
    found: Any = body
    for key in ("spec", "runPolicy", "failurePolicy", "maxRestarts"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, int) else None


def _types(seen: JobSnapshot) -> Iterator[ReplicaTypeSummary]:
    found: dict[str, list[ReplicaSnapshot]] = defaultdict(list)
    for replica in seen.replicas:
        found[replica.type].append(replica)
    for kind in sorted({*seen.job.sizes, *found}, key=lambda each: order_of(ReplicaName(each))):
        without: dict[str, set[int]] = defaultdict(set)
        for replica in found[kind]:
            if replica.pod is None:
                without[replica.state].add(replica.index)
        rows = [_with_pod(replica, replica.pod) for replica in found[kind] if replica.pod is not None]
        order = sorted(without, key=lambda state: state != "Succeeded")
        yield ReplicaTypeSummary(
            type=kind,
            wanted=seen.job.sizes.get(kind, 0),
            ready=seen.ready_of(kind),
            running=sum(replica.running for replica in found[kind]),
            succeeded=seen.succeeded_of(kind),
            failed=sum(replica.pod is not None and replica.pod.has_failed for replica in found[kind]),
            missing=format_indices(without["Missing"]),
            replicas=(*rows, *(_without_pod(kind, without[state], state) for state in order)),
        )


def _without_pod(kind: str, indices: set[int], state: str) -> ReplicaSummary:
    shown = format_indices(indices)
    name = f"{kind.lower()}-{shown if len(indices) == 1 else f'[{shown}]'}"
    return ReplicaSummary(replica=name, state=state, count=len(indices))


def _with_pod(replica: ReplicaSnapshot, pod: PodFacts) -> ReplicaSummary:
    return ReplicaSummary(
        replica=f"{replica.type.lower()}-{replica.index}" if replica.type else pod.name,
        state=replica.state,
        pod=pod.name,
        node=pod.node,
        created=datetime.fromtimestamp(pod.created, UTC) if pod.created else None,
        restarts=replica.restarts,
        exit_code=pod.exit_code,
        reason=pod.exit_reason,
        message=tail_of(pod.message),
    )


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
    summary: JobSummary, now: datetime, paint: Paint, width: int = 80, signs: TreeSymbols = UNICODE
) -> list[str]:
    """Return the lines: the job and its conditions, then the replicas of each type with their last messages."""
    width = max(width, MIN_WIDTH)
    return [*_head(summary, now, paint, width), "", *_tree(summary, now, paint, width, signs)]


def _head(job: JobSummary, now: datetime, paint: Paint, width: int) -> Iterator[str]:
    name, state = quoted(job.name), quoted(job.state)
    created = f", created {ago(now, job.created)}" if job.created is not None else ""
    over = f", after {duration((job.ended - job.started).total_seconds())}" if job.ended and job.started else ""
    reason = f" ({quoted(job.full_reason)})" if job.reason and job.reason != job.state else ""
    plain = textwrap.shorten(f"{name} in {quoted(job.namespace)}: {state}{reason}{over}{created}", 4 * width)
    first, *rest = textwrap.wrap(plain, width, subsequent_indent="  ") or [""]
    yield first.replace(f": {state}", f": {paint(state, tone_of(job.state))}", 1)
    yield from rest
    for condition in job.conditions:
        if condition.status == "True":
            when = f" {ago(now, condition.since)}" if condition.since is not None else ""
            text = f"{quoted(condition.type)}{when}: {_one_line(condition.message) or quoted(condition.reason)}"
            yield from textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ")
    if job.logs_unavailable is not None:
        text = f"{LOGS_UNAVAILABLE} {ago(now, job.logs_unavailable.since)}: {_one_line(job.logs_unavailable.message)}"
        yield from textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ")
    if job.ending is not None:
        since, message = ago(now, utc(job.ending.time)), _one_line(job.ending.message)
        text = f"Ends as {job.ending.type}, decided {since or 'already'}: {message or quoted(job.ending.reason)}"
        yield from textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ")
    for text in _attempts(job, now):
        yield from textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _attempts(job: JobSummary, now: datetime) -> Iterator[str]:
    """Yield the restarts of the whole job, newest first; when the next is due; avoided nodes; and hours of accelerators."""
    if job.attempt:
        used = f": {job.counted_restarts} of {job.max_restarts} restarts used" if job.max_restarts is not None else ""
        yield f"Attempt {job.attempt}{used}"
    if job.execution_attempt > job.attempt:
        yield f"Execution {job.execution_attempt}, counting resumptions"
    if job.next_restart_time is not None and job.next_restart_time > now and job.ended is None:
        yield f"Next restart in {duration((job.next_restart_time - now).total_seconds())}"
    for attempt in reversed(job.attempt_history):
        start, end = utc(attempt.start_time), utc(attempt.end_time)
        ran = f" after {duration((end - start).total_seconds())}" if start is not None and end is not None else ""
        yield f"Attempt {attempt.number} ended {ago(now, end)}{ran}: {ended_by(attempt)}"
    nodes = list(avoided_now(job.avoided_nodes, now).values())
    if nodes and job.ended is None:
        more = f" and {len(nodes) - _MAX_NODES} more" if len(nodes) > _MAX_NODES else ""
        yield f"Avoids {', '.join(nodes[:_MAX_NODES])}{more}"
    for hours in accelerator_hours(job.accelerator_seconds):
        yield f"Ended pods held {hours}"


def _tree(job: JobSummary, now: datetime, paint: Paint, width: int, signs: TreeSymbols) -> Iterator[str]:
    rows = [_cells(replica, now) for kind in job.types for replica in kind.replicas]
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
                yield from wrapped(message, width, 3, first_indent=indent, indent=indent)


def _summary(kind: ReplicaTypeSummary, paint: Paint, width: int) -> str:
    counts = [f"{kind.ready} of {kind.wanted} ready"]
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
    return abridged(text, 1000)
