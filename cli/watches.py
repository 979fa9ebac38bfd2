"""Concurrent watches, each on its own connection (a session sends one request at a time), and the watch of one job.

The newest version of a job is always delivered, and a later job of the same name is not mistaken for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, Final, NamedTuple, TypeVar

from tfjob_operator.api.v1.states import ENDS
from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.session import Session

T = TypeVar("T")
_MAX_QUEUED: Final = 1_000
"""The most queued changes: beyond that, connections are not read, as with a single watch."""
_POLL_S: Final = 0.2
"""How often a thread that cannot enqueue a change checks whether the consumer still exists."""
_WAKE_S: Final = 1.0
"""How often a waiting consumer wakes: a signal that another thread receives, such as that of Ctrl-C, does not wake it."""
_Item = tuple[int, dict[str, Any] | CliError | None]


class Watch(NamedTuple):
    """A list to watch, from a version on, with its label and field selectors."""

    path: str
    version: str
    selector: str = ""
    fields: str = ""


def changes(
    session: Session, watches: Sequence[Watch], *, limit_s: float = math.inf
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield events, each with the index of its watch, until the server or the caller ends a watch. Raises CliError.

    A single watch ends with StreamBrokenError after `limit_s` seconds.
    """
    if len(watches) == 1:
        for event in _events(session, watches[0], limit_s):
            yield 0, event
        return
    items = Queue[_Item](_MAX_QUEUED)
    stopped = Event()
    sessions = [session.another() for _ in watches]
    try:
        for number, (own, watch) in enumerate(zip(sessions, watches, strict=True)):
            Thread(target=_listen, args=[own, watch, number, items, stopped], daemon=True).start()
        while True:
            try:
                number, item = items.get(timeout=_WAKE_S)
            except Empty:
                continue
            if isinstance(item, CliError):
                raise item
            if item is None:
                return
            yield number, item
    finally:
        stopped.set()
        for each in sessions:
            each.abort()


def _events(session: Session, watch: Watch, limit_s: float = math.inf) -> Iterator[dict[str, Any]]:
    path, version, selector, fields = watch
    return session.watch(path, limit_s=limit_s, labelSelector=selector, fieldSelector=fields, resourceVersion=version)


def _listen(session: Session, watch: Watch, number: int, items: Queue[_Item], stopped: Event) -> None:
    with session:
        try:
            for event in _events(session, watch):
                _enqueue(items, (number, event), stopped)
            _enqueue(items, (number, None), stopped)
        except CliError as error:
            _enqueue(items, (number, error), stopped)


def _enqueue(items: Queue[_Item], item: _Item, stopped: Event) -> None:
    """Enqueue an item, unless the consumer is gone."""
    while not stopped.is_set():
        try:
            items.put(item, timeout=_POLL_S)
        except Full:
            continue
        return


MAX_WATCH_S: Final = 300.0
"""How long a single watch lasts, as a client-go reflector's: a proxy may keep a connection whose server is gone."""
RETRY_S: Final = 1.0
"""The pause before a list or an object is read again whose watch has ended."""
FIRST_RETRY_DELAY_S: Final = 1.0
MAX_RETRY_DELAY_S: Final = 30.0
"""The longest pause before a read that failed is retried; it doubles with each retry."""
_LAST_READ_S: Final = 1.0
"""How long the last read may take after the time is over: it tells a job that still runs from one whose state is unknown."""

_MAX_EVENTS: Final = 500
"""The most events that are read about a deleted job."""
_FAILURES: Final = (
    "TFJobFailed",
    "PodFailurePolicy",
    "JobFailed",
    "InvalidTFJobSpec",
    "RefusedTFJobSpec",
    "TFJobTooLarge",
)
"""The reasons of events about the failure of a job, besides those of limits."""
_HAS_FAILED: Final = "has failed"


class End(NamedTuple):
    """The outcome of a job: the condition, its message, and the exit code of the commands that wait for it."""

    condition: str
    message: str
    code: int


class Gone(NamedTuple):
    """A job was deleted. `end` is its outcome, None if it had not finished, or if that cannot be read any more."""

    end: End | None = None


def end_of(job: Mapping[str, Any]) -> End | None:
    """Return the outcome of a job, None if it is unfinished."""
    state = facts.state_of(job)
    if state not in ENDS:
        return None
    condition = facts.conditions_of(job).get(state) or {"message": facts.mapping(job.get("status")).get("reason")}
    return End(state, str(condition.get("message") or ""), int(state == facts.FAILED))


def _end_in_events(session: Session, name: str, uid: str) -> End | None:
    """Return the outcome of a deleted job by its events; None without such an event, or if they cannot be read."""
    from tfjob_operator.api.v1.constants import LIMITS, ConditionReason

    where = f"/api/v1/namespaces/{session.namespace}/events"
    with suppress(CliError):
        found = session.get(
            where, fieldSelector=f"involvedObject.name={name},involvedObject.uid={uid}", limit=_MAX_EVENTS
        )
        failures = {*_FAILURES, *map(str, LIMITS)}
        for event in facts.listed(found.get("items")):
            reason, message = facts.text(event.get("reason")), facts.text(event.get("message"))
            if reason == ConditionReason.SUCCEEDED:
                return End(facts.SUCCEEDED, message, 0)
            if reason in failures and _HAS_FAILED in message:  # a job on hold has events with some of these reasons too
                return End(facts.FAILED, message, 1)
    return None


