"""Answers that cost a request: kept for a while, and asked for once by all who wait for the same one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

V = TypeVar("V")

MOST: Final = 10_000
"""How many answers are kept; the oldest goes for a newer one."""


class Answer(NamedTuple, Generic[V]):
    """What was answered to a question that was sent at the loop's time `at`."""

    value: V
    at: float


class Answers(Generic[V]):
    """Answers by their question. Belongs to one loop.

    Invariants: at most one request per question is under way; an answer is as old as its question, so nothing that changed
    before somebody asked is missed for longer than they allow; a request that fails leaves nothing behind.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, Answer[V]] = {}
        self._asking: dict[Hashable, asyncio.Task[Answer[V]]] = {}

    async def get(self, question: Hashable, ask: Callable[[], Awaitable[V]], keep_s: Callable[[V], float]) -> Answer[V]:
        """Return the answer that is kept, unless it is as old as `keep_s` says of it, or what `ask` returns.

        Raises what `ask` raises, in all who wait for it. Cancelling one of them does not cancel the request.
        """
        kept = self._kept.get(question)
        if kept is not None and asyncio.get_running_loop().time() - kept.at < keep_s(kept.value):
            return kept
        asking = self._asking.get(question)
        if asking is None:
            asking = self._asking[question] = asyncio.create_task(self._ask(question, ask), name="question")
            asking.add_done_callback(lambda task: self._asked(question, task))
        return await asyncio.shield(asking)

    async def close(self) -> None:
        """Cancel the requests that are under way."""
        asking = [*self._asking.values()]
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _ask(self, question: Hashable, ask: Callable[[], Awaitable[V]]) -> Answer[V]:
        at = asyncio.get_running_loop().time()
        answer = Answer(await ask(), at)
        self._kept.pop(question, None)
        self._kept[question] = answer
        while len(self._kept) > MOST:
            del self._kept[next(iter(self._kept))]
        return answer

    def _asked(self, question: Hashable, task: asyncio.Task[Answer[V]]) -> None:
        del self._asking[question]
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may be left
