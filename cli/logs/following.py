"""Follows the logs of a job's replicas at once, until the job has ended and all logs are at their end.

Each log has a thread and a connection (`tail.py`), and so has the watch of the job's pods. They put what they read into one
queue, and only the main thread prints, so that lines never mix and Ctrl-C takes effect at once.
"""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from tfjob_operator.api.text import clean
from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiError, CliError
from tfjob_operator.cli.logs.tail import Asker, Ended, Lines, Message, Note, Tail
from tfjob_operator.cli.pod_lists import pod_lists
from tfjob_operator.cli.replicas import container_of, find

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfjob_operator.cli.logs.showing import Shower
    from tfjob_operator.cli.replicas import Choice, Replica
    from tfjob_operator.cli.session import Session

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
