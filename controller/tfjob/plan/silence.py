"""The last line of a log, and for how long it has surely been the last. Pure.

A silence lasts from the end of a read that returned a line to the start of a later read that returned the same one, in our
monotonic time. The timestamp in the log is by the clock of the node: it only distinguishes equal lines. Time before and after a
failed read does not count, nor does time in which a replica does not run. So whatever delays reads delays the detection, and
never makes it wrong. A restarted operator observes again from the start; the condition Stalled stays until a new line shows
that it no longer applies.

Kubelets rotate a log of 10 MiB, and then return nothing until the next line. That counts as a new line once: without it, a
program that has just written so much would seem to be silent, and with it at every read, one that hangs would not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tfjob_operator.api.text import clean, one_line
from tfjob_operator.api.v1.constants import FailureReason
from tfjob_operator.controller.jobs.children import ReplicaKey

MAX_LINE: Final = 200
"""The most bytes of a log line in a status: whoever may read jobs can read it."""
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\S+ ?")


class LogTarget(NamedTuple):
    """A run of a training container: name and UID of its pod, and how often the kubelet has restarted it."""

    pod: str
    uid: str
    restarts: int


class LogWatch(NamedTuple):
    """The logs to read for a job. They are not read while the job `is_paused`, since not all of its replicas run."""

    targets: tuple[LogTarget, ...]
    deadline_s: int
    is_paused: bool


class Silence(NamedTuple):
    """For how many seconds the last line of a log surely has been the last one.

    `changed`: this process has seen it replace another one. `line` is the quoted line, "" if it is empty or must not be quoted.
    """

    lasted_s: float
    changed: bool = False
    line: str = ""


class Logs(NamedTuple):
    """What is known about the logs of a job; `failure` is the reason if the permission to read them is missing."""

    silences: Mapping[LogTarget, Silence]
    failure: str = ""


NO_LOGS: Final = Logs({})


@dataclass(slots=True)
class LastLine:
    """The last line of the log of one run of a container, and for how long it has been the last. All times are monotonic.

    `changed` is true from the start if this run replaces another one of the same replica.
    """

    changed: bool = False
    _mark: int | None = None
    _line: str = ""
    _since_s: float = 0.0
    _until_s: float = 0.0
    _stopped: bool = False

    def read(self, answer: bytes, started_s: float, ended_s: float, *, quotes: bool = True) -> None:
        """Take the answer of a successful read: the last line with its timestamp, or nothing, perhaps after a rotation."""
        mark = hash(answer)
        if mark != self._mark:
            self.changed = self.changed or self._mark is not None
            self._mark, self._line = mark, quoted_line(answer) if quotes else ""
            self._since_s = self._until_s = ended_s
        elif self._stopped:
            self._since_s += ended_s - self._until_s
            self._until_s = ended_s
        else:
            self._until_s = started_s
        self._stopped = False

    def stop(self) -> None:
        """Stop the clock until the next successful read: a read failed, or not all replicas run."""
        self._stopped = True

    @property
    def silence(self) -> Silence | None:
        """What is known; None before the first successful read."""
        return None if self._mark is None else Silence(self._until_s - self._since_s, self.changed, self._line)


def quoted_line(answer: bytes) -> str:
    """Return a log line without its timestamp in at most `MAX_LINE` bytes, control characters escaped."""
    text = answer.decode(errors="replace").rstrip("\r\n")
    return clean(one_line(_STAMP.sub("", text, count=1)), MAX_LINE)


def is_stalled(watch: LogWatch, logs: Logs) -> bool:
    """Return True if all observed replicas have been silent for as long as the job allows."""
    silences = [logs.silences.get(target) for target in watch.targets]
    is_silent = all(silence is not None and silence.lasted_s >= watch.deadline_s for silence in silences)
    return bool(silences) and is_silent and not watch.is_paused


def has_progressed(watch: LogWatch, logs: Logs) -> bool:
    """Return True if this process has seen a new line, and less time has passed since than the job allows."""
    silences = (logs.silences.get(target) for target in watch.targets)
    return any(silence is not None and silence.changed and silence.lasted_s < watch.deadline_s for silence in silences)


class Stall(NamedTuple):
    """A stalled job: its deciding replica, what was observed, and the failure reason that rules name."""

    key: ReplicaKey
    cause: str
    reason: FailureReason = FailureReason.PROGRESS_DEADLINE_EXCEEDED
