"""Follows the logs of a job's replicas at once, until the job has ended and all logs are at their end.

Each log has a thread and a connection, which go on over restarts in place and lost connections, and so has the watch of the
job's pods. They put what they read into one queue, and only the main thread prints, so that lines never mix and Ctrl-C takes
effect at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Condition, Lock, Thread
from typing import Any, Final, NamedTuple

import click

from tfjob_operator.api.text import clean
from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiError, CliError
from tfjob_operator.cli.logs.lines import Line, Position, Shower, Splitter
from tfjob_operator.cli.replicas import Choice, Replica, container_of, find, pod_lists, pods_path
from tfjob_operator.cli.session import Session

NOT_STARTED: Final = -1


class Standing(NamedTuple):
    """`run` counts starts of the container from 0, and is `NOT_STARTED` before the first.

    `over` says that this run has ended, `pod_over` that there will be no other, `gone` that the pod is not there any more.
    `why` is what it waits for, or how its last run ended.
    """

    run: int
    over: bool = False
    pod_over: bool = False
    gone: bool = False
    why: str = ""


def standing_of(pod: Mapping[str, Any], container: str) -> Standing:
    """Return how a container stands."""
    status = pod.get("status") or {}
    pod_over = status.get("phase") in {"Succeeded", "Failed"}
    every = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    told: Mapping[str, Any] = next((each for each in every if each.get("name") == container), {})
    state, last = told.get("state") or {}, told.get("lastState") or {}
    ended = state.get("terminated") or last.get("terminated")
    waiting = (state.get("waiting") or {}).get("reason")
    if "running" not in state and not ended:
        why = waiting or status.get("reason") or _unscheduled(status) or status.get("phase") or "Pending"
        return Standing(NOT_STARTED, pod_over=pod_over, why=str(why))
    why = _exit(ended) if ended else ""
    return Standing(int(told.get("restartCount") or 0), "running" not in state, pod_over, why=why)


def _unscheduled(status: Mapping[str, Any]) -> str:
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("reason", ""))
    return ""


def _exit(ended: Mapping[str, Any]) -> str:
    reason = ended.get("reason")
    return f"exit code {ended.get('exitCode', '?')}{f', {reason}' if reason else ''}"


AGAIN_S: Final = 1.0
"""After this time a stream that has ended is requested again, though no restart of its container was seen: the kubelet itself
may have restarted."""
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
"""The longest pause between two tries while the kubelet or the server does not answer; it doubles with each try."""
_CLOSING_S: Final = 1.0
_NO_LOG: Final = 400


class Lines(NamedTuple):
    """Lines of one log that came together."""

    tail: Tail
    lines: list[Line]


class Note(NamedTuple):
    """What people should know about a replica besides its log."""

    tail: Tail
    text: str


class Ended(NamedTuple):
    """A log is at its end, with an error if it may not be read at all."""

    tail: Tail
    error: CliError | None = None


Message = Lines | Note | Ended


class _GoneError(Exception):
    """The pod is not there any more, or another one has its name."""


class Asker:
    """Reads pods for several threads, over one connection."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = Lock()

    def close(self) -> None:
        """Read no more; a request in flight is aborted."""
        self._session.abort()
        if self._lock.acquire(timeout=_CLOSING_S):
            try:
                self._session.close()
            finally:
                self._lock.release()

    def is_another(self, name: str, uid: str) -> bool:
        """Return whether another pod has taken this name. Raises CliError if the pod cannot be read."""
        with self._lock:
            try:
                pod = self._session.get(pods_path(self._session.namespace, name))
            except ApiError as error:
                if error.is_not_found or error.is_denied:  # gone, or the user may list pods, but not get one
                    return False
                raise
        return bool(pod["metadata"]["uid"] != uid)


