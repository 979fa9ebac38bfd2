"""HTTP/1.1 to one server, on sockets.

Every wait has a limit, and cancelling the task that waits closes the connection at once. `dialer` makes connections, the pool
lends them out (idle ones are reused, their number is limited, further requests wait in line), `connection` carries an exchange.
Each of them turns the errors of its sockets into ours.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

from tfjob_operator.api.client.http.connection import Connection
from tfjob_operator.api.client.http.dialer import Dialer
from tfjob_operator.api.client.http.errors import ConnectError, ConnectionLostError, RequestTimeoutError, TransportError
from tfjob_operator.api.client.http.messages import (
    Credentials,
    OnLeave,
    Origin,
    Request,
    RequestWriter,
    Response,
    Settings,
    unchanged,
)
from tfjob_operator.api.client.http.responses import StreamResponse, UnzippedResponse, WholeResponse


class Pool:
    """Lends out connections.

    The connection that was used last is reused first (LIFO), so that surplus ones become idle and close. Waiting requests
    are served first come, first served.

    Invariants: at most `max_connections` connections are lent out or being made; waiters are served in order; all idle
    connections have the newest `SSLContext`, so none has an old client certificate.
    """

    def __init__(
        self, dial: Callable[[ssl.SSLContext | None], Awaitable[Connection]], *, max_connections: int = 0, pool_s: float
    ) -> None:
        """`dial` makes a connection. `max_connections` 0 is no limit; a place and a connection come within `pool_s` seconds."""
        self._dial = dial
        self._max_connections = max_connections or float("inf")
        self._pool_s = pool_s
        self._taken = 0
        self._idle: list[Connection] = []
        self._line: deque[asyncio.Future[None]] = deque()
        self._open: set[Connection] = set()
        self._limits: set[asyncio.Timeout] = set()
        self._is_closed = False
        self._all_closed: asyncio.Future[None] | None = None

    def take(self, context: ssl.SSLContext | None) -> Connection | None:
        """Lend out an idle connection that was made with `context`, if there is one and nobody waits in line."""
        if self._taken >= self._max_connections:
            return None
        connection = self._pop(context)
        if connection is not None:
            self._taken += 1
        return connection

    async def acquire(self, context: ssl.SSLContext | None, until: float, *, fresh: bool = False) -> Connection:
        """Lend a connection, new if `fresh`, by the time `until`. Raises RequestTimeoutError, ConnectError. Safe to cancel."""
        if self._is_closed:
            raise ConnectError("the transport was closed")
        now = asyncio.get_running_loop().time()
        limit = asyncio.timeout_at(min(until, now + self._pool_s))
        self._limits.add(limit)
        try:
            async with limit:
                return await self._acquire(context, fresh=fresh)
        except TimeoutError:
            if self._is_closed:
                raise ConnectError("the transport was closed") from None
            if until < now + self._pool_s:
                raise RequestTimeoutError("timed out waiting for the response") from None
            raise ConnectError("connection timed out") from None
        finally:
            self._limits.discard(limit)

    async def aclose(self) -> None:
        """Close all connections and end all waits. Whoever waits gets an error."""
        self._is_closed = True
        loop = asyncio.get_running_loop()
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(loop.time())
        for connection in [*self._open]:
            connection.fail(ConnectionLostError("the transport was closed"))
        if self._open:
            self._all_closed = loop.create_future()
            await self._all_closed

    # What a connection does

    def released(self, connection: Connection) -> None:
        """See `Owner.released`."""
        self._idle.append(connection)
        self._leave()

    def lost(self, connection: Connection) -> None:
        """See `Owner.lost`."""
        if connection in self._idle:
            self._idle.remove(connection)
        else:
            self._leave()

    def closed(self, connection: Connection) -> None:
        """See `Owner.closed`."""
        self._open.discard(connection)
        if self._all_closed is not None and not self._open and not self._all_closed.done():
            self._all_closed.set_result(None)

    # The rest

    async def _acquire(self, context: ssl.SSLContext | None, *, fresh: bool) -> Connection:
        await self._enter()
        try:
            connection = None if fresh else self._pop(context)
            return connection or await self._make(context)
        except BaseException:
            self._leave()
            raise

    async def _make(self, context: ssl.SSLContext | None) -> Connection:
        connection = await self._dial(context)
        if connection.gone:
            raise ConnectError("the server closed the connection")
        if self._is_closed:
            connection.abort()
            raise ConnectError("the transport was closed")
        connection.owner = self
        self._open.add(connection)
        return connection

    def _pop(self, context: ssl.SSLContext | None) -> Connection | None:
        while self._idle:
            connection = self._idle[-1]
            if connection.context is context:
                return self._idle.pop()
            connection.abort()  # it proves what we no longer are; leaves the list by `lost`
        return None

    async def _enter(self) -> None:
        """Wait for one of `max_connections`, in order."""
        if self._taken < self._max_connections:
            self._taken += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._line.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self._leave()  # it was given to us in the same turn
            raise

    def _leave(self) -> None:
        """Pass the place on to the first waiter, else free it."""
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._taken -= 1


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
