"""Several watches at once."""

import threading
from collections.abc import Iterator
from typing import Any, Self

import pytest

from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.watches import Watch, changes

LIMIT_S = 60.0
ONE, OTHER = (Watch(f"/{name}", "7", "", "application/json") for name in ("one", "other"))


class Session:
    """Yields the events of a path, then waits until it is told to end, or aborted; then it raises `error`, if there is one."""

    def __init__(self, events: dict[str, list[Any]], error: CliError | None = None) -> None:
        self.events = events
        self.error = error
        self.may_end = threading.Event()
        self.aborted = threading.Event()

    def another(self) -> Self:
        return self

    def abort(self) -> None:
        self.aborted.set()
        self.may_end.set()

    def watch(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        assert query["resourceVersion"] == "7"
        yield from self.events[path]
        assert self.may_end.wait(LIMIT_S)
        if self.error is not None:
            raise self.error


def test_events_of_all_watches_come_and_the_end_of_one_ends_all() -> None:
    session: Any = Session({"/one": [{"n": 1}, {"n": 2}], "/other": [{"n": 3}]})
    seen: list[tuple[int, Any]] = []
    for number, event in changes(session, [ONE, OTHER]):
        seen.append((number, event["n"]))
        if len(seen) == 3:
            session.may_end.set()
    assert sorted(seen) == [(0, 1), (0, 2), (1, 3)]
    assert session.aborted.is_set()


def test_an_error_of_one_watch_is_raised_and_a_caller_that_stops_ends_all() -> None:
    session: Any = Session({"/one": [], "/other": [{"n": 3}]}, CliError("lost"))
    coming = changes(session, [ONE, OTHER])
    assert next(coming) == (1, {"n": 3})
    session.may_end.set()
    with pytest.raises(CliError, match="lost"):
        next(coming)
    session = Session({"/one": [], "/other": [{"n": 3}]})
    coming = changes(session, [ONE, OTHER])
    next(coming)
    coming.close()  # type: ignore[attr-defined]
    assert session.aborted.is_set()


def test_one_watch_needs_no_thread() -> None:
    session: Any = Session({"/one": [{"n": 1}]})
    session.may_end.set()
    session.another = None
    before = threading.active_count()
    coming = changes(session, [ONE])
    assert next(coming) == (0, {"n": 1})
    assert threading.active_count() == before
