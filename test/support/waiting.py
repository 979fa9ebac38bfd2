"""Polls processes, kubectl and real servers, which send no events.

The awaited changes take a second or two on an idle machine; the limits are for a busy one. On one that is busier still, a
test waits longer while `yet` shows progress. A failure says what the test waited for, and how far it got.
"""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, Final

import pytest

LIMIT_S: Final = 60.0
MOST: Final = 8
"""Half limits that a test waits at most."""


class Patience:
    """The time that a test waits for something: `limit_s` seconds, and longer while each half of it changes `yet`'s result."""

    def __init__(self, what: str, limit_s: float, yet: Callable[[], object]) -> None:
        self._what = what
        self._half_s = limit_s / 2
        self._yet = yet
        self._began = time.monotonic()
        self._halves = 1
        self._seen: object = None

    def check(self) -> None:
        """Raise TimeoutError once the time is over."""
        past_s = time.monotonic() - self._began
        if past_s <= self._half_s * self._halves:
            return
        seen, self._seen = self._seen, self._yet()
        if self._halves == MOST or (self._halves > 1 and self._seen == seen):
            raise TimeoutError(f"not within {past_s:.0f} s: {self._what} {self._seen}")
        self._halves += 1


def eventually(
    holds: Callable[[], Any], what: str, *, limit_s: float = LIMIT_S, yet: Callable[[], object] = str
) -> Any:
    """Poll `holds` until its result is truthy, and return that.

    After `limit_s` seconds without progress the test fails, with `what` it waited for and the result of `yet`.
    """
    patience, pause_s = Patience(what, limit_s, yet), 0.05
    while not (answer := holds()):
        try:
            patience.check()
        except TimeoutError as error:
            pytest.fail(str(error))
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, 0.15)
    return answer


async def until(
    holds: Callable[[], object],
    what: str,
    *,
    limit_s: float = LIMIT_S,
    yet: Callable[[], object] = str,
    tick_s: float = 0.005,
) -> None:
    """Poll `holds`, a function or a coroutine function, for changes in this loop without events.

    After `limit_s` seconds without progress it raises TimeoutError, with `what` it waited for and the result of `yet`.
    """
    patience = Patience(what, limit_s, yet)
    while True:
        held = holds()
        if await held if inspect.isawaitable(held) else held:
            return
        patience.check()
        await asyncio.sleep(tick_s)
