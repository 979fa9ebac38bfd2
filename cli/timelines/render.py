"""Formats a timeline as text: a bar for each replica, and a list of happenings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Final, NamedTuple

from tfjob_operator.api.text import clean, one_line, quoted
from tfjob_operator.api.v1 import states
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.words import wrapped
from tfjob_operator.cli.timelines.values import (
    AttemptSpan,
    Happening,
    PodHistory,
    PodState,
    ReplicaTimeline,
    Span,
    Timeline,
)

MIN_WIDTH: Final = 40
"""The minimum width in columns; lines on a narrower terminal are this long."""
_DAY_S: Final = 86_400
MAX_HAPPENINGS: Final = 100
"""The most conditions and events that are listed, newest ones."""
_LABEL: Final = 24
"""The maximum width of names."""


class BarSymbols(NamedTuple):
    """The characters of bars, for each state, and for times in which the job was suspended or on hold."""

    waiting: str
    starting: str
    running: str
    restarting: str
    unstable: str
    stopping: str
    span: str


UNICODE: Final = BarSymbols("·", "░", "█", "▒", "▓", "▁", "═")
ASCII: Final = BarSymbols(".", ":", "#", "~", "%", "_", "=")
_COLOURS: Final = {
    PodState.WAITING: "bright_black",
    PodState.STARTING: "yellow",
    PodState.RUNNING: "green",
    PodState.RESTARTING: "red",
    PodState.UNSTABLE: "red",
    PodState.STOPPING: "bright_black",
}
_Cell = tuple[str, str]


class Frame(NamedTuple):
    """How lines are drawn: the end time, the time zone, the width."""

    now: datetime
    zone: tzinfo = UTC
    width: int = 80
    signs: BarSymbols = UNICODE


def render(timeline: Timeline, name: str, frame: Frame, paint: Callable[[str, str], str]) -> list[str]:
    """Return the lines: the time range, a bar for each replica, the legend, and all happenings."""
    frame = frame._replace(width=max(frame.width, MIN_WIDTH))
    start, end = _bounds(timeline, frame.now)
    lines = [_head(timeline, name, start, end, frame), ""]
    chart = _Chart(start, end, timeline, frame, paint)
    lines += chart.lines(timeline)
    if timeline.happenings:
        shown = _joined(timeline.happenings)
        if len(shown) > MAX_HAPPENINGS:
            lines += ["", f"... {len(shown) - MAX_HAPPENINGS} more before these"]
        shown = shown[-MAX_HAPPENINGS:]
        lines += ["", *(line for each, more in shown for line in _happening(each, more, frame, end - start, paint))]
    return lines


def _bounds(timeline: Timeline, now: datetime) -> tuple[float, float]:
    """Return the start and end of the chart in seconds since the epoch; pods may outlive the job."""
    lives = [life for replica in timeline.replicas for life in replica.lives]
    starts = [moment for moment in (timeline.start, *(life.start for life in lives)) if moment is not None]
    ends = [timeline.end or now, *(life.end or now for life in lives if life.intervals or life.end)]
    start = min(starts, default=now).timestamp()
    return start, max(*(moment.timestamp() for moment in ends), start + 1.0)


def _head(timeline: Timeline, name: str, start: float, end: float, frame: Frame) -> str:
    length_s = end - start
    if timeline.end is not None:
        moment = timeline.end.timestamp()
        over = f"finished {_clock(moment, frame, length_s)} after {duration(moment - start)}"
    elif timeline.state in states.ENDS:
        over = "finished"
    elif timeline.ending is not None:
        over = f"ending since {_clock(timeline.ending.start.timestamp(), frame, length_s)}"
    elif timeline.state in {"", ConditionType.RUNNING}:
        over = f"running for {duration(length_s)}"
    else:
        over = f"{one_line(timeline.state)}, age {duration(length_s)}"
    zone = frame.zone.tzname(frame.now) or "UTC"
    return f"{quoted(name)}: started {_clock(start, frame, length_s)} {zone}, {over}"[: frame.width]


def _clock(seconds: float, frame: Frame, length_s: float) -> str:
    try:
        moment = frame.now.fromtimestamp(seconds, frame.zone)
    except (ValueError, OverflowError):
        return "?"  # out of range, such as the year 0: reporters set the timestamps of events themselves
    return moment.strftime("%m-%d %H:%M" if length_s > _DAY_S else "%H:%M:%S")


class _Chart:
    def __init__(
        self, start: float, end: float, timeline: Timeline, frame: Frame, paint: Callable[[str, str], str]
    ) -> None:
        labels = [_label(replica) for replica in timeline.replicas] + ["suspended"]
        self._label = min(max(map(len, labels)), _LABEL, frame.width // 3)
        notes = [_note(replica) for replica in timeline.replicas]
        self._note = max(map(len, notes), default=0) if frame.width >= 2 * MIN_WIDTH else 0
        self._columns = frame.width - self._label - 1 - (self._note and self._note + 1)
        self._start, self._end = start, end
        self._frame, self._paint = frame, paint

    def lines(self, timeline: Timeline) -> Iterator[str]:
        yield " " * (self._label + 1) + self._axis()
        for replica in timeline.replicas:
            cells = self._cells_of(life for life in replica.lives)
            note = f" {_note(replica)}" if self._note else ""
            yield f"{_label(replica)[: self._label]:<{self._label}} {self._painted(cells)}{note}".rstrip()
        if timeline.attempts:
            yield f"{'attempt'[: self._label]:<{self._label}} {self._painted(self._numbered(timeline.attempts))}".rstrip()
        ending = [timeline.ending] if timeline.ending is not None else []
        for word, spans in (("suspended", timeline.suspensions), ("held", timeline.holds), ("ending", ending)):
            if spans:
                yield f"{word[: self._label]:<{self._label}} {self._painted(self._spanned(spans))}".rstrip()
        used = {
            interval.state for replica in timeline.replicas for life in replica.lives for interval in life.intervals
        }
        yield from self._legend(state for state in PodState if state in used)

    def _legend(self, states: Iterable[PodState]) -> Iterator[str]:
        """Yield the legend, on as many lines as necessary."""
        line, length = "", 0
        for state in states:
            text = f"{self._paint(getattr(self._frame.signs, state.value), _COLOURS[state])} {state.value}"
            size = len(state.value) + 2
            if not line or length + 2 + size > self._frame.width:
                yield line
                line, length = text, size
            else:
                line, length = f"{line}  {text}", length + 2 + size
        if line:
            yield line

    def _axis(self) -> str:
        """Return the time axis above the bars, with as many times as fit."""
        line = ""
        size = len(_clock(self._start, self._frame, self._end - self._start)) + 2
        for place in range(0, max(self._columns - size + 3, 1), max(size + 4, self._columns // 5)):
            at = self._start + (self._end - self._start) * place / self._columns
            time = _clock(at, self._frame, self._end - self._start)
            if not line.endswith(time):  # a short job has several columns in the same second
                line = f"{line:<{place}}{time}"
        return line[: self._columns]

    def _place(self, moment: datetime | None) -> int:
        at = moment.timestamp() if moment is not None else min(self._frame.now.timestamp(), self._end)
        share = (at - self._start) / (self._end - self._start)
        return min(max(int(share * self._columns), 0), self._columns)

    def _cells_of(self, lives: Iterable[PodHistory]) -> list[_Cell]:
        cells: list[_Cell] = [(" ", "")] * self._columns
        for each in (interval for life in lives for interval in life.intervals):
            first = min(self._place(each.start), self._columns - 1)
            last = max(self._place(each.end), first + 1)  # intervals shorter than a column are drawn too
            sign = getattr(self._frame.signs, each.state.value)
            cells[first:last] = [(sign, _COLOURS[each.state])] * (last - first)
        return cells

    def _spanned(self, spans: Iterable[Span]) -> list[_Cell]:
        cells: list[_Cell] = [(" ", "")] * self._columns
        for span in spans:
            first = min(self._place(span.start), self._columns - 1)
            last = max(self._place(span.end), first + 1)
            cells[first:last] = [(self._frame.signs.span, "blue")] * (last - first)
        return cells

    def _numbered(self, attempts: Sequence[AttemptSpan]) -> list[_Cell]:
        """Return a line of attempts, each numbered at its start if there is room; the last one is always numbered."""
        cells = self._spanned(Span(attempt.start, attempt.end) for attempt in attempts)
        end = self._columns
        for attempt in reversed(attempts):
            number = str(attempt.number)
            first = min(self._place(attempt.start), self._columns - (len(number) if attempt is attempts[-1] else 1))
            if first + len(number) <= end:
                cells[first : first + len(number)] = [(sign, "blue") for sign in number]
                end = first
        return cells

    def _painted(self, cells: list[_Cell]) -> str:
        """Return a bar, with one color sequence per run of the same color."""
        line, run = "", ""
        for column, (sign, colour) in enumerate(cells):
            run += sign
            if column + 1 == len(cells) or cells[column + 1][1] != colour:
                line += self._paint(run, colour) if colour else run
                run = ""
        return line


def _label(replica: ReplicaTimeline) -> str:
    name = replica.name
    return f"{quoted(name.type).lower()}-{name.number}" if name.type else "others"


def _note(replica: ReplicaTimeline) -> str:
    """Return how the last pod ended, and how often the replica was restarted."""
    last = replica.lives[-1]
    how = f"exit {last.exit_code}" if last.exit_code else (last.ending.value if last.ending is not None else "")
    again = replica.restarts
    return ", ".join(each for each in (how, f"{again} restart{'s'[: again - 1]}" if again else "") if each)


def _joined(happenings: Sequence[Happening]) -> list[tuple[Happening, int]]:
    """Merge happenings in a row that differ only in their object; return each with the number of further objects."""
    found: list[tuple[Happening, int]] = []
    for happening in happenings:
        last, more = found[-1] if found else (None, 0)
        if last is not None and _what(last) == _what(happening) and last.about != happening.about:
            found[-1] = last, more + 1
        else:
            found.append((happening, 0))
    return found


def _what(each: Happening) -> tuple[str, str]:
    return each.reason, each.message.replace(each.about, "")


def _happening(
    each: Happening, more: int, frame: Frame, length_s: float, paint: Callable[[str, str], str]
) -> Iterator[str]:
    when = _clock(each.at.timestamp(), frame, length_s)
    often = f" (x{each.times})" if each.times > 1 else ""
    message = " ".join(clean(each.message).split())
    about = f"{quoted(each.about)}{f' and {more} more' if more else ''}"
    text = f"{when}  {about}  {quoted(each.reason)}{often}{': ' if message else ''}{message}"
    first, *rest = wrapped(text, frame.width, 4, indent="    ")
    reason = quoted(each.reason)
    yield first.replace(reason, paint(reason, "red"), 1) if each.is_warning else first
    yield from rest