class Tail:
    """One container of one pod. `first` are the options of the first request, such as tailLines; `put` takes what was read."""

    def __init__(
        self,
        session: Session,
        asker: Asker,
        replica: Replica,
        container: str,
        *,
        first: Mapping[str, str | int],
        put: Callable[[Message], None],
    ) -> None:
        self.replica = replica
        self._session = session
        self._asker = asker
        self._container = container
        self._first = first
        self._put = put
        self._changed = Condition()
        self._standing = standing_of(replica.pod, container)
        self._position = Position()
        self._stopped = False
        self._held: Line | None = None
        """The last line of a stream that ended in the middle of it: it mostly comes again, and whole."""

    def start(self) -> None:
        """Begin to read."""
        Thread(target=self._run, daemon=True).start()

    @property
    def has_started(self) -> bool:
        """Whether there is a log at all."""
        return self._standing.run != NOT_STARTED

    @property
    def is_gone(self) -> bool:
        """Whether the pod is not there any more."""
        return self._standing.gone

    def update(self, pod: Mapping[str, Any]) -> None:
        """Take notice of a newer version of the pod."""
        self._stand(standing_of(pod, self._container))

    def gone(self) -> None:
        """Take notice that the pod is not there any more: what its stream still brings is read to its end."""
        self._stand(self._standing._replace(gone=True))

    def _stand(self, standing: Standing) -> None:
        with self._changed:
            self._standing = standing
            self._changed.notify_all()

    def stop(self) -> None:
        """Read no more."""
        self._stopped = True
        self.gone()
        self._session.abort()

    def _run(self) -> None:
        failure: CliError | None = None
        try:
            with self._session:
                self._follow()
        except _GoneError:
            pass
        except CliError as error:
            failure = error
        finally:  # whatever happened: the main thread waits for this
            if self._held is not None:
                self._put(Lines(self, [self._held]))
            self._put(Ended(self, failure))

    def _follow(self) -> None:
        """Read until there will be no more. Raises _GoneError when the pod is gone, CliError when it may not be read."""
        known, seen, pause_s = NOT_STARTED, None, FIRST_PAUSE_S
        while True:
            standing = self._next(seen, AGAIN_S if seen and seen.run != NOT_STARTED and not seen.over else None)
            seen = standing
            if standing.gone:
                raise _GoneError
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
                if self._stopped or (isinstance(error, ApiError) and error.is_denied):
                    raise
                if pause_s == FIRST_PAUSE_S:
                    self._put(Note(self, f"cannot read logs, retrying: {error.message}"))
                self._next(standing, pause_s)
                seen, pause_s = None, min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            pause_s = FIRST_PAUSE_S
            if standing.pod_over:
                return

    def _next(self, seen: Standing | None, limit_s: float | None) -> Standing:
        """Return how the container stands, as soon as that differs from `seen`, or `limit_s` seconds are over."""
        with self._changed:
            self._changed.wait_for(lambda: self._standing != seen, limit_s)
            return self._standing

    def _read(self, *, whole: bool, **query: str) -> None:
        """Read a stream to its end. `whole` says that its container has ended, and so its last line too."""
        path = pods_path(self._session.namespace, f"{self.replica.pod_name}/log")
        since = self._position.since
        more = {"sinceTime": since} if since else {} if "previous" in query else self._first
        self._position.resume()
        lines = Splitter()
        begun = False
        try:
            for part in self._session.stream(path, container=self._container, timestamps="true", **query, **more):
                if not begun and self._asker.is_another(self.replica.pod_name, self.replica.uid):
                    raise _GoneError
                begun = True
                self._held = None
                self._hand_on(lines.feed(part))
        except ApiError as error:
            if error.is_not_found:
                raise _GoneError from error
            if error.code != _NO_LOG:  # 400: it is waiting to start, or has no earlier run
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
        """Keep a line whose end has not come: it is counted when it comes whole."""
        self._held = self._position.peek(rest)


MOST_LOGS: Final = 50
"""The most streams, as stern's --max-log-requests: each is a connection to the API server and one from it to a kubelet."""
QUIET_S: Final = 0.5
"""After so long without a message it is checked whether there is anything left to wait for."""
GRACE_S: Final = 5.0
"""How long the stream of a pod that is gone may be silent before it is closed: that of a dead node never ends."""
ASK_S: Final = 2.0
"""The interval at which the job is read, while no log is."""
_BATCHES: Final = 256
"""Parts of at most 64 KB that may wait to be printed."""
PAUSE_S: Final = 1.0
"""The pause before pods that could not be read are read again."""


class Pods(NamedTuple):
    """All pods of the job that are chosen, as a list or the watch shows them."""

    replicas: Sequence[Replica]


class Failure(NamedTuple):
    """The pods may not be read any more."""

    error: CliError


class _StoppedError(Exception):
    """The following was stopped."""


