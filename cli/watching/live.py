"""What is known of a job now, kept up to date by three threads, each with a connection of its own.

One watches the job, one its pods, one reads the log of the replica that decides about it. Each keeps only the newest state,
and wakes the caller, who shows it when ready: so nothing piles up, however fast pods change.
"""

from __future__ import annotations

from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from tfjob_operator.cli.errors import ApiError, CliError
from tfjob_operator.cli.pod_lists import pod_lists
from tfjob_operator.cli.replicas import Choice, container_of, pods_path
from tfjob_operator.cli.training.log import LogReader
from tfjob_operator.cli.versions import versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfjob_operator.cli.replicas import Replica
    from tfjob_operator.cli.session import Session
    from tfjob_operator.cli.training.values import Progress

_LOG_RETRY_S: Final = 1.0
_LEAVE_S: Final = 0.2
"""How long a thread that was stopped is waited for: one that is just connecting may take longer."""
_TAIL: Final = 2000
"""How many earlier lines of the log are read: with Keras, whose bar of an epoch is one line, all of most trainings."""
_DECIDING: Final = ("chief-0", "master-0", "worker-0")
"""The replicas whose log tells how far a training is; the first one that exists is read."""


class Seen(NamedTuple):
    """What is known. `job` is None before it was read, and again when it `is_gone`; `numbers` are the last by name."""

    job: Mapping[str, Any] | None = None
    is_gone: bool = False
    replicas: Sequence[Replica] | None = None
    progress: Progress | None = None
    numbers: Mapping[str, float] = {}
    source: str = ""
    failure: CliError | None = None


class _StoppedError(Exception):
    """The watching was stopped."""


class Live:
    """A job that is watched. Used as a context: its threads end with it."""

    def __init__(self, session: Session, name: str, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._sessions = [session.another() for _ in range(3)]
        self._lock = Lock()
        self._seen = Seen()
        self._changed = Event()
        self._has_job = Event()
        self._stopped = Event()
        self._threads: list[Thread] = []

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
            thread.join(_LEAVE_S)

    def wait(self, timeout_s: float) -> Seen:
        """Wait for a change, at most `timeout_s`, and return what is known. Raises the CliError that has ended the watching."""
        self._changed.wait(timeout_s)
        self._changed.clear()
        with self._lock:
            seen = self._seen
        if seen.failure is not None:
            raise seen.failure
        return seen

    def _tell(self, **changes: Any) -> None:
        with self._lock:
            self._seen = self._seen._replace(**changes)
        self._changed.set()

    def _run(self, work: Callable[[], None], session: Session) -> None:
        try:
            work()
        except _StoppedError:
            return
        except CliError as error:
            if not self._stopped.is_set():
                self._tell(failure=error)
        finally:
            session.close()

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise _StoppedError

    def _job(self) -> Mapping[str, Any]:
        """Wait until the job was read, and return it."""
        self._has_job.wait()
        with self._lock:
            job = self._seen.job
        if job is None or self._stopped.is_set():
            raise _StoppedError
        return job

    def _watch_job(self) -> None:
        for job in versions(self._sessions[0], self._name, clock=self._clock, pause=self._pause):
            self._tell(job=job, is_gone=job is None)
            if job is None:
                return
            self._has_job.set()

    def _watch_pods(self) -> None:
        for replicas in pod_lists(self._sessions[1], self._job(), Choice(), pause=self._pause):
            self._tell(replicas=replicas)

    def _read_logs(self) -> None:
        """Read one log after the other. Without the right to read logs, everything else is still shown."""
        self._job()
        read = ""
        while True:
            with self._lock:
                there = {each.name: each for each in self._seen.replicas or ()}
            replica = next((there[name] for name in _DECIDING if name in there), None)
            if replica is not None and replica.uid != read and replica.phase not in {"", "Pending"}:
                is_last = replica.phase in {"Succeeded", "Failed"}
                try:
                    self._read_log(replica)
                except ApiError as error:
                    if error.is_denied:
                        return
                except CliError:
                    is_last = False  # a node that is away, perhaps for a moment: the watches tell if it is the server
                read = replica.uid if is_last else ""
            self._pause(_LOG_RETRY_S)

    def _read_log(self, replica: Replica) -> None:
        session, reader = self._sessions[2], LogReader()
        path = pods_path(session.namespace, f"{replica.pod_name}/log")
        numbers: dict[str, float] = {}
        for part in session.stream(path, container=container_of(replica.pod, None), follow="true", tailLines=_TAIL):
            points = reader.feed(part)
            numbers |= {point.name: point.value for point in points}
            if points or reader.progress is not None:
                self._tell(progress=reader.progress, numbers=dict(numbers), source=replica.name)
