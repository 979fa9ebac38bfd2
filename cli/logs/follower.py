"""Follows the logs of a job without I/O: which log to request next and from when, and which lines are new.

`kubectl tfjob logs -f` reads logs in threads, the dashboard in asyncio tasks. Both do what a `LogFollower` says, and pass the
bytes, ends and errors of its streams to it. A `LogSet` decides which logs are followed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tfjob_operator.cli.logs.lines import LONGEST, LogLine, Position, Splitter

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

    @property
    def has_log(self) -> bool:
        """True if the container has started, perhaps before a restart."""
        return self.run != NOT_STARTED


def run_state_of(status: Mapping[str, Any], container: str) -> RunState:
    """Return the state of a container from the status of its pod."""
    pod_over = status.get("phase") in {"Succeeded", "Failed"}
    every = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    container_status: Mapping[str, Any] = next((each for each in every if each.get("name") == container), {})
    state, last = container_status.get("state") or {}, container_status.get("lastState") or {}
    is_running = state.get("running") is not None
    ended = state.get("terminated") or last.get("terminated")
    if not is_running and not ended:
        places = {
            condition.get("type"): condition
            for condition in status.get("conditions") or ()
            if condition.get("status") == "False"
        }
        waiting, unscheduled = (
            (each or {}).get("reason") for each in (state.get("waiting"), places.get("PodScheduled"))
        )
        why = waiting or status.get("reason") or unscheduled or status.get("phase") or "Pending"
        return RunState(NOT_STARTED, pod_over=pod_over, why=str(why))
    reason = f", {ended['reason']}" if ended and ended.get("reason") else ""
    why = f"exit code {ended.get('exitCode', '?')}{reason}" if ended else ""
    return RunState(int(container_status.get("restartCount") or 0), not is_running, pod_over, why=why)


RETRY_S: Final = 1.0
"""The delay after which an ended stream is requested again although no restart of its container was observed: the kubelet
itself may have restarted."""
FIRST_DELAY_S: Final = 1.0
"""The delay of the first retry after an error; it doubles with each error until bytes arrive."""
MAX_DELAY_S: Final = 30.0
GRACE_S: Final = 5.0
"""How long the stream of a deleted pod may be idle before it is closed: with a dead node it never ends."""
_NO_LOG: Final = 400
_NOT_FOUND: Final = 404


class Wait(NamedTuple):
    """Wait until the state differs from `seen`, at most `limit_s` seconds."""

    seen: RunState
    limit_s: float | None


class LogRequest(NamedTuple):
    """A request for the log with timestamps: that of the current run, to follow, or that of the previous one.

    `since` is a time, "" for the whole log, or as much of it as the user wants.
    """

    is_previous: bool
    since: str


class LogFollower:
    """The log of a container over its restarts, each line once.

    Call `next`, do what it returns, and repeat until it returns None. Pass each piece of a stream to `feed`, and its end to
    `ended` or `failed`. While `is_unverified`, first check that no other pod has the name of this one, and call `close` if one
    has. Finally `rest` returns what is left. `state` may be set to a newer state at any time.
    """

    def __init__(self, name: str, uid: str, state: RunState, longest: int = LONGEST) -> None:
        """Follow the log of a replica's pod."""
        self.name = name
        self.uid = uid
        self.state = state
        self.notes: list[str] = []
        """Messages that are not part of the log; the caller removes them."""
        self.is_unverified = False
        self.idle_since: float | None = None
        """When a `LogSet` noticed that nothing arrives any longer."""
        self._position = Position()
        self._splitter = Splitter(longest)
        self._held: LogLine | None = None
        """The last line of a stream that ended within it: usually it is sent again completely."""
        self._known = NOT_STARTED
        """The last run that was read from its beginning."""
        self._requested = state
        """The state at the time of the last request."""
        self._is_previous = False
        self._wait: Wait | None = None
        self._delay_s = FIRST_DELAY_S
        self._is_closed = False

    def next(self) -> LogRequest | Wait | None:
        """Return the next request, or what to wait for; None if the log has ended."""
        wait, state = self._wait, self.state
        self._wait = wait if wait is not None and wait.limit_s is None else None
        if self._is_closed or state.gone:
            return None
        if wait is not None and wait.seen == state:
            return wait
        self._wait, self._requested = None, state
        if not state.has_log:
            if state.pod_over:
                return None
            self.notes.append(f"has not started yet: {state.why}")
            self._wait = Wait(state, None)
            return self._wait
        self._is_previous = NOT_STARTED < self._known < state.run
        if not self._is_previous:
            self._known = state.run
        self._position.resume()
        self.is_unverified = True
        return LogRequest(self._is_previous, self._position.since or "")

    def feed(self, data: bytes) -> list[LogLine]:
        """Return the new lines that these bytes complete."""
        self.is_unverified, self.idle_since, self._held, self._delay_s = False, None, None, FIRST_DELAY_S
        return self._unseen(self._splitter.feed(data))

    def ended(self) -> list[LogLine]:
        """Return the last line of a stream that has ended, if it is complete."""
        rest, state = self._splitter.rest(), self._requested
        lines = []
        if rest and (state.over or self._is_previous):
            lines = self._unseen([rest])
        elif rest:
            self._held = self._position.peek(rest)
        if self._is_previous:
            self._known = state.run
            self.notes.append(f"was started again{f' after {state.why}' if state.why else ''}")
        elif state.pod_over:
            self.close()
        else:
            self._wait = Wait(state, None if state.over else RETRY_S)
        return lines

    def failed(self, code: int, message: str) -> None:
        """Process the error of a request or a stream, with the status code of the response, 0 if there was none."""
        if code == _NOT_FOUND:
            self.close()
        elif code == _NO_LOG:  # it is waiting to start, or has no previous run
            self.ended()
        else:
            if rest := self._splitter.rest():
                self._held = self._position.peek(rest)
            if self._delay_s == FIRST_DELAY_S:
                self.notes.append(f"cannot read logs, retrying: {message}")
            self._wait = Wait(self._requested, self._delay_s)
            self._delay_s = min(2 * self._delay_s, MAX_DELAY_S)

    def close(self) -> None:
        """Request nothing more: the pod was deleted, or another one has its name."""
        self._is_closed = True
        self.state = self.state._replace(gone=True)

    def rest(self) -> list[LogLine]:
        """Return the last line if it was never completed."""
        return [self._held] if self._held is not None else []

    def _unseen(self, raw: list[bytes]) -> list[LogLine]:
        return [line for each in raw if (line := self._position.unseen(each)) is not None]