def retried(
    read: Callable[[], T],
    what: str,
    *,
    pause: Callable[[float], None],
    warn: Callable[[str], None],
    left: Callable[[], float] = lambda: math.inf,
) -> T:
    """Return what `read` returns, and retry while it raises CliError. `warn` gets a message about the first error.

    Raises the error if access is denied, or when no seconds are `left`.
    """
    delay_s = FIRST_RETRY_DELAY_S
    while True:
        try:
            return read()
        except CliError as error:
            if error.is_denied or (left_s := left()) <= 0:
                raise
            if delay_s == FIRST_RETRY_DELAY_S:
                warn(f"cannot read {what}, retrying: {error.message}")
        pause(min(delay_s, left_s))
        delay_s = min(2 * delay_s, MAX_RETRY_DELAY_S)


def versions(
    session: Session,
    name: str,
    *,
    clock: Callable[[], float],
    pause: Callable[[float], None],
    warn: Callable[[str], None],
    until: float | None = None,
    uid: str | None = None,
) -> Iterator[dict[str, Any] | Gone]:
    """Yield each version of a job until the clock reaches `until`, and Gone when the job is deleted. No change is missed.

    The outcome of a deleted job is that of its last state, which the watch delivers with the deletion. If the deletion itself
    was missed, the job's events have it. A job with `ttlSecondsAfterFinished: 0` is deleted when it finishes.

    `clock` is `time.monotonic`; `uid` is given if the job is known to exist. From then on, or once the job was read, errors are
    retried until `until`, see `retried`. Raises CliError.
    """

    def left() -> float:
        return math.inf if until is None else until - clock()

    limited = nullcontext(session) if until is None else session.another(until=until + _LAST_READ_S)
    with limited as reading:

        def read() -> tuple[dict[str, Any] | None, Sequence[Watch]]:
            nonlocal name, uid
            try:
                job = jobs.get(reading, name)
            except ApiServerError as error:
                if uid is None or not error.is_not_found:
                    raise
                return None, ()
            meta = job["metadata"]
            if uid not in {None, meta["uid"]}:
                return None, ()
            # the full name, because the short one of a job of tensorflow.org is looked up in two APIs
            uid, name = meta["uid"], jobs.full_name(job)
            fields = f"metadata.name={meta['name']}"
            return job, [Watch(jobs.path_of(job, alone=False), meta["resourceVersion"], fields=fields)]

        first = read() if uid is None else None
        for job, _, event in watched(reading, read, "the job", pause=pause, warn=warn, left=left, first=first):
            if event is not None and (event["object"].get("metadata") or {}).get("uid") != uid:
                continue  # a later job of this name is seen by the next read
            if event is not None and event["type"] == "DELETED":
                yield Gone(end_of(event["object"]))
                return
            if event is None and job is None:
                yield Gone(_end_of_deleted(reading, name, uid or "", pause))
                return
            if (newest := job if event is None else event["object"]) is not None:
                yield newest
            if event is None and left() <= 0:
                return


def _end_of_deleted(session: Session, name: str, uid: str, pause: Callable[[float], None]) -> End | None:
    """Return the outcome of a job whose deletion was not seen. The operator may send its events after the deletion."""
    bare = name.rpartition("/")[2]
    found = _end_in_events(session, bare, uid)
    if found is None:
        pause(RETRY_S)
        found = _end_in_events(session, bare, uid)
    return found


def watched(
    session: Session,
    read: Callable[[], tuple[T, Sequence[Watch]]],
    what: str,
    *,
    pause: Callable[[float], None],
    warn: Callable[[str], None],
    left: Callable[[], float] = lambda: math.inf,
    first: tuple[T, Sequence[Watch]] | None = None,
) -> Iterator[tuple[T, int, dict[str, Any] | None]]:
    """Yield what `read` returns, then each event of the watches that it returns with it, without end. No change is missed.

    An item is what was read last, the index of a watch, and its event; None after a read. When a watch ends, breaks or is too
    old, everything is read again. Errors are retried, see `retried`; `first` is the result of a read that was not. Raises
    CliError if a read or a watch is denied, or if a read fails when no seconds are `left`.
    """
    while True:
        found, watches = first or retried(read, what, pause=pause, warn=warn, left=left)
        first = None
        yield found, 0, None
        try:
            for number, event in changes(session, watches, limit_s=min(left(), MAX_WATCH_S)):
                yield found, number, event
        except CliError as error:
            if error.is_denied:
                raise
        pause(max(0.0, min(RETRY_S, left())))
