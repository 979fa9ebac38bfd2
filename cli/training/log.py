"""Reads the log of a training as it comes: points of its curves, and how far it is. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.cli.training import readings as r
from tfjob_operator.cli.training.lines import Line, LineReader
from tfjob_operator.cli.training.values import EPOCH, EVALUATION, STEP_TIME, Point, Progress

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator


class LogReader:
    """Makes points of a log, whose bytes may be cut anywhere. It keeps one line and a few numbers, and raises for no input.

    `progress` is how far the training is, by the last line that says so; None before there is one.
    """

    def __init__(self) -> None:
        """Begin at the start of a log, or at the start of any of its lines."""
        self.progress: Progress | None = None
        self._lines = LineReader()
        self._step = 0
        self._rate: float | None = None
        self._keras = _Keras()

    def feed(self, data: bytes) -> list[Point]:
        """Return the points of the lines that end in `data`."""
        return self._points(self._lines.feed(data))

    def close(self) -> list[Point]:
        """Return the points of a last line without an end."""
        return self._points(self._lines.close())

    def _points(self, lines: Iterable[Line]) -> list[Point]:
        return [
            Point(step, name, value, line.time)
            for line in lines
            if r.MAY_TELL.search(line.text)
            for step, name, value in self._told(line.text)
        ]

    def _told(self, text: str) -> Iterator[tuple[int, str, float]]:
        """Yield the numbers of a line, read in the first format that matches."""
        found = r.KERAS_EPOCH.match(text)
        if found is not None:
            self._keras.begin(int(found[1]), int(found[2]))
            if self._keras.steps is None:
                self.progress = Progress(int(found[1]) - 1, int(found[2]), EPOCH)
            return
        bar = r.KERAS_BAR.match(text)
        if bar is not None:
            yield from self._bar(bar, text)
        elif self._keras.epoch is not None and r.KERAS_END.match(text):
            self._step, self.progress = self._keras.epoch, Progress(self._keras.epoch, self._keras.epochs, EPOCH)
            yield from ((self._step, *each) for each in r.keras_pairs_of(text))
        else:
            yield from self._other(text)

    def _bar(self, bar: re.Match[str], text: str) -> Iterator[tuple[int, str, float]]:
        """Yield the numbers of a Keras bar. One after a complete epoch, with no new one announced, is an evaluation."""
        count, total = int(bar[1]), int(bar[2]) if bar[2].isdigit() else None
        if self._keras.is_evaluation(count, total):
            if count == total:
                yield from ((self._step, EVALUATION + name, value) for name, value in r.keras_pairs_of(text))
            return
        self._step, self.progress = self._keras.advance(count, total)
        yield from ((self._step, *each) for each in r.keras_pairs_of(text))
        took = r.step_time_of(text)
        if took is not None:
            yield self._step, STEP_TIME, took

    def _other(self, text: str) -> Iterator[tuple[int, str, float]]:
        """Yield the numbers of a line of an estimator, a benchmark, or a hand-written training loop."""
        if (rate := r.ESTIMATOR_RATE.search(text)) is not None:
            self._rate = float(rate[1])  # the step that it is about follows in the next line
        elif (evaluated := r.ESTIMATOR_EVALUATION.search(text)) is not None:
            step = int(evaluated[1])
            told = r.pairs_of(text[evaluated.end() :])
            yield from ((step, EVALUATION + name, value) for name, value in told)
        elif (last := r.ESTIMATOR_LAST.search(text)) is not None:
            yield self._step, "loss", float(last[1])
        elif (measured := r.BENCHMARK.match(text)) is not None:
            self._at(int(measured[1]), None)
            yield self._step, "images/sec", float(measured[2])
            yield self._step, "loss", float(measured[3])
        elif (bar := r.TQDM.search(text)) is not None:
            self._at(int(bar[1]), int(bar[2]))
            yield from ((self._step, *each) for each in r.pairs_of(text[bar.end() :]))
        elif (at := r.AT_STEP.search(text)) is not None:
            self._at(int(at[2]), None)
            yield self._step, at[1], float(at[3])
        else:
            yield from self._counted(text)

    def _counted(self, text: str) -> Iterator[tuple[int, str, float]]:
        """Yield the numbers of a line that says where the training stands."""
        counts = r.counts_of(text)
        pairs = list(r.pairs_of(text))
        if counts.step is not None:
            step, total = counts.step, counts.steps
            if counts.epoch and counts.steps:
                step += (counts.epoch - 1) * counts.steps
                total = counts.epochs * counts.steps if counts.epochs else None
            self._at(step, total)
        elif counts.epoch is not None and self._keras.epoch is None and (pairs or counts.epochs):
            if self.progress is not None and self.progress.unit != EPOCH:
                return  # a log that counts steps as well
            self._step, self.progress = counts.epoch, Progress(counts.epoch, counts.epochs, EPOCH)
        else:
            return
        yield from ((self._step, *each) for each in pairs)
        if self._rate:
            yield self._step, STEP_TIME, 1 / self._rate
        self._rate = None

    def _at(self, step: int, total: int | None) -> None:
        """Note the step. A line without a total keeps the last one that is known."""
        if total is None and self.progress is not None and self.progress.unit != EPOCH:
            known = self.progress.total
            total = known if known is not None and step <= known else None
        self._step, self.progress = step, Progress(step, total)


class _Keras:
    """Where a training of Keras stands, which counts the steps of each epoch from 1.

    `epoch` and `epochs` are None before the first was announced, `steps` (of one epoch) before it is known.
    """

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.epochs: int | None = None
        self.steps: int | None = None
        self._before = 0
        self._last: tuple[int, int | None] = (0, None)
        self._evaluates = False

    def begin(self, epoch: int, epochs: int) -> None:
        """Note that an epoch begins. The first one begins the count anew, also in a process that was started again."""
        self._before = 0 if epoch == 1 else self._before + self._last[0]
        self.epoch, self.epochs = epoch, epochs
        self._last, self._evaluates = (0, None), False

    def is_evaluation(self, count: int, total: int | None) -> bool:
        """Whether a bar belongs to no epoch: the epoch before it is complete, and no other one was announced."""
        before, whole = self._last
        if self.epoch is not None and before == whole and (count, total) != self._last:
            self._evaluates = True
        return self._evaluates

    def advance(self, count: int, total: int | None) -> tuple[int, Progress]:
        """Return the step of a bar, counted over all epochs, and how far that is."""
        self._last = (count, total)
        self.steps = total or self.steps
        if self.epoch is None:
            return count, Progress(count, total)
        step = (self.epoch - 1) * total + count if total else self._before + count
        whole = self.epochs * self.steps if self.epochs and self.steps else None
        return step, Progress(step, whole)
