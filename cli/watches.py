"""Concurrent watches, each on its own connection (a session sends one request at a time), and the watch of one job.

The newest version of a job is always delivered, and a later job of the same name is not mistaken for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, Final, NamedTuple

from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.session import Session, StreamBrokenError

_MAX_QUEUED: Final = 1_000
"""The most queued changes: beyond that, connections are not read, as with a single watch."""
_POLL_S: Final = 0.2
"""How often a thread that cannot enqueue a change checks whether the consumer still exists."""
_Item = tuple[int, dict[str, Any] | CliError | None]


class Watch(NamedTuple):
    """A list to watch, from a version on, with its label and field selectors."""

    path: str
    version: str
    selector: str = ""
    fields: str = ""


def changes(session: Session, watches: Sequence[Watch]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield events, each with the index of its watch, until the server or the caller ends a watch. Raises CliError."""
    if len(watches) == 1:
        for event in _events(session, watches[0]):
            yield 0, event
        return
    items = Queue[_Item](_MAX_QUEUED)
    over = Event()
    sessions = [session.another() for _ in watches]
    try:
        for number, (own, watch) in enumerate(zip(sessions, watches, strict=True)):
            Thread(target=_listen, args=[own, watch, number, items, over], daemon=True).start()
        while True:
            number, item = items.get()
            if isinstance(item, CliError):
                raise item
            if item is None:
                return
            yield number, item
    finally:
        over.set()
        for each in sessions:
            each.abort()


def _events(session: Session, watch: Watch) -> Iterator[dict[str, Any]]:
    return session.watch(
        watch.path, labelSelector=watch.selector, fieldSelector=watch.fields, resourceVersion=watch.version
    )


def _listen(session: Session, watch: Watch, number: int, items: Queue[_Item], over: Event) -> None:
    try:
        for event in _events(session, watch):
            _enqueue(items, (number, event), over)
        _enqueue(items, (number, None), over)
    except CliError as error:
        _enqueue(items, (number, error), over)


def _enqueue(items: Queue[_Item], item: _Item, over: Event) -> None:
    """Enqueue an item, unless the consumer is gone."""
    while not over.is_set():
        try:
            items.put(item, timeout=_POLL_S)
        except Full:
            continue
        return


RETRY_S: Final = 1.0
_OVER: Final = ("CleanUp", "Done", "Failed")
_GRACE_S: Final = 5.0
"""How much later than requested the server may end a watch before its connection is considered dead."""


class End(NamedTuple):
    """The outcome of a job: the condition, its message, and the exit code of the commands that wait for it."""

    condition: str
    message: str
    code: int


def end_of(job: Mapping[str, Any]) -> End | None:
    """Return the outcome of a job, None if it is unfinished. Operators of 2018 wrote phase and state, but no conditions."""
    ended, status = jobs.conditions_of(job), job.get("status") or {}
    over = status.get("phase") in _OVER and not status.get("conditions")
    for condition, code in (("Succeeded", 0), ("Failed", 1)):
        if condition in ended:
            return End(condition, str(ended[condition].get("message", "")), code)
        if over and status.get("state") == condition:
            return End(condition, str(status.get("reason", "")), code)
    return None


def versions(
    session: Session,
    name: str,
    *,
    clock: Callable[[], float],
    pause: Callable[[float], None],
    until: float | None = None,
) -> Iterator[dict[str, Any] | None]:
    """Yield each version of a job until the clock reaches `until`, and None when the job is deleted. No change is missed."""
    uid = None
    while True:
        try:
            job = jobs.get(session, name)
        except ApiServerError as error:
            if not error.is_not_found or uid is None:
                raise
            yield None
            return
        if uid is not None and job["metadata"]["uid"] != uid:
            yield None  # another job has its name
            return
        uid = job["metadata"]["uid"]
        yield job
        left = None if until is None else until - clock()
        if left is not None and left <= 0:
            return
        yield from _watched(session, job, left)
        pause(RETRY_S if until is None else max(0.0, min(RETRY_S, until - clock())))


def _watched(session: Session, job: Mapping[str, Any], left: float | None) -> Iterator[dict[str, Any] | None]:
    """Yield the job whenever it changes, for at most `left` seconds."""
    limit_s = None if left is None else max(1, round(left))
    events = session.watch(
        jobs.path_of(job, alone=False),
        silence_s=None if limit_s is None else limit_s + _GRACE_S,
        fieldSelector=f"metadata.name={job['metadata']['name']}",
        resourceVersion=job["metadata"]["resourceVersion"],
        timeoutSeconds=limit_s,
    )
    try:
        for event in events:
            if event["type"] == "ERROR":
                return  # the version is too old: read again
            yield None if event["type"] == "DELETED" else event["object"]
    except StreamBrokenError:
        return  # likewise; an unreachable server is reported by the read
