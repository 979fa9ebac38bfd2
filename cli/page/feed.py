"""What browsers are sent: the latest states, numbered by their changes. Nothing is queued for any browser.

Each entry is the newest state of one key, under the number of its last change. A browser that has seen everything up to a
number gets what has a higher one: all changes meanwhile, each once. So a slow browser costs no memory, and skips what is out of
date.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

B = TypeVar("B")

MOST_GONE: Final = 1_000
"""How many deletions are remembered. A browser that has missed older ones gets everything anew."""


class Update(NamedTuple, Generic[B]):
    """What changed up to `number`: bodies by key, None for what is gone. `full`: this is all there is."""

    number: int
    full: bool
    changed: list[tuple[str, B | None]]


class Feed(Generic[B]):
    """Bodies by key, in the order of their last change. Belongs to one loop.

    Invariants: numbers only grow; what a reader had at `n`, changed by `since(n)`, is what is there now.
    """

    def __init__(self) -> None:
        self.number = 0
        self._entries: dict[str, tuple[int, B | None]] = {}
        self._gone: dict[str, None] = {}
        self._forgotten = 0
        self.rounds = 0
        self._news = asyncio.Event()

    def put(self, key: str, body: B | None) -> bool:
        """Set the state of a key, None for gone. Return whether that is a change."""
        known = self._entries.get(key)
        if known is None and body is None:
            return False
        if known is not None and known[1] == body:
            return False
        self.number += 1
        self._entries.pop(key, None)
        self._gone.pop(key, None)
        self._entries[key] = self.number, body
        if body is None:
            self._gone[key] = None
            self._forget()
        return True

    def since(self, number: int) -> Update[B]:
        """Return what a reader lacks that has seen everything up to `number`; 0 for one that has seen nothing."""
        if not self._forgotten <= number <= self.number or number == 0:
            return Update(
                self.number, True, [(key, body) for key, (_, body) in self._entries.items() if body is not None]
            )
        return Update(self.number, False, [*self._newer(number)][::-1])

    def announce(self) -> None:
        """Wake all that wait: what was put so far belongs together."""
        self.rounds += 1
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self, rounds: int) -> None:
        """Return when `announce` was called more often than `rounds` times."""
        while self.rounds <= rounds:
            await self._news.wait()

    def _newer(self, number: int) -> Iterator[tuple[str, B | None]]:
        for key, (changed, body) in reversed(self._entries.items()):
            if changed <= number:
                return
            yield key, body

    def _forget(self) -> None:
        while len(self._gone) > MOST_GONE:
            oldest = next(iter(self._gone))
            del self._gone[oldest]
            self._forgotten = self._entries.pop(oldest)[0]
