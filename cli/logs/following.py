"""Follows the logs of several replicas until the job has finished and all logs have ended.

Each log has a thread with its own connection, as does the watch of the job's pods. The threads survive in-place restarts and
lost connections. They put their results into one queue, and only the main thread prints, so that lines are never mixed and
Ctrl-C takes effect immediately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Condition, Lock, Thread
from typing import Any, Final, NamedTuple

from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.logs.lines import LineFormatter, LogLine, Position, Splitter
from tfjob_operator.cli.printing import echo, write
from tfjob_operator.cli.replicas import Choice, ReplicaPod, container_of, find, pod_lists, pods_path
from tfjob_operator.cli.session import Session
from tfjob_operator.cli.watches import FIRST_RETRY_DELAY_S, MAX_RETRY_DELAY_S

NOT_STARTED: Final = -1


class RunState(NamedTuple):
    """The state of a container. `run` counts its starts from 0, and is `NOT_STARTED` before the first.

    `over`: this run has ended; `pod_over`: there will be no further run; `gone`: the pod no longer exists. `why` is
    what the container waits for, or how its last run ended.
    """

    run: int
    over: bool = False
    pod_over: bool = False
    gone: bool = False
    why: str = ""


def run_state_of(pod: Mapping[str, Any], container: str) -> RunState:
    """Return the state of a container."""
    status = pod.get("status") or {}
    pod_over = status.get("phase") in {"Succeeded", "Failed"}
    every = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    container_status: Mapping[str, Any] = next((each for each in every if each.get("name") == container), {})
    state, last = container_status.get("state") or {}, container_status.get("lastState") or {}
    ended = state.get("terminated") or last.get("terminated")
    waiting = (state.get("waiting") or {}).get("reason")
    if "running" not in state and not ended:
        why = waiting or status.get("reason") or _unscheduled(status) or status.get("phase") or "Pending"
        return RunState(NOT_STARTED, pod_over=pod_over, why=str(why))
    why = _exit(ended) if ended else ""
    return RunState(int(container_status.get("restartCount") or 0), "running" not in state, pod_over, why=why)


def _unscheduled(status: Mapping[str, Any]) -> str:
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("reason", ""))
    return ""


def _exit(ended: Mapping[str, Any]) -> str:
    reason = ended.get("reason")
    return f"exit code {ended.get('exitCode', '?')}{f', {reason}' if reason else ''}"


RETRY_S: Final = 1.0
"""The delay after which an ended stream is requested again although no restart of its container was observed: the kubelet
itself may have restarted."""
_CLOSING_S: Final = 1.0
_NO_LOG: Final = 400


class Lines(NamedTuple):
    """Lines of one log that arrived together."""

    tail: Tail
    lines: list[LogLine]


class Note(NamedTuple):
    """A message about a replica that is not part of its log."""

    tail: Tail
    text: str


class LogEnd(NamedTuple):
    """The end of a log, with an error if there is no permission to read it."""

    tail: Tail
    error: CliError | None = None


Message = Lines | Note | LogEnd


class _PodDeletedError(Exception):
    """The pod was deleted, or another one has its name."""


class PodReader:
    """Reads pods for several threads, over one connection."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = Lock()

    def close(self) -> None:
        """Stop reading; a request in flight is aborted."""
        self._session.abort()
        if self._lock.acquire(timeout=_CLOSING_S):
            try:
                self._session.close()
            finally:
                self._lock.release()

    def is_another(self, name: str, uid: str) -> bool:
        """Return True if another pod has this name. Raises CliError if the pod cannot be read."""
        with self._lock:
            try:
                pod = self._session.get(pods_path(self._session.namespace, name))
            except ApiServerError as error:
                if error.is_not_found or error.is_denied:  # deleted, or the user may list pods but not get one
                    return False
                raise
        return bool(pod["metadata"]["uid"] != uid)


