"""The current state of a job, updated by three threads with their own connections.

One watches the job, one watches its pods, and one reads the log of the replica that decides the job's outcome. Each keeps only
the newest state and wakes the caller, who displays it when ready: so nothing queues up, however fast pods change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from threading import Event, Lock, Thread
from typing import Any, Final, NamedTuple, Self

from tfjob_operator.api.text import quoted
from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.gathering import Waits, job_from, waits_of
from tfjob_operator.cli.model.snapshot import BACK_OFF
from tfjob_operator.cli.model.words import abridged
from tfjob_operator.cli.printing import control, echo
from tfjob_operator.cli.selection import Choice, ReplicaPod, container_of, pod_lists, pods_path
from tfjob_operator.cli.session import Session
from tfjob_operator.cli.status import ASCII, UNICODE, JobSummary, job_summary_of, render
from tfjob_operator.cli.terminal import Terminal
from tfjob_operator.cli.training import STEP_TIME, LogReader, Progress
from tfjob_operator.cli.watches import Gone, end_of, versions

_LOG_RETRY_S: Final = 1.0
_WAITS_S: Final = 5.0
"""The interval at which it is read why a job waits."""
_STOP_S: Final = 0.2
"""How long to wait for a thread to stop; one that is just connecting may take longer."""
_PRINT_S: Final = 10.0
"""How often steps without a total are printed on separate lines."""
_TAIL: Final = 2000
"""The number of earlier log lines that are read: with Keras, whose bar of an epoch is one line, most trainings completely."""
_DECIDING: Final = ("chief-0", "master-0", "worker-0")
"""The replicas whose logs show the progress of a training; the first existing one is read."""


class LiveState(NamedTuple):
    """The current state.

    `job` is None until the job was read; `gone` is set when it was deleted. `numbers` has the last logged number of each name;
    `waits` has what tells why the job waits. `warning` is shown while the state may be outdated because the API server cannot
    be read.
    """

    job: Mapping[str, Any] | None = None
    gone: Gone | None = None
    replicas: Sequence[ReplicaPod] | None = None
    progress: Progress | None = None
    numbers: Mapping[str, float] = {}
    source: str = ""
    warning: str = ""
    failure: Exception | None = None
    waits: Waits = Waits()


class _StoppedError(Exception):
    """The watch was stopped."""


class LiveJob:
    """A watched job; its `uid` is given if it is known to exist. Use as a context manager, which stops the threads."""

    def __init__(self, session: Session, name: str, clock: Callable[[], float], uid: str | None = None) -> None:
        self._name = name
        self._clock = clock
        self._uid = uid
        self._sessions = [session.another() for _ in range(3)]
        self._lock = Lock()
        self._seen = LiveState()
        self._changed = Event()
        self._has_job = Event()
        self._stopped = Event()
        self._threads: list[Thread] = []
        self._look_again = 0.0

    def __enter__(self) -> Self:
        works = (self._watch_job, self._watch_pods, self._read_logs)
        for work, session in zip(works, self._sessions, strict=True):
            thread = Thread(target=self._run, args=[work, session], daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._has_job.set()
        for session in self._sessions:
            session.abort()
        for thread in self._threads:
            thread.join(_STOP_S)

    def wait(self, timeout_s: float) -> LiveState:
        """Wait for a change, at most `timeout_s`, and return the state. Raises the error that ended the watch."""
        self._changed.wait(timeout_s)
        self._changed.clear()
        with self._lock:
            seen = self._seen
        if seen.failure is not None:
            raise seen.failure
        return seen

    def _update(self, **changes: Any) -> None:
        with self._lock:
            self._seen = self._seen._replace(**changes)
        self._changed.set()

    def _run(self, work: Callable[[], None], session: Session) -> None:
        try:
            work()
        except _StoppedError:
            return
        except Exception as error:  # noqa: BLE001 - the caller raises it
            if not self._stopped.is_set():
                self._update(failure=error)
        finally:
            session.close()

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise _StoppedError

    def _warn(self, warning: str) -> None:
        self._update(warning=warning)

    def _job(self) -> Mapping[str, Any]:
        """Wait until the job has been read, and return it."""
        self._has_job.wait()
        with self._lock:
            job = self._seen.job
        if job is None or self._stopped.is_set():
            raise _StoppedError
        return job

    def _watch_job(self) -> None:
        session = self._sessions[0]
        for job in versions(session, self._name, clock=self._clock, pause=self._pause, warn=self._warn, uid=self._uid):
            if isinstance(job, Gone):
                self._update(gone=job, warning="")
                return
            self._update(job=job, warning="")
            self._has_job.set()
            if end_of(job) is not None:  # it may be deleted before the caller has seen this state
                return

    def _watch_pods(self) -> None:
        for replicas in pod_lists(self._sessions[1], self._job(), Choice(), pause=self._pause, warn=self._warn):
            self._update(replicas=replicas, warning="")

    def _read_logs(self) -> None:
        """Read one log after the other. Without permission to read logs, everything else is still shown."""
        self._job()
        read = ""
        while True:
            self._read_waits()
            with self._lock:
                there = {pod.name: pod for pod in self._seen.replicas or ()}
            replica = next((there[name] for name in _DECIDING if name in there), None)
            if replica is not None and replica.uid != read and replica.phase not in {"", "Pending"}:
                is_last = replica.phase in {"Succeeded", "Failed"}
                try:
                    self._read_log(replica)
                except ApiServerError as error:
                    if error.is_denied:
                        return
                except CliError:
                    # an unreachable node, perhaps temporarily; an unreachable server is reported by the watches
                    is_last = False
                read = replica.uid if is_last else ""
            self._pause(_LOG_RETRY_S)

    def _read_waits(self) -> None:
        """Read why the job waits, every few seconds while it does; no log is read then."""
        with self._lock:
            job, replicas = self._seen.job, self._seen.replicas
        if job is None or replicas is None or self._clock() < self._look_again:
            return
        self._look_again = self._clock() + _WAITS_S
        with suppress(CliError):  # the watches report it
            self._update(waits=waits_of(self._sessions[2], job, [replica.pod for replica in replicas]))

    def _read_log(self, replica: ReplicaPod) -> None:
        session, reader = self._sessions[2], LogReader()
        path = pods_path(session.namespace, f"{replica.pod_name}/log")
        numbers: dict[str, float] = {}
        for part in session.stream(path, container=container_of(replica.pod, None), follow="true", tailLines=_TAIL):
            points = reader.feed(part)
            numbers |= {point.name: point.value for point in points}
            if points or reader.progress is not None:
                self._update(progress=reader.progress, numbers=dict(numbers), source=replica.name)


_BAR: Final = 30
_MIN_BAR: Final = 5
"""The fewest columns for a useful progress bar."""
_MAX_NUMBERS: Final = 3
_TENTHS: Final = 10


def job_summary_from(seen: LiveState, now: datetime) -> JobSummary | None:
    """Return the status of the job, or None until the job and its pods have been read."""
    if seen.job is None or seen.replicas is None:
        return None
    return job_summary_of(job_from(seen.job), seen.job, [replica.pod for replica in seen.replicas], now, *seen.waits)


def progress_line(seen: LiveState, width: int = 0, bar: tuple[str, str] = ("#", ".")) -> str:
    """Return the progress of the training and its last numbers, "" if unknown; with a bar if `width` permits."""
    if seen.progress is None:
        return ""
    at = seen.progress
    of = f" of {at.total}" if at.total is not None else ""
    before = f"{seen.source}: {at.unit} {at.step}{of}"
    named = [(name, value) for name, value in seen.numbers.items() if name != STEP_TIME][:_MAX_NUMBERS]
    after = "".join(f"  {quoted(name)} {value:.4g}" for name, value in named)
    if at.share is None:
        return before + after
    after = f" {at.share:.0%}{after}"
    room = min(width - len(before) - len(after) - 1, _BAR)
    full = round(at.share * room)
    return f"{before} {bar[0] * full}{bar[1] * (room - full)}{after}" if room >= _MIN_BAR else before + after


class Screen:
    """Redraws a job in place. `terminal` is called each time, since its size may change."""

    def __init__(self, terminal: Callable[[], Terminal]) -> None:
        self._terminal = terminal
        self._drawn = 0

    def show(self, seen: LiveState, now: datetime, *, last: bool = False) -> None:
        """Draw the part of the job that fits, or with `last` all of it."""
        summary = job_summary_from(seen, now)
        if summary is None:
            return
        screen = self._terminal()
        lines = render(summary, now, screen.paint, screen.width, UNICODE if screen.unicode else ASCII)
        signs = ("█", "░") if screen.unicode else ("#", ".")
        if progress := progress_line(seen, screen.width - 2, signs):
            lines.insert(lines.index(""), f"  {progress}"[: screen.width])
        if seen.warning:
            lines.insert(lines.index(""), f"  {_one_line(seen.warning)}"[: screen.width])
        room = max(screen.height - 1, 2)
        if len(lines) > room and not last:
            lines = [*lines[: room - 1], f"... {len(lines) - room + 1} more lines"[: screen.width]]
        up = control(f"{self._drawn}F") if self._drawn else ""
        first, *rest = (f"{screen.shown(line)}{control('K')}" for line in lines)
        echo(f"{up}{first}", *rest, control("J"), nl=False)
        self._drawn = len(lines)


class Printer:
    """Prints a line per change, for files and programs."""

    def __init__(self) -> None:
        self._job = ""
        self._reason = ""
        self._replicas: dict[str, str] = {}
        self._tenth = -1
        self._printed: tuple[str, datetime] | None = None
        self._warning = ""

    def show(self, seen: LiveState, now: datetime, *, last: bool = False) -> None:
        """Print what is new; a `last` call ends the output."""
        summary = job_summary_from(seen, now)
        if summary is None:
            return
        for line in (*self._warnings(seen), *self._changes(summary), *self._steps(seen, now, last=last)):
            echo(f"{now.astimezone():%H:%M:%S}  {line}")

    def _warnings(self, seen: LiveState) -> Sequence[str]:
        is_new, self._warning = seen.warning != self._warning, seen.warning
        return [_one_line(seen.warning)] if seen.warning and is_new else []

    def _changes(self, summary: JobSummary) -> Sequence[str]:
        lines = []
        if summary.state != self._job:
            self._job = summary.state
            end = summary.ending
            message = next(
                (condition.message for condition in summary.conditions if condition.type == summary.state), ""
            )
            message = message if end is None else f"ends as {end.type}: {end.message}"
            lines.append(f"{quoted(summary.name)} {quoted(summary.state)}{message and ': '}{_one_line(message)}")
        reason = summary.reason if summary.full_reason.startswith(BACK_OFF) else summary.full_reason
        if reason != self._reason and reason not in {"", summary.state}:
            ready = f"{summary.ready} of {summary.wanted} ready"
            why = f": {_one_line(summary.message)}" if summary.message else ""
            lines.append(f"{quoted(summary.name)} {ready}, {quoted(reason)}{why}")
        self._reason = reason
        now: dict[str, str] = {}
        for each in (replica for kind in summary.types for replica in kind.replicas):
            where = f" on {quoted(each.node)}" if each.node else ""
            code = f", exit {each.exit_code}" if each.exit_code is not None else ""
            again = f", {each.restarts} restart{'s' if each.restarts > 1 else ''}" if each.restarts else ""
            words = f": {_one_line(each.message)}" if each.message else ""
            now[each.replica] = f"{quoted(each.state)}{where}{code}{again}{words}"
        lines += [f"{quoted(name)} {text}" for name, text in now.items() if self._replicas.get(name) != text]
        self._replicas = now
        return lines

    def _steps(self, seen: LiveState, now: datetime, *, last: bool) -> Sequence[str]:
        """Return the progress whenever another tenth is done, or periodically if the total is unknown."""
        share = seen.progress.share if seen.progress is not None else None
        tenth = int(share * _TENTHS) if share is not None else (0 if seen.progress is not None else -1)
        line = progress_line(seen)
        printed, at = self._printed or ("", now)
        is_due = share is None and line != printed and (now - at).total_seconds() >= _PRINT_S
        if tenth == self._tenth and not is_due and not (last and tenth >= 0 and line != printed):
            return ()
        self._tenth, self._printed = tenth, (line, now)
        return [line] if line else []


def _one_line(text: str) -> str:
    return abridged(text, 500)