class Following:
    """One run of `logs -f`. `clock` is a monotonic one, in seconds; `pause` sleeps."""

    def __init__(
        self,
        session: Session,
        job: Mapping[str, Any],
        choice: Choice,
        container: str | None,
        shower: Shower,
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
        self._shower = shower
        self._most = most
        self._clock = clock
        self._pause = pause
        self._asker = Asker(session.another())
        self._watching = session.another()
        self._stopped = False
        self._queue: Queue[Message | Pods | Failure] = Queue(_BATCHES)
        self._tails: dict[str, Tail] = {}
        """The logs that are being read, by the name of the replica."""
        self._next: dict[str, Replica] = {}
        """Newer pods of replicas, whose turn comes when the log of the one before is at its end."""
        self._done: set[str] = set()
        """UIDs of the pods whose log is at its end."""
        self._gone: dict[str, float] = {}
        """Since when the pod of a replica is gone and its stream is silent."""
        self._asked_at = 0.0

    def run(self, first: Mapping[str, str | int]) -> None:
        """Follow, and print. `first` are log options for the pods that exist at the beginning. Raises CliError."""
        replicas = find(self._session, self._job, self._choice).replicas
        if len(replicas) > self._most:
            raise CliError(
                f"too many replicas to follow: {len(replicas)}, the maximum is {self._most}: "
                "use --type, --index or --replica, or increase --max-log-requests"
            )
        self._take(replicas, first)
        if not replicas:
            click.echo(f"{self._name}: waiting for pods", err=True)
        Thread(target=self._watch, daemon=True).start()
        try:
            self._print()
        finally:
            self._stopped = True
            self._watching.abort()
            for tail in self._tails.values():
                tail.stop()
            self._asker.close()

    def _print(self) -> None:
        while True:
            try:
                message = self._queue.get(timeout=QUIET_S)
            except Empty:
                if self._is_at_end():
                    return
            else:
                self._handle(message)

    def _put(self, message: Message | Pods | Failure) -> None:
        """Hand something to the main thread, as soon as it has printed enough of what came before."""
        while not self._stopped:
            with suppress(Full):
                self._queue.put(message, timeout=QUIET_S)
                return

    def _handle(self, message: Message | Pods | Failure) -> None:
        match message:
            case Pods(replicas):
                self._take(replicas, {})
            case Failure(error):
                raise error
            case Lines(tail, lines) if self._is_read(tail):
                self._gone.pop(tail.replica.name, None)
                click.echo(self._shower.shown(tail.replica.name, lines), nl=False)
            case Note(tail, text) if self._is_read(tail):
                click.echo(f"{tail.replica.name}: {clean(text)}", err=True)
            case Ended(tail, failure) if self._is_read(tail):
                if failure is not None:
                    raise failure
                self._end(tail.replica)

    def _is_read(self, tail: Tail) -> bool:
        return self._tails.get(tail.replica.name) is tail

    def _end(self, replica: Replica) -> None:
        self._done.add(replica.uid)
        self._gone.pop(replica.name, None)
        del self._tails[replica.name]
        if replica.name in self._next:
            self._begin(self._next.pop(replica.name), {})

    def _take(self, replicas: Sequence[Replica], first: Mapping[str, str | int]) -> None:
        """Begin to read the logs of new pods; tell those that are being read of their pod's newest status."""
        self._shower.expect(each.name for each in replicas)
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

    def _begin(self, replica: Replica, first: Mapping[str, str | int]) -> None:
        container = container_of(replica.pod, self._container)
        if container is None:
            self._done.add(replica.uid)
            click.echo(f"container {clean(str(self._container))} not found in pod {replica.pod_name}", err=True)
            return
        if len(self._tails) >= self._most:
            self._done.add(replica.uid)
            click.echo(f"{replica.name} is not followed: increase --max-log-requests (now {self._most})", err=True)
            return
        tail = Tail(self._session.another(), self._asker, replica, container, first=first, put=self._put)
        self._tails[replica.name] = tail
        tail.start()

    def _is_at_end(self) -> bool:
        """Whether all that there was to print is printed. Called when nothing has come for a while."""
        try:
            return self._is_over()
        except CliError as error:
            if isinstance(error, ApiError) and error.is_denied:
                raise
            return False  # the server is not there at the moment; it is asked again

    def _is_over(self) -> bool:
        now = self._clock()
        for name, tail in list(self._tails.items()):
            if tail.is_gone and now - self._gone.setdefault(name, now) >= GRACE_S:
                tail.stop()
                self._end(tail.replica)
        if any(tail.has_started for tail in self._tails.values()) or now - self._asked_at < ASK_S:
            return False
        self._asked_at = now
        try:
            job = jobs.get(self._session, jobs.full_name(self._job))
        except ApiError as error:
            if not error.is_not_found:
                raise
            job = {}
        if not job or job["metadata"]["uid"] != self._job["metadata"]["uid"]:
            click.echo(f"{jobs.full_name(self._job)} was deleted", err=True)
            return True
        if not jobs.conditions_of(job).keys() & {"Succeeded", "Failed"}:
            return False
        self._take(find(self._session, self._job, self._choice).replicas, {})  # the watch may be behind
        return not any(tail.has_started for tail in self._tails.values()) and self._queue.empty()

    def _watch(self) -> None:
        """Send the pods to the main thread as they are and whenever one changes, until it is stopped."""
        with suppress(_StoppedError), self._watching as session:
            while True:
                try:
                    for replicas in pod_lists(session, self._job, self._choice, pause=self._rest):
                        if self._stopped:
                            return
                        self._put(Pods(replicas))
                except CliError as error:
                    if isinstance(error, ApiError) and error.is_denied:
                        self._put(Failure(error))
                        return
                    self._rest(PAUSE_S)

    def _rest(self, seconds: float) -> None:
        self._pause(seconds)
        if self._stopped:
            raise _StoppedError
