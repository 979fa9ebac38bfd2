"""Parses training logs: steps, losses and metrics, as points of curves, in bounded memory. Pure.

The formats are those of Keras, of estimators, and of typical hand-written training loops. All repetitions in the patterns are
bounded or cannot overlap, so matching takes linear time. A progress bar overwrites itself with carriage returns or backspaces,
so one visible line is many lines in the log. Each of these log lines is returned as soon as it ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

STEP_TIME: Final = "step_time"
"""The curve of seconds per step, whatever the log calls it."""
EVALUATION: Final = "val_"
"""The prefix of metrics measured on evaluation data, as in Keras."""
STEP: Final = "step"
EPOCH: Final = "epoch"


class Point(NamedTuple):
    """A logged number. `value` may be nan or infinite; `time` is None if the log has no timestamps."""

    step: int
    name: str
    value: float
    time: datetime | None = None


class Progress(NamedTuple):
    """The progress of a training in steps or epochs (`unit`). `total` is None if it is unknown."""

    step: int
    total: int | None
    unit: str = STEP

    @property
    def share(self) -> float | None:
        """The fraction that is done, 0 to 1, None if it is unknown."""
        return min(self.step / self.total, 1.0) if self.total else None


MAX_BYTES: Final = 4096
"""The most bytes of a line that are read; a Keras bar with a dozen metrics has 500. The rest is skipped."""
_OVERWRITES: Final = re.compile(rb"[\r\x08]+")
_ESCAPES: Final = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[ -Z\\\\^-~])")
"""Escape sequences of ECMA-48: CSI, such as colors; OSC, such as titles; and those of one letter."""
_TIMESTAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[-+]\d\d:\d\d))(?: |$)")
"""The timestamp that a kubelet adds to each line with `timestamps=true` (RFC 3339)."""


class Line(NamedTuple):
    """A line without escape sequences, with its timestamp if it has one."""

    text: str
    time: datetime | None = None


class LineReader:
    """Splits bytes into lines; input may be cut anywhere. Never raises, and buffers at most one line."""

    def __init__(self) -> None:
        """Start at the beginning of a line."""
        self._part = bytearray()
        self._time: datetime | None = None
        self._at_start = True

    def feed(self, data: bytes) -> Iterator[Line]:
        """Yield the lines completed by `data`. The rest is buffered."""
        first, *others = data.split(b"\n")
        yield from self._overwritten(first)
        for each in others:
            yield from self._ended()
            self._time, self._at_start = None, True
            yield from self._overwritten(each)

    def close(self) -> Iterator[Line]:
        """Yield the last, incomplete line."""
        yield from self._ended()

    def _overwritten(self, data: bytes) -> Iterator[Line]:
        first, *others = _OVERWRITES.split(data)
        self._keep(first)
        for each in others:
            yield from self._ended()
            self._keep(each)

    def _keep(self, data: bytes) -> None:
        self._part += data[: MAX_BYTES - len(self._part)]

    def _ended(self) -> Iterator[Line]:
        """Yield the completed line unless it is empty."""
        text = _ESCAPES.sub("", self._part.decode(errors="replace"))
        self._part.clear()
        if self._at_start and text:
            self._at_start = False
            match = _TIMESTAMP.match(text)
            if match is not None:
                self._time = _time(match[1])
                text = text[match.end() :]
        if text and not text.isspace():
            yield Line(text, self._time)


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None  # February 30


_INT: Final = r"\d{1,15}(?!\d|\.\d)"
_NUMBER: Final = (
    r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,3})?|\.\d{1,30}(?:[eE][-+]?\d{1,3})?|nan|inf)(?![\w.]*\w)"
)
_NAME: Final = r"[A-Za-z_][\w./-]{0,60}"

CANDIDATE: Final = re.compile(r"step|loss|epoch|iter|images/sec|\d/(?:\d|Unknown)", re.IGNORECASE)
"""Matches every line that any of the patterns below matches, so that most lines of most logs are skipped quickly."""

KERAS_EPOCH: Final = re.compile(rf"\s{{0,4}}Epoch ({_INT})/({_INT})\s{{0,8}}$")
"""keras: printed by Model.fit before each epoch."""
KERAS_BAR: Final = re.compile(
    rf"\s{{0,15}}({_INT})/({_INT}|Unknown)(?= \[[=>.]| [━╸╺]|\s{{1,8}}(?:- )?\d{{1,9}}[smu]{{1,2}}\b)"
)
"""keras: utils/generic_utils.py and, in Keras 3, utils/progbar.py: `120/938 [==>...] - ETA: 3s - loss: 0.41`,
`938/938 ━━━━ 3s 4ms/step - loss: 0.41`, `120/Unknown - 3s 20ms/step`, and with verbose=2 `938/938 - 3s - loss: 0.41`."""
KERAS_END: Final = re.compile(r" - \d{1,9}s - ")
"""The start of a line of Keras in TensorFlow 1 with verbose=2: ` - 3s - loss: 0.41 - acc: 0.9`."""
KERAS_PAIR: Final = re.compile(rf" - ({_NAME}): ({_NUMBER})(?= - |\s{{0,8}}$)")
KERAS_STEP_TIME: Final = re.compile(r" (\d{1,9})(us|ms|s)/(?:step|sample)\b")
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}

ESTIMATOR_RATE: Final = re.compile(rf"\bglobal_step/sec: ({_NUMBER})")
"""tensorflow: StepCounterHook of basic_session_run_hooks.py."""
ESTIMATOR_EVALUATION: Final = re.compile(rf"\bSaving dict for global step ({_INT}): ")
"""tensorflow: _write_dict_to_summary of estimator.py."""
ESTIMATOR_LAST: Final = re.compile(rf"\bLoss for final step: ({_NUMBER})")

BENCHMARK: Final = re.compile(
    rf"\s{{0,8}}({_INT})\s{{1,8}}images/sec: ({_NUMBER})"
    rf"(?: \+/- [\d.]{{1,20}})?(?: \(jitter = [\d.]{{1,20}}\))?\s{{1,8}}({_NUMBER})"
)
"""tf_cnn_benchmarks: step, images per second, total loss."""
TQDM: Final = re.compile(rf"\d{{1,3}}%\|[^|]{{0,400}}\| ({_INT})/({_INT}) \[")
AT_STEP: Final = re.compile(rf"(?<![\w./-])({_NAME}(?: {_NAME}){{0,2}}) at step ({_INT}): ({_NUMBER})")
"""tensorflow: mnist_with_summaries.py: `Accuracy at step 10: 0.7103`."""
COUNT: Final = re.compile(
    rf"(?<![A-Za-z])(global[_ ]step|step|iter(?:ation)?|epoch)[ \t]{{0,4}}[:=#(\[]?[ \t]{{0,4}}"
    rf"({_INT})(?:[ \t]?(?:/|of)[ \t]?({_INT}))?",
    re.IGNORECASE,
)
"""Common formats of progress: `step 20`, `Step 100/1000`, `epoch [3/10]`, `global_step=5`."""
PAIR: Final = re.compile(rf"(?<![\w./-])({_NAME})[ \t]{{0,4}}[:=][ \t]{{0,4}}({_NUMBER})(%)?")
WORDS: Final = re.compile(
    rf"(?<![\w./-])([\w./-]{{0,40}}(?:loss|accuracy|acc|auc|perplexity|error))[ \t]{{1,4}}({_NUMBER})(%)?",
    re.IGNORECASE,
)
"""Without a separator between name and number only unambiguous metric names match: `step 20 loss 0.3`."""
_COUNTS: Final = {"step", "global_step", "iter", "iteration", "epoch", "epochs", "batch", "steps", "eta"}


class Counts(NamedTuple):
    """The step and the epoch in a line, each with its total; None if missing."""

    step: int | None = None
    steps: int | None = None
    epoch: int | None = None
    epochs: int | None = None


def counts_of(text: str) -> Counts:
    """Return the first step and epoch in a line. Iterations count as steps. A global step wins over a local one."""
    found: dict[str, tuple[int, int | None]] = {}
    for match in COUNT.finditer(text):
        kind = match[1].lower().replace("_", " ")
        kind = "step" if kind.startswith("iter") else kind
        found.setdefault(kind, (int(match[2]), int(match[3]) if match[3] else None))
    step, steps = found.get("global step") or found.get("step") or (None, None)
    epoch, epochs = found.get("epoch") or (None, None)
    return Counts(step, steps, epoch, epochs)


def pairs_of(text: str) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a line by name, each name once; percentages become fractions."""
    seen: set[str] = set()
    for pattern in (PAIR, WORDS):
        for name, number, percent in pattern.findall(text):
            key = name.lower().rstrip(".")
            if key not in seen and key not in _COUNTS:
                seen.add(key)
                yield name, float(number) / (100 if percent else 1)


