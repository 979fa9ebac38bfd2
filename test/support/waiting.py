"""Polls processes, kubectl and real servers, which send no events.

The awaited changes take a second or two on an idle machine; the limits are for a busy one. On one that is busier still, a
test waits longer while `yet` shows progress. A failure says what the test waited for, and how far it got.
"""

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

LIMIT_S: Final = 60.0
MOST: Final = 8
"""Half limits that a test waits at most."""


def _patience(what: str, limit_s: float, yet: Callable[[], object]) -> Iterator[None]:
    """Yield for `limit_s` seconds, and longer as long as each half of that changes `yet`'s result; raise TimeoutError."""
    began, seen = time.monotonic(), None
    for half in range(1, MOST + 1):
        while (past_s := time.monotonic() - began) <= half * limit_s / 2:
            yield
        before, seen = seen, yet()
        if half > 1 and seen == before:
            break
    raise TimeoutError(f"not within {past_s:.0f} s: {what} {seen}")


def eventually(
    holds: Callable[[], Any], what: str, *, limit_s: float = LIMIT_S, yet: Callable[[], object] = str
) -> Any:
    """Poll `holds` until its result is truthy, and return that.

    After `limit_s` seconds without progress it raises TimeoutError, with `what` it waited for and the result of `yet`.
    """
    pause_s, patience = 0.05, _patience(what, limit_s, yet)
    while not (answer := holds()):
        next(patience)
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
    """Do the same in a coroutine; `holds` is a function or a coroutine function."""
    patience = _patience(what, limit_s, yet)
    while not ((held := holds()) and (await held if inspect.isawaitable(held) else True)):
        next(patience)
        await asyncio.sleep(tick_s)