class Tail:
    """A container of a pod. `first` are the options of the first request, such as tailLines; `put` receives the results."""

    def __init__(
        self,
        session: Session,
        pod_reader: PodReader,
        replica: ReplicaPod,
        container: str,
        *,
        first: Mapping[str, str | int],
        put: Callable[[Message], None],
    ) -> None:
        self.replica = replica
        self._session = session
        self._pod_reader = pod_reader
        self._container = container
        self._first = first
        self._put = put
        self._changed = Condition()
        self._standing = run_state_of(replica.pod, container)
        self._position = Position()
        self._stopped = False
        self._held: LogLine | None = None
        """The last line of a stream that ended within it: usually it is sent again completely."""

    def start(self) -> None:
        """Start reading."""
        Thread(target=self._run, daemon=True).start()

    @property
    def has_started(self) -> bool:
        """True if there is a log."""
        return self._standing.run != NOT_STARTED

    @property
    def is_gone(self) -> bool:
        """True if the pod no longer exists."""
        return self._standing.gone

    def update(self, pod: Mapping[str, Any]) -> None:
        """Process a newer version of the pod."""
        self._stand(run_state_of(pod, self._container))

    def gone(self) -> None:
        """Note that the pod was deleted: the rest of its stream is still read."""
        self._stand(self._standing._replace(gone=True))

    def _stand(self, standing: RunState) -> None:
        with self._changed:
            self._standing = standing
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop reading."""
        self._stopped = True
        self.gone()
        self._session.abort()

    def _run(self) -> None:
        failure: CliError | None = None
        try:
            with self._session:
                self._follow()
        except _PodDeletedError:
            pass
        except CliError as error:
            failure = error
        finally:  # in any case: the main thread waits for this
            if self._held is not None:
                self._put(Lines(self, [self._held]))
            self._put(LogEnd(self, failure))

    def _follow(self) -> None:
        """Read until the log ends. Raises _PodDeletedError if the pod is deleted, CliError without permission."""
        known, seen, pause_s = NOT_STARTED, None, FIRST_RETRY_DELAY_S
        while True:
            standing = self._next(seen, RETRY_S if seen and seen.run != NOT_STARTED and not seen.over else None)
            seen = standing
            if standing.gone:
                raise _PodDeletedError
            if standing.run == NOT_STARTED:
                if standing.pod_over:
                    return
                self._put(Note(self, f"has not started yet: {standing.why}"))
                continue
            try:
                if NOT_STARTED < known < standing.run:
                    self._read(whole=True, previous="true")
                    self._put(Note(self, f"was started again{f' after {standing.why}' if standing.why else ''}"))
                known = standing.run
                self._read(whole=standing.over, follow="true")
            except CliError as error:
                if self._stopped or error.is_denied:
                    raise
                if pause_s == FIRST_RETRY_DELAY_S:
                    self._put(Note(self, f"cannot read logs, retrying: {error.message}"))
                self._next(standing, pause_s)
                seen, pause_s = None, min(2 * pause_s, MAX_RETRY_DELAY_S)
                continue
            pause_s = FIRST_RETRY_DELAY_S
            if standing.pod_over:
                return

    def _next(self, seen: RunState | None, limit_s: float | None) -> RunState:
        """Wait up to `limit_s` seconds until the state of the container differs from `seen`, and return the state."""
        with self._changed:
            self._changed.wait_for(lambda: self._standing != seen, limit_s)
            return self._standing

    def _read(self, *, whole: bool, **query: str) -> None:
        """Read a stream to its end. `whole`: the container has terminated, so the last line of the stream is complete."""
        path = pods_path(self._session.namespace, f"{self.replica.pod_name}/log")
        since = self._position.since
        more = {"sinceTime": since} if since else {} if "previous" in query else self._first
        self._position.resume()
        lines = Splitter()
        begun = False
        try:
            for part in self._session.stream(path, container=self._container, timestamps="true", **query, **more):
                if not begun and self._pod_reader.is_another(self.replica.pod_name, self.replica.uid):
                    raise _PodDeletedError
                begun = True
                self._held = None
                self._hand_on(lines.feed(part))
        except ApiServerError as error:
            if error.is_not_found:
                raise _PodDeletedError from error
            if error.code != _NO_LOG:  # 400: it is waiting to start, or has no previous run
                raise
        rest = lines.rest()
        if rest and whole:
            self._hand_on([rest])
        elif rest:
            self._hold(rest)

    def _hand_on(self, raw: list[bytes]) -> None:
        found = [line for each in raw if (line := self._position.unseen(each)) is not None]
        if found:
            self._put(Lines(self, found))

    def _hold(self, rest: bytes) -> None:
        """Keep an incomplete line: it is counted when it arrives completely."""
        self._held = self._position.peek(rest)


MAX_LOGS: Final = 50
"""The most streams, as in stern's --max-log-requests: each is a connection to the API server and one from it to a kubelet."""
IDLE_S: Final = 0.5
"""The idle time after which it is checked whether all logs have ended."""
GRACE_S: Final = 5.0
"""How long the stream of a deleted pod may be idle before it is closed: with a dead node it never ends."""
POLL_S: Final = 2.0
"""The interval at which the job is polled while no log is read."""
_BATCHES: Final = 256
"""The most chunks of up to 64 KB that are queued for printing."""


class Pods(NamedTuple):
    """All selected pods of the job, from a list or the watch."""

    replicas: Sequence[ReplicaPod]


