"""Follows the logs of several replicas until the job has finished and all logs have ended.

Each log has a thread with its own connection, as does the watch of the job's pods. The threads survive in-place restarts and
lost connections. They put calls into one queue, and only the main thread executes them, so that lines are never mixed and
Ctrl-C takes effect immediately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, Full, Queue
from threading import Condition, Lock, Thread
from typing import Any, Final

from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.logs.follower import LogFollower, LogRequest, LogSet, Wait, run_state_of
from tfjob_operator.cli.logs.lines import LineFormatter, LogLine
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.printing import echo, write
from tfjob_operator.cli.selection import Choice, ReplicaPod, container_of, find, pod_lists, pods_path
from tfjob_operator.cli.session import Session

IDLE_S: Final = 0.5
"""The idle time after which it is checked whether all logs have ended."""
POLL_S: Final = 2.0
"""The interval at which the job is polled while no log is read."""
_CLOSING_S: Final = 1.0
_MAX_QUEUED: Final = 256
"""The most chunks of up to 64 KB that are queued for printing."""


class _FollowStoppedError(Exception):
    """The output was stopped."""


class Following:
    """An execution of `logs -f`. `clock` is a monotonic clock in seconds; `pause` sleeps."""

    def __init__(
        self,
        session: Session,
        job: Mapping[str, Any],
        choice: Choice,
        container: str | None,
        formatter: LineFormatter,
        *,
        most: int,
        clock: Callable[[], float],
        pause: Callable[[float], None],
    ) -> None:
        self._session = session
        self._job = job
        self._choice = choice
        self._container = container
        self._formatter = formatter
        self._most = most
        self._clock = clock
        self._pause = pause
        self._pods, self._lock = session.another(), Lock()
        """Reads single pods for all threads."""
        self._watching = session.another()
        self._stopped = False
        self._queue: Queue[Callable[[], None]] = Queue(_MAX_QUEUED)
        self._changed = Condition()
        """Notified when the state of a log may have changed."""
        self._logs = LogSet(most)
        self._sessions: dict[str, Session] = {}
        """Those of the open logs, by the name of the replica."""
        self._replicas: Sequence[ReplicaPod] = ()
        self._asked_at = 0.0

    def run(self, first: Mapping[str, str | int]) -> None:
        """Follow the logs and print them. `first` are log options for the initial pods. Raises CliError."""
        replicas = find(self._session, self._job, self._choice).replicas
        if len(replicas) > self._most:
            raise CliError(
                f"too many replicas to follow: {len(replicas)}, the maximum is {self._most}: "
                "use --type, --index or --replica, or increase --max-log-requests"
            )
        self._take(replicas, first)
        if not replicas:
            echo(f"{self._job['metadata']['name']}: waiting for pods", err=True)
        Thread(target=self._watch, daemon=True).start()
        try:
            self._print()
        finally:
            self._stopped = True
            self._watching.abort()
            for log in self._logs.open.values():
                self._stop(log)
            self._pods.abort()
            if self._lock.acquire(timeout=_CLOSING_S):
                self._pods.close()
                self._lock.release()

    def _print(self) -> None:
        while True:
            try:
                call = self._queue.get(timeout=IDLE_S)
            except Empty:
                try:
                    if self._is_over():
                        return
                except CliError as error:
                    if error.is_denied:
                        raise  # any other error is temporary: retried
            else:
                call()

    def _put(self, call: Callable[[], None]) -> None:
        """Pass a call to the main thread; wait while the queue, whose size is limited, is full."""
        while not self._stopped:
            with suppress(Full):
                self._queue.put(call, timeout=IDLE_S)
                return

    def _take(self, replicas: Sequence[ReplicaPod], first: Mapping[str, str | int] | None = None) -> None:
        """Start to read the logs of new pods, by default from the beginning; pass newer states to the logs that are read."""
        self._replicas = replicas
        self._formatter.expect(replica.name for replica in replicas)
        containers, states = {}, {}
        for replica in replicas:
            container = containers[replica.name] = container_of(replica.pod, self._container) or ""
            states[replica.name] = replica.uid, run_state_of(replica.pod.get("status") or {}, container)
            if not container:
                self._leave_out(replica, f"container {self._container} not found in pod {replica.pod_name}")
        opened = {log.name: log for log in self._logs.update(states)}
        for replica in replicas:
            if replica.name in opened:
                session = self._sessions[replica.name] = self._session.another()
                options = {"container": containers[replica.name], **(first or {})}
                read = partial(self._read, opened[replica.name], session, replica.pod_name, options)
                Thread(target=read, daemon=True).start()
            elif replica.name not in self._logs.open:
                message = f"{replica.name} is not followed: increase --max-log-requests (now {self._most})"
                self._leave_out(replica, message)
        self._wake()

    def _leave_out(self, replica: ReplicaPod, message: str) -> None:
        if replica.uid not in self._logs.done:
            self._logs.done.add(replica.uid)
            echo(message, err=True)

    def _read(self, log: LogFollower, session: Session, pod: str, options: Mapping[str, str | int]) -> None:
        """Read a log to its end, in a thread. `options` are those of the first request."""
        failure = None
        try:
            with session:
                while (step := log.next()) is not None:
                    self._send(log, [])
                    if isinstance(step, Wait):
                        self._wait(log, step)
                    else:
                        self._stream(log, session, pod, options, step)
        except CliError as error:
            failure = error
        finally:  # in any case: the main thread waits for this
            self._send(log, log.rest())
            self._put(partial(self._end, log, failure))

    def _stream(
        self, log: LogFollower, session: Session, pod: str, options: Mapping[str, str | int], request: LogRequest
    ) -> None:
        """Read one stream. Raises CliError without permission."""
        is_first = not (request.since or request.is_previous)
        query = {"container": options["container"], "timestamps": "true", "sinceTime": request.since}
        query |= options if is_first else {}
        query["previous" if request.is_previous else "follow"] = "true"
        try:
            for part in session.stream(pods_path(session.namespace, f"{pod}/log"), **query):
                if log.is_unverified and self._is_another(pod, log.uid):
                    log.close()
                    return
                self._send(log, log.feed(part))
            self._send(log, log.ended())
        except CliError as error:
            if error.is_denied:
                raise
            log.failed(getattr(error, "code", 0), error.message)

    def _is_another(self, name: str, uid: str) -> bool:
        """Return True if another pod has this name. Raises CliError if the pod cannot be read."""
        with self._lock:
            try:
                pod = self._pods.get(pods_path(self._pods.namespace, name))
            except ApiServerError as error:
                if error.is_not_found or error.is_denied:  # deleted, or the user may list pods but not get one
                    return False
                raise
        return bool(pod["metadata"]["uid"] != uid)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _wait(self, log: LogFollower, wait: Wait) -> None:
        with self._changed:
            self._changed.wait_for(lambda: log.state != wait.seen, wait.limit_s)

    def _send(self, log: LogFollower, lines: list[LogLine]) -> None:
        """Print lines, and the messages of a log."""
        notes, log.notes = log.notes, []
        if lines or notes:
            self._put(partial(self._show, log, lines, notes))

    def _show(self, log: LogFollower, lines: list[LogLine], notes: list[str]) -> None:
        if self._logs.open.get(log.name) is log:
            if lines:
                write(self._formatter.shown(log.name, lines))
            for note in notes:
                echo(f"{log.name}: {note}", err=True)

    def _end(self, log: LogFollower, failure: CliError | None = None) -> None:
        if self._logs.open.get(log.name) is not log:
            return
        if failure is not None:
            raise failure
        self._logs.end(log)
        self._take(self._replicas)

    def _stop(self, log: LogFollower) -> None:
        log.close()
        self._sessions[log.name].abort()
        self._wake()

    def _is_over(self) -> bool:
        """Return True if everything was printed. Called when nothing has arrived for a while."""
        now = self._clock()
        for log in self._logs.stalled(now):
            self._stop(log)
            self._end(log)
        if self._has_log() or now - self._asked_at < POLL_S:
            return False
        self._asked_at = now
        try:
            job = jobs.get(self._session, jobs.full_name(self._job))
        except ApiServerError as error:
            if not error.is_not_found:
                raise
            job = {}
        if not job or job["metadata"]["uid"] != self._job["metadata"]["uid"]:
            echo(f"{jobs.full_name(self._job)} was deleted", err=True)
            return True
        if not facts.conditions_of(job).keys() & {"Succeeded", "Failed"}:
            return False
        self._take(find(self._session, self._job, self._choice).replicas)  # the watch may lag behind
        return not self._has_log() and self._queue.empty()

    def _has_log(self) -> bool:
        return any(log.state.has_log for log in self._logs.open.values())

    def _watch(self) -> None:
        """Send the pods to the main thread, initially and after every change, until stopped."""
        with suppress(_FollowStoppedError), self._watching as session:
            try:
                for replicas in pod_lists(session, self._job, self._choice, pause=self._rest, warn=lambda _: None):
                    if self._stopped:
                        return
                    self._put(partial(self._take, replicas))
            except CliError as error:
                self._put(partial(_raise, error))

    def _rest(self, seconds: float) -> None:
        self._pause(seconds)
        if self._stopped:
            raise _FollowStoppedError


def _raise(error: CliError) -> None:
    raise error
