"""Several watches at once, each with a connection of its own: a session sends one request at a time."""

from __future__ import annotations

from queue import Full, Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tfjob_operator.cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfjob_operator.cli.session import Session

_MOST: Final = 1_000
"""Changes that wait to be shown: then their connections are not read, as with one watch."""
_LOOK_S: Final = 0.2
"""How often a thread that cannot hand over a change looks whether somebody still wants it."""
_Heard = tuple[int, dict[str, Any] | CliError | None]


class Watch(NamedTuple):
    """What to watch: a list, from a version on, with its selectors of labels and fields."""

    path: str
    version: str
    selector: str = ""
    fields: str = ""


def changes(session: Session, watches: Sequence[Watch]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each event with the number of its watch, as they come, until the server ends one of them.

    Raises CliError. A caller that stops earlier closes the generator.
    """
    if len(watches) == 1:
        for event in _events(session, watches[0]):
            yield 0, event
        return
    heard = Queue[_Heard](_MOST)
    over = Event()
    sessions = [session.another() for _ in watches]
    try:
        for number, (own, watch) in enumerate(zip(sessions, watches, strict=True)):
            Thread(target=_listen, args=[own, watch, number, heard, over], daemon=True).start()
        while True:
            number, told = heard.get()
            if isinstance(told, CliError):
                raise told
            if told is None:
                return
            yield number, told
    finally:
        over.set()
        for each in sessions:
            each.abort()


def _events(session: Session, watch: Watch) -> Iterator[dict[str, Any]]:
    return session.watch(
        watch.path, labelSelector=watch.selector, fieldSelector=watch.fields, resourceVersion=watch.version
    )


def _listen(session: Session, watch: Watch, number: int, heard: Queue[_Heard], over: Event) -> None:
    try:
        for event in _events(session, watch):
            _hand(heard, (number, event), over)
        _hand(heard, (number, None), over)
    except CliError as error:
        _hand(heard, (number, error), over)


def _hand(heard: Queue[_Heard], item: _Heard, over: Event) -> None:
    """Put an item into the queue, unless nobody reads it any more."""
    while not over.is_set():
        try:
            heard.put(item, timeout=_LOOK_S)
        except Full:
            continue
        return