class PodsUnreadable(NamedTuple):
    """The permission to read the pods was lost."""

    error: CliError


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
        self._name = str(job["metadata"]["name"])
        self._choice = choice
        self._container = container
        self._formatter = formatter
        self._most = most
        self._clock = clock
        self._pause = pause
        self._pod_reader = PodReader(session.another())
        self._watching = session.another()
        self._stopped = False
        self._queue: Queue[Message | Pods | PodsUnreadable] = Queue(_BATCHES)
        self._tails: dict[str, Tail] = {}
        """The logs that are being read, by the name of the replica."""
        self._next: dict[str, ReplicaPod] = {}
        """Newer pods of replicas, which are read once the previous log has ended."""
        self._done: set[str] = set()
        """UIDs of the pods whose log has ended."""
        self._gone: dict[str, float] = {}
        """When the pod of a replica was deleted and its stream became idle."""
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
            echo(f"{self._name}: waiting for pods", err=True)
        Thread(target=self._watch, daemon=True).start()
        try:
            self._print()
        finally:
            self._stopped = True
            self._watching.abort()
            for tail in self._tails.values():
                tail.stop()
            self._pod_reader.close()

    def _print(self) -> None:
        while True:
            try:
                message = self._queue.get(timeout=IDLE_S)
            except Empty:
                if self._is_at_end():
                    return
            else:
                self._handle(message)

    def _put(self, message: Message | Pods | PodsUnreadable) -> None:
        """Pass a message to the main thread; wait while the queue, whose size is limited, is full."""
        while not self._stopped:
            with suppress(Full):
                self._queue.put(message, timeout=IDLE_S)
                return

    def _handle(self, message: Message | Pods | PodsUnreadable) -> None:
        match message:
            case Pods(replicas):
                self._take(replicas, {})
            case PodsUnreadable(error):
                raise error
            case Lines(tail, lines) if self._is_read(tail):
                self._gone.pop(tail.replica.name, None)
                write(self._formatter.shown(tail.replica.name, lines))
            case Note(tail, text) if self._is_read(tail):
                echo(f"{tail.replica.name}: {text}", err=True)
            case LogEnd(tail, failure) if self._is_read(tail):
                if failure is not None:
                    raise failure
                self._end(tail.replica)

    def _is_read(self, tail: Tail) -> bool:
        return self._tails.get(tail.replica.name) is tail

    def _end(self, replica: ReplicaPod) -> None:
        self._done.add(replica.uid)
        self._gone.pop(replica.name, None)
        del self._tails[replica.name]
        if replica.name in self._next:
            self._begin(self._next.pop(replica.name), {})

    def _take(self, replicas: Sequence[ReplicaPod], first: Mapping[str, str | int]) -> None:
        """Start to read the logs of new pods; pass newer pod states to the logs that are being read."""
        self._formatter.expect(each.name for each in replicas)
        there = {each.name: each for each in replicas}
        for name, tail in self._tails.items():
            now = there.get(name)
            if now is not None and now.uid == tail.replica.uid:
                tail.update(now.pod)
                continue
            tail.gone()
            if now is not None:
                self._next[name] = now
        for name, replica in there.items():
            if name not in self._tails and replica.uid not in self._done:
                self._begin(replica, first)

    def _begin(self, replica: ReplicaPod, first: Mapping[str, str | int]) -> None:
        container = container_of(replica.pod, self._container)
        if container is None:
            self._done.add(replica.uid)
            echo(f"container {self._container} not found in pod {replica.pod_name}", err=True)
            return
        if len(self._tails) >= self._most:
            self._done.add(replica.uid)
            echo(f"{replica.name} is not followed: increase --max-log-requests (now {self._most})", err=True)
            return
        tail = Tail(self._session.another(), self._pod_reader, replica, container, first=first, put=self._put)
        self._tails[replica.name] = tail
        tail.start()

    def _is_at_end(self) -> bool:
        """Return True if everything was printed. Called when nothing has arrived for a while."""
        try:
            return self._is_over()
        except CliError as error:
            if error.is_denied:
                raise
            return False  # the server is temporarily unreachable; retried

    def _is_over(self) -> bool:
        now = self._clock()
        for name, tail in list(self._tails.items()):
            if tail.is_gone and now - self._gone.setdefault(name, now) >= GRACE_S:
                tail.stop()
                self._end(tail.replica)
        if any(tail.has_started for tail in self._tails.values()) or now - self._asked_at < POLL_S:
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
        if not jobs.conditions_of(job).keys() & {"Succeeded", "Failed"}:
            return False
        self._take(find(self._session, self._job, self._choice).replicas, {})  # the watch may lag behind
        return not any(tail.has_started for tail in self._tails.values()) and self._queue.empty()

    def _watch(self) -> None:
        """Send the pods to the main thread, initially and after every change, until stopped."""
        with suppress(_FollowStoppedError), self._watching as session:
            try:
                for replicas in pod_lists(session, self._job, self._choice, pause=self._rest, warn=_ignore):
                    if self._stopped:
                        return
                    self._put(Pods(replicas))
            except CliError as error:
                self._put(PodsUnreadable(error))

    def _rest(self, seconds: float) -> None:
        self._pause(seconds)
        if self._stopped:
            raise _FollowStoppedError


def _ignore(_warning: str) -> None:
    """Print nothing: each log that is read reports the lost connection."""
