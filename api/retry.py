"""Which requests are repeated because the server asks for it, as client-go does."""

from __future__ import annotations

from typing import Final

MAX_REQUEST_RETRIES: Final = 10
"""Client-go gives up after ten retries."""
LONGEST_RETRY_AFTER_S: Final = 30.0
"""If a server asks for a longer delay, the error is returned to the caller, who can requeue. API servers ask for 1 to 10 s."""


def retry_delay(code: int, retry_after_s: float | None) -> float | None:
    """Return the delay in seconds before a request of any verb is repeated after an error response, None for no retry.

    `code` is the status code of the response, and `retry_after_s` its Retry-After header in seconds, None without one.
    """
    if retry_after_s is None or retry_after_s > LONGEST_RETRY_AFTER_S:
        return None
    return retry_after_s if code == 429 or code >= 500 else None
