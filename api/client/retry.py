"""When something is tried again, as client-go does it. Both rules are named in the table of docs/design/retries.md.

- **The retry of a request** (`request_retry_delay`; `Exchange` does it beneath every verb): the same request again, because the
  server asked for that with a Retry-After, or because a GET lost its connection.
- **The retry of a change** (`retry_on_conflict`; the caller does it): read, change, write, and from the start when somebody
  else was faster.
"""

from __future__ import annotations

import asyncio
import random
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
"""A server that asks for more gets it from the caller, who has a queue to wait in. API servers ask for one to ten seconds."""


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
