"""HTTP/1.1 to one server, on sockets.

Every wait has a limit, and cancelling the task that waits closes the connection at once. `dialer` makes connections, `pool`
lends them out, `connection` carries an exchange. Each of them turns the errors of its sockets into ours.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

from tfjob_operator.api.client.http.dialer import Dialer
from tfjob_operator.api.client.http.errors import ConnectionLostError, TransportError
from tfjob_operator.api.client.http.messages import unchanged
from tfjob_operator.api.client.http.origin import Origin
from tfjob_operator.api.client.http.pool import Pool
from tfjob_operator.api.client.http.request_bytes import RequestWriter
from tfjob_operator.api.client.http.unzip import UnzippedResponse

if TYPE_CHECKING:
    from types import TracebackType

    from tfjob_operator.api.client.http.credentials import Credentials
    from tfjob_operator.api.client.http.messages import OnLeave, Request, Response
    from tfjob_operator.api.client.http.responses import StreamResponse, WholeResponse
    from tfjob_operator.api.client.http.settings import Settings

CONNECT_S: Final = 10.0
"""TCP and TLS together; Go's clients give TLS alone 10 s (RF-29), and a server that can be reached responds in milliseconds."""

POOL_S: Final = 20.0
"""The wait for a free connection, and making one, together. At the server's thousand writes a second a line this long is
twenty thousand requests, which no pool can help."""

KEEP_ALIVE_S: Final = 45.0
"""How long an idle connection waits in the pool: less than the 60 s after which common load balancers forget it without a word.
Kept alive a request costs us 0.3 ms and the server 1.0 ms; a TLS handshake before it costs several times that."""


class HttpTransport:
    """A pool of connections to one server. Use as an async context manager; leaving it closes all connections.

    Requests that must not wait behind others get a transport of their own; all transports may share one `Settings`.
    Redirects are not followed, and cookies are not kept. Not safe to share between loops.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        max_connections: int = 32,
        user_agent: str = "",
        connect_s: float = CONNECT_S,
        pool_s: float = POOL_S,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        """Take the settings of a server; nothing is opened yet. Raises ValueError for an invalid address.

        `user_agent` names the program to the server. `max_connections` 0 sets no limit, which suits streams: each holds a
        connection as long as it lives. 32 is twice what keeps a server on two cores busy; each more costs both sides two
        milliseconds to open. The other numbers are seconds.
        """
        server = Origin.of(settings.server)
        proxy = Origin.of(settings.proxy) if settings.proxy else None
        self._credentials = settings.credentials
        self._writer = RequestWriter(server, proxy=proxy, user_agent=user_agent)
        self._dialer = Dialer(
            server,
            proxy=proxy,
            tls_server_name=settings.tls_server_name,
            user_agent=user_agent,
            connect_s=connect_s,
            keep_alive_s=keep_alive_s,
        )
        self._max_connections = max_connections
        self._pool_s = pool_s
        self._pool: Pool | None = None

    async def __aenter__(self) -> Self:
        self._pool = Pool(self._dialer.dial, max_connections=self._max_connections, pool_s=self._pool_s)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.aclose()

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        """See `Transport.send`. A response that is no stream has arrived completely by then, and its connection is free.

        Raises RuntimeError when the transport is not open, and ValueError for a malformed request: one whose path, query or
        content type would end its line.
        """
        pool = self._pool
        if pool is None:
            raise RuntimeError("the transport is not open: use it as an async context manager")
        credentials = await self._credentials.get()
        try:
            response = await self._exchange(pool, request, credentials, on_leave)
        except TransportError as error:
            error.request = error.request or str(request)
            raise
        if response.status == 401:
            self._credentials.refused()
        if request.gzip and response.headers.get("Content-Encoding") == "gzip":
            return UnzippedResponse(response)
        return response

    async def _exchange(
        self, pool: Pool, request: Request, credentials: Credentials, on_leave: OnLeave
    ) -> WholeResponse | StreamResponse:
        until = asyncio.get_running_loop().time() + request.total_s
        context = credentials.ssl_context
        connection = pool.take(context) or await pool.acquire(context, until)
        try:
            # Only now, since the wait for a connection may be long and `on_leave` asks what is true when the bytes leave.
            data = self._writer.write(on_leave(request), credentials)
        except BaseException:
            connection.abort()
            raise
        try:
            return await connection.exchange(request, data, until)
        except ConnectionLostError:
            # WR-06: nothing but a GET goes out again unasked; whether it does harm only the caller knows.
            if request.method != "GET" or not connection.stale:
                raise
        connection = await pool.acquire(context, until, fresh=True)
        return await connection.exchange(request, data, until)