class LogSet:
    """The logs that are being followed: one per replica, at most `most`. A pod that replaces another one is read after it."""

    def __init__(self, most: int, longest: int = LONGEST) -> None:
        self.open: dict[str, LogFollower] = {}
        """By the name of the replica."""
        self.done: set[str] = set()
        """The UIDs of the pods whose logs are not read any more."""
        self._most = most
        self._longest = longest

    def update(self, replicas: Mapping[str, tuple[str, RunState]]) -> list[LogFollower]:
        """Process the UID and the state of each replica's newest pod, and return the logs to open."""
        for name, log in self.open.items():
            uid, state = replicas.get(name, ("", log.state))
            log.state = state if uid == log.uid else log.state._replace(gone=True)
        opened = []
        for name, (uid, state) in replicas.items():
            if name not in self.open and uid not in self.done and len(self.open) < self._most:
                self.open[name] = LogFollower(name, uid, state, self._longest)
                opened.append(self.open[name])
        return opened

    def end(self, log: LogFollower) -> None:
        """Note that a log has ended."""
        self.done.add(log.uid)
        del self.open[log.name]

    def stalled(self, now: float) -> list[LogFollower]:
        """Return the logs of deleted pods that have been idle for `GRACE_S`; `now` is a monotonic time in seconds."""
        found = []
        for log in self.open.values():
            if log.state.gone:
                log.idle_since = now if log.idle_since is None else log.idle_since
                found += [log] if now - log.idle_since >= GRACE_S else []
        return found
