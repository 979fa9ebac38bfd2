"""Trying again after a conflict (WR-01): read, change, write, and when somebody was faster, from the start."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from tfjob_operator.api.client.errors import AlreadyExistsError, ConflictError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often, and how long between: `delay_s`, then each time `factor` times as long, plus up to `jitter` of it."""

    count: int
    delay_s: float
    factor: float
    jitter: float


FEW_WRITERS: Final = Attempts(count=5, delay_s=0.01, factor=1.0, jitter=0.1)
"""WR-01, client-go's DefaultRetry: for objects that some clients write now and then."""

BUSY_WRITER: Final = Attempts(count=4, delay_s=0.01, factor=5.0, jitter=0.1)
"""WR-01, client-go's DefaultBackoff: for objects that another client writes all the time, such as a pod's status."""


async def retry_on_conflict(
    write: Callable[[], Awaitable[T]],
    attempts: Attempts = FEW_WRITERS,
    *,
    chance: Callable[[], float] = random.random,
) -> T:
    """Call `write` until it meets no conflict, and return what it returns. It has to read the object again each time.

    Raises the last ConflictError, and any other error at once; AlreadyExistsError is one of those, for reading again does not
    free a name. `chance` answers floats in [0, 1). Safe to cancel.
    """
    delay = attempts.delay_s
    for _ in range(attempts.count - 1):
        try:
            return await write()
        except AlreadyExistsError:
            raise
        except ConflictError:
            await asyncio.sleep(delay * (1 + attempts.jitter * chance()))
            delay *= attempts.factor
    return await write()