def keras_pairs_of(text: str) -> Iterator[tuple[str, float]]:
    """Yield the metrics after a Keras bar."""
    for name, number in KERAS_PAIR.findall(text):
        yield name, float(number)


def step_time_of(text: str) -> float | None:
    """Return the seconds per step of a Keras bar, None if it has none."""
    match = KERAS_STEP_TIME.search(text)
    return int(match[1]) * _SECONDS[match[2]] if match is not None else None


class LogReader:
    """Converts a log, which arrives in pieces of any size, to data points; buffers a line and a few numbers.

    `progress` is the latest progress, or None.
    """

    def __init__(self) -> None:
        """Start at the beginning of a log, or of any of its lines."""
        self.progress: Progress | None = None
        self._lines = LineReader()
        self._step = 0
        self._rate: float | None = None
        self._keras = _Keras()

    def feed(self, data: bytes) -> list[Point]:
        """Return the points of the lines completed by `data`."""
        return self._points(self._lines.feed(data))

    def close(self) -> list[Point]:
        """Return the points of the last, incomplete line."""
        return self._points(self._lines.close())

    def _points(self, lines: Iterable[Line]) -> list[Point]:
        return [
            Point(step, name, value, line.time)
            for line in lines
            if CANDIDATE.search(line.text)
            for step, name, value in self._numbers(line.text)
        ]

    def _numbers(self, text: str) -> Iterator[tuple[int, str, float]]:
        """Yield the numbers of a line in the first format that matches."""
        match = KERAS_EPOCH.match(text)
        if match is not None:
            self._keras.begin(int(match[1]), int(match[2]))
            if self._keras.steps is None:
                self.progress = Progress(int(match[1]) - 1, int(match[2]), EPOCH)
            return
        bar = KERAS_BAR.match(text)
        if bar is not None:
            yield from self._bar(bar, text)
        elif self._keras.epoch is not None and KERAS_END.match(text):
            self._step, self.progress = self._keras.epoch, Progress(self._keras.epoch, self._keras.epochs, EPOCH)
            yield from ((self._step, *pair) for pair in keras_pairs_of(text))
        else:
            yield from self._other(text)

    def _bar(self, bar: re.Match[str], text: str) -> Iterator[tuple[int, str, float]]:
        """Yield the numbers of a Keras bar.

        A bar is an evaluation if it follows a complete epoch and no new epoch line was printed.
        """
        count, total = int(bar[1]), int(bar[2]) if bar[2].isdigit() else None
        if self._keras.is_evaluation(count, total):
            if count == total:
                yield from ((self._step, EVALUATION + name, value) for name, value in keras_pairs_of(text))
            return
        self._step, self.progress = self._keras.advance(count, total)
        yield from ((self._step, *pair) for pair in keras_pairs_of(text))
        took = step_time_of(text)
        if took is not None:
            yield self._step, STEP_TIME, took

    def _other(self, text: str) -> Iterator[tuple[int, str, float]]:
        """Yield the numbers in a log line printed by an estimator, a benchmark, or a hand-written training loop."""
        if (rate := ESTIMATOR_RATE.search(text)) is not None:
            self._rate = float(rate[1])  # the next line has its step
        elif (evaluated := ESTIMATOR_EVALUATION.search(text)) is not None:
            step = int(evaluated[1])
            seen = pairs_of(text[evaluated.end() :])
            yield from ((step, EVALUATION + name, value) for name, value in seen)
        elif (last := ESTIMATOR_LAST.search(text)) is not None:
            yield self._step, "loss", float(last[1])
        elif (measured := BENCHMARK.match(text)) is not None:
            self._at(int(measured[1]), None)
            yield self._step, "images/sec", float(measured[2])
            yield self._step, "loss", float(measured[3])
        elif (bar := TQDM.search(text)) is not None:
            self._at(int(bar[1]), int(bar[2]))
            yield from ((self._step, *pair) for pair in pairs_of(text[bar.end() :]))
        elif (at := AT_STEP.search(text)) is not None:
            self._at(int(at[2]), None)
            yield self._step, at[1], float(at[3])
        else:
            yield from self._counted(text)

    def _counted(self, text: str) -> Iterator[tuple[int, str, float]]:
        """Yield the numbers of a line with a step or epoch."""
        counts = counts_of(text)
        pairs = list(pairs_of(text))
        if counts.step is not None:
            step, total = counts.step, counts.steps
            if counts.epoch and counts.steps:
                step += (counts.epoch - 1) * counts.steps
                total = counts.epochs * counts.steps if counts.epochs else None
            self._at(step, total)
        elif counts.epoch is not None and self._keras.epoch is None and (pairs or counts.epochs):
            if self.progress is not None and self.progress.unit != EPOCH:
                return  # a log that also counts steps
            self._step, self.progress = counts.epoch, Progress(counts.epoch, counts.epochs, EPOCH)
        else:
            return
        yield from ((self._step, *pair) for pair in pairs)
        if self._rate:
            yield self._step, STEP_TIME, 1 / self._rate
        self._rate = None

    def _at(self, step: int, total: int | None) -> None:
        """Record the step. If the line has no total, the last known total is kept."""
        if total is None and self.progress is not None and self.progress.unit != EPOCH:
            known = self.progress.total
            total = known if known is not None and step <= known else None
        self._step, self.progress = step, Progress(step, total)


