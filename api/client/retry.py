"""When the same request is sent again, as in client-go: the server asked for it, or the connection of a GET was lost.

A row of the table in docs/design/retries.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from tfjob_operator.api.client.errors import (
    ConnectionLostError,
    StatusError,
    TooLargeResourceVersionError,
)

if TYPE_CHECKING:
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
