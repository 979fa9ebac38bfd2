"""The log of one container from now until its pod is over: a thread that reads, over restarts in place and lost connections."""

from __future__ import annotations

from threading import Condition, Lock, Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tfjob_operator.cli.errors import ApiError, CliError
from tfjob_operator.cli.logs.lines import Line, Position, Splitter
from tfjob_operator.cli.logs.standing import NOT_STARTED, Standing, standing_of
from tfjob_operator.cli.replicas import pods_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfjob_operator.cli.replicas import Replica
    from tfjob_operator.cli.session import Session

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