class _Keras:
    """The progress of a Keras training, with the steps of each epoch counted from 1. None means not printed yet."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.epochs: int | None = None
        self.steps: int | None = None
        self._before = 0
        self._last: tuple[int, int | None] = (0, None)
        self._evaluates = False

    def begin(self, epoch: int, epochs: int) -> None:
        """Start an epoch. Epoch 1 resets the step count, also if the process was restarted."""
        self._before = 0 if epoch == 1 else self._before + self._last[0]
        self.epoch, self.epochs = epoch, epochs
        self._last, self._evaluates = (0, None), False

    def is_evaluation(self, count: int, total: int | None) -> bool:
        """Return True if a bar belongs to no epoch: the previous epoch is complete, and no new one was printed."""
        before, whole = self._last
        if self.epoch is not None and before == whole and (count, total) != self._last:
            self._evaluates = True
        return self._evaluates

    def advance(self, count: int, total: int | None) -> tuple[int, Progress]:
        """Return the step of a bar, counted over all epochs, and the progress."""
        self._last = (count, total)
        self.steps = total or self.steps
        if self.epoch is None:
            return count, Progress(count, total)
        step = (self.epoch - 1) * total + count if total else self._before + count
        whole = self.epochs * self.steps if self.epochs and self.steps else None
        return step, Progress(step, whole)


MAX_POINTS: Final = 1000
"""The most points of a curve: screens do not have more columns. They take 100 KB of memory."""
MAX_NAMES: Final = 40
"""The most curves of a log; others are omitted."""


class Curves:
    """The points of a log by name, in the order of their steps.

    A training that resumes from a checkpoint repeats steps: a new point removes all old points at its step or later. A curve
    with too many points keeps every second one, then every fourth, and so on, and always the last.
    """

    def __init__(self, most_points: int = MAX_POINTS, most_names: int = MAX_NAMES) -> None:
        """Limit the points of a curve (to 2 at least), and the number of curves."""
        self._most_points = max(most_points, 2)
        self._most_names = most_names
        self._curves: dict[str, _Curve] = {}

    def add(self, points: Iterable[Point]) -> None:
        """Add points in the order in which they were read."""
        for point in points:
            curve = self._curves.get(point.name)
            if curve is None:
                if len(self._curves) >= self._most_names:
                    continue
                curve = self._curves[point.name] = _Curve(self._most_points)
            curve.add(point)

    @property
    def by_name(self) -> Mapping[str, Sequence[Point]]:
        """The curves, in the order of their first points."""
        return {name: curve.points() for name, curve in self._curves.items()}


class _Curve:
    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[Point] = []
        self._every = 1
        self._count = 0
        self._last: Point | None = None

    def add(self, point: Point) -> None:
        while self._kept and self._kept[-1].step >= point.step:
            self._kept.pop()
            self._count = len(self._kept) * self._every
        self._last = point
        if self._count % self._every == 0:
            self._kept.append(point)
        self._count += 1
        if len(self._kept) >= self._most:
            del self._kept[1::2]
            self._every *= 2

    def points(self) -> list[Point]:
        last = self._last
        return self._kept if last is None or self._kept[-1] is last else [*self._kept, last]
