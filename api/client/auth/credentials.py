"""The client's credentials, which are reloaded before tokens and certificates expire.

Credentials that can change are read from files or from the output of a credential plugin. They are read by blocking calls in a
separate thread (`RefreshedCredentials`). Requests keep using the last value; they wait only if no value exists, or if the
server would reject the value. No error quotes what was read.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

import structlog

from tfjob_operator.api.access import AccessError
from tfjob_operator.api.client.http.daemon_thread import call_in_daemon_thread
from tfjob_operator.api.client.http.errors import CredentialsError
from tfjob_operator.api.client.http.messages import Credentials

READ_LIMIT_S: Final = 60.0
"""How long a request waits for the first credentials: plugins of cloud providers log in over the network, which takes
seconds."""
RETRY_S: Final = 10.0
"""The minimum time between two reads: a plugin is a process, and one that returns expired tokens must not run for each
request."""
STALE: Final = 1.25
"""Credentials older than `fresh_s` times this have expired: `fresh_s` is four fifths of a known lifetime."""
log = structlog.get_logger(__name__)


class RefreshedCredentials:
    """Credentials that are reloaded when they are no longer fresh, or when the server has rejected them.

    Invariants: at most one read runs at a time. After a failed read, the last good value stays in use: if the server rejects
    it, that error says more than ours. A request waits for a read only if the current value is missing, was rejected, or is old
    enough to have expired.
    """

    def __init__(
        self,
        read: Callable[[], Credentials],
        *,
        first: Credentials | None = None,
        call: Callable[[Callable[[], Credentials], str], asyncio.Future[Credentials]] = call_in_daemon_thread,
    ) -> None:
        """`read` may block and raise anything; only an AccessError is quoted, since others could contain a secret.

        `first` is a value that was read just now; without it, the first request reads one. `call` runs `read` outside the event
        loop.
        """
        self._read = read
        self._call = call
        self._credentials = first
        self._fresh_s = -math.inf if first is None else first.fresh_s
        self._stale_at = math.inf
        self._due: float | None = None  # counted from the first use: before that there may be no running loop
        self._reading: asyncio.Future[Credentials] | None = None
        self._began_at = -math.inf
        self._failure = ""

    async def get(self) -> Credentials:
        """See `CredentialSource.get`. Safe to cancel: the read continues for other requests."""
        now = asyncio.get_running_loop().time()
        if self._due is None:
            self._due = now + self._fresh_s
            self._stale_at = now + self._fresh_s * STALE
        if now >= self._due and self._reading is None:
            self._began_at = now
            self._reading = self._call(self._read, "credentials")
            self._reading.add_done_callback(self._finish)
        if (self._credentials is None or now >= self._stale_at) and self._reading is not None:
            await asyncio.wait({self._reading}, timeout=READ_LIMIT_S)
        if self._credentials is None:
            raise CredentialsError(self._failure or f"no credentials after {READ_LIMIT_S:g} s")
        return self._credentials

    def refused(self) -> None:
        """See `CredentialSource.refused`.

        The next request reloads the credentials, but not within `RETRY_S` of the last read.
        """
        if self._due is not None:
            self._due = min(self._due, self._began_at + RETRY_S)
            self._stale_at = -math.inf

    def _finish(self, reading: asyncio.Future[Credentials]) -> None:
        self._reading = None
        now = reading.get_loop().time()
        error = reading.exception()
        if error is None:
            self._credentials = reading.result()
            self._due = now + max(self._credentials.fresh_s, RETRY_S)
            self._stale_at = now + max(self._credentials.fresh_s * STALE, RETRY_S)
            return
        self._due = now + RETRY_S
        self._failure = error.message if isinstance(error, AccessError) else f"a {type(error).__name__}"
        if self._credentials is not None:
            log.warning("credentials_not_refreshed", error=self._failure)
