"""The standing of a job as a tree of lines, for terminals of any width. Pure: colours are names, the caller paints."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final, NamedTuple

from tfjob_operator.api.text import clean, quoted
from tfjob_operator.cli.diagnosis.words import ago
from tfjob_operator.cli.durations import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from tfjob_operator.cli.status.values import JobStanding, ReplicaStanding, TypeStanding

    Paint = Callable[[str, str], str]

NARROWEST: Final = 30
"""The least width in columns: on a narrower terminal nothing reads well, and lines are this long."""
_NAMES: Final = ("REPLICA", "STATE", "NODE", "AGE", "RESTARTS", "EXIT")
_LEFT_OUT: Final = ("NODE", "AGE", "RESTARTS", "EXIT")
"""The columns that a narrow terminal leaves out, in this order."""
GOOD: Final = frozenset({"Running", "Succeeded", "Completed"})
BAD: Final = frozenset(
    {"Failed", "Error", "Missing", "Evicted", "OOMKilled", "CrashLoopBackOff", "ImagePullBackOff", "Unschedulable"}
)


class Signs(NamedTuple):
    """What a tree is drawn with."""

    branch: str
    last: str
    line: str
    space: str = "   "


UNICODE: Final = Signs("├─ ", "└─ ", "│  ")
ASCII: Final = Signs("|- ", "`- ", "|  ")


def tone_of(state: str) -> str:
    """Return the colour of a state: red for what somebody should look at, yellow for what changes by itself."""
    if state in GOOD:
        return "green"
    return "red" if state in BAD or state.startswith(("Err", "Invalid", "CreateContainer")) else "yellow"


def render(standing: JobStanding, now: datetime, paint: Paint, width: int = 80, signs: Signs = UNICODE) -> list[str]:
    """Return the lines: the job and its conditions, then the replicas of each type with what they said last."""
    width = max(width, NARROWEST)
    return [*_head(standing, now, paint, width), "", *_tree(standing, now, paint, width, signs)]


def _head(job: JobStanding, now: datetime, paint: Paint, width: int) -> Iterator[str]:
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
            said = f"{quoted(each.type)}{when}: {_one_line(each.message) or quoted(each.reason)}"
            yield from textwrap.wrap(said, width, initial_indent="  ", subsequent_indent="    ")


def _tree(job: JobStanding, now: datetime, paint: Paint, width: int, signs: Signs) -> Iterator[str]:
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


def _summary(kind: TypeStanding, paint: Paint, width: int) -> str:
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


def _cells(each: ReplicaStanding, now: datetime) -> Sequence[str]:
    age = duration((now - each.created).total_seconds()) if each.created is not None else ""
    reason = (
        f" ({quoted(each.reason)})" if each.reason and each.reason not in {"Error", "Completed", each.state} else ""
    )
    code = f"{each.exit_code}{reason}" if each.exit_code is not None else ""
    has_pod = bool(each.pod)
    name = quoted(each.replica)
    return name, quoted(each.state), quoted(each.node), age, str(each.restarts) if has_pod else "", code


def _columns(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the places of the columns that fit; those that are empty are not needed."""
    shown = [place for place in range(len(_NAMES)) if place < 2 or any(cells[place] for cells in rows)]
    for name in ("", *_LEFT_OUT):
        shown = [place for place in shown if _NAMES[place] != name]
        needed = sum(max(len(cells[place]) for cells in (_NAMES, *rows)) + 2 for place in shown) + 1
        if needed <= width:
            break
    return shown


class _Table:
    """Rows with aligned columns, of which as many are shown as fit."""

    def __init__(self, rows: Sequence[Sequence[str]], signs: Signs, paint: Paint, width: int) -> None:
        self._shown = _columns(rows, width)
        self._widths = [max(len(cells[place]) for cells in (_NAMES, *rows)) for place in self._shown]
        self._widths[0] += len(signs.branch)
        self._paint = paint
        self._width = width

    def header(self) -> str:
        return self._plain(_NAMES, "")

    def row(self, cells: Sequence[str], mark: str) -> str:
        """Return a row, cut where the terminal ends. The state has the colour of what it means."""
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
