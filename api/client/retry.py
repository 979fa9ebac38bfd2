"""When something is tried again, as in client-go. Both rules are rows of the table in docs/design/retries.md.

- **The retry of a request** (`request_retry_delay`, beneath every verb): the same request again, because the server asked
  for it with a Retry-After, or because the connection of a GET was lost.
- **The retry of a change** (`retry_on_conflict`, for callers): read, change and write, again from the start after a
  conflict.
"""

from __future__ import annotations

import asyncio
import random as stdlib_random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from tfjob_operator.api.client.errors import (
    AlreadyExistsError,
    ConflictError,
    ConnectionLostError,
    StatusError,
    TooLargeResourceVersionError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tfjob_operator.api.client.http import Request

T = TypeVar("T")

MAX_REQUEST_RETRIES: Final = 10
"""WR-06: client-go gives up after ten."""

LOST_GET_DELAY_S: Final = 1.0
"""WR-06: a GET whose connection was lost is treated as if the server had asked for one second."""

LONGEST_RETRY_AFTER_S: Final = 30.0
"""If a server asks for more, the error goes to the caller, who can wait in a queue. API servers ask for one to ten seconds."""


def request_retry_delay(error: StatusError | ConnectionLostError, request: Request) -> float | None:
    """Return the seconds until a request that failed with `error` is sent again, or None where it must not be (WR-06)."""
    if isinstance(error, ConnectionLostError):
        return LOST_GET_DELAY_S if request.method == "GET" else None
    if isinstance(error, TooLargeResourceVersionError):
        return None  # the reflector's rule RF-04 answers this at once; waiting would not help
    delay = error.retry_after_s
    if delay is None or delay > LONGEST_RETRY_AFTER_S:
        return None
    return delay if error.code == 429 or error.code >= 500 else None


@dataclass(frozen=True, slots=True)
class Attempts:
    """How many attempts, and the seconds between them: `delay_s`, growing by `factor`, plus a random part of up to `jitter`."""

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
    random: Callable[[], float] = stdlib_random.random,
) -> T:
    """Call `write` until it raises no ConflictError, and return its result. It must read the object anew each time.

    Raises the last ConflictError, and any other error at once, also AlreadyExistsError: reading again does not free a name.
    `random` returns a float in [0, 1), as `random.random` does. Safe to cancel.
    """
    delay = attempts.delay_s
    for _ in range(attempts.count - 1):
        try:
            return await write()
        except AlreadyExistsError:
            raise
        except ConflictError:
            await asyncio.sleep(delay * (1 + attempts.jitter * random()))
            delay *= attempts.factor
    return await write()
