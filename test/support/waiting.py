"""Polls processes, kubectl and real servers, which send no events.

The awaited changes take a second or two on an idle machine; the limits are for a busy one.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import pytest

LIMIT_S: Final = 60.0


def eventually(
    holds: Callable[[], Any], what: str, *, limit_s: float = LIMIT_S, yet: Callable[[], object] = str
) -> Any:
    """Poll `holds` until its result is truthy, and return that.

    After `limit_s` seconds the test fails, with `what` it waited for and the result of `yet`.
    """
    deadline, pause_s = time.monotonic() + limit_s, 0.05
    while not (answer := holds()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {limit_s:.0f} s: {what} {yet()}")
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, 0.15)
    return answer


async def until(holds: Callable[[], object], *, limit_s: float = LIMIT_S) -> None:
    """Poll `holds` until it returns true, for changes in this loop without events. Raises TimeoutError."""
    async with asyncio.timeout(limit_s):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
