"""HTTP/1.1 to one server over sockets.

Every wait has a timeout, and cancelling the waiting task closes the connection immediately. `Dialer` creates connections (name
resolution, TCP, proxy tunnel, TLS). The pool lends them: it reuses idle ones, limits their number, and lets further requests
wait in order. `connection` carries an exchange. Dialer, pool and connection convert socket errors to our exceptions.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from mmap import mmap
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, cast

from aiohappyeyeballs import start_connection

from tfjob_operator.api.client.http.connection import BUFFER_BYTES, Connection
from tfjob_operator.api.client.http.daemon_thread import call_in_daemon_thread
from tfjob_operator.api.client.http.errors import (
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
    TLSError,
    TransportError,
)
from tfjob_operator.api.client.http.messages import (
    Credentials,
    OnLeave,
    Origin,
    Request,
    RequestWriter,
    Response,
    Settings,
    tunnel_request,
    unchanged,
)
from tfjob_operator.api.client.http.responses import StreamResponse, UnzippedResponse, WholeResponse

Address: TypeAlias = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]
"""An address as returned by `socket.getaddrinfo`: family, type, protocol, name, and the socket address with the port."""
_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 9))
"""Seconds of inactivity before the first probe, seconds between probes, and the number of failed probes: the values of
Go's dialer. Probes also keep idle connections in the tables of NAT devices and load balancers."""
_NEXT_ADDRESS_S: Final = 0.25
"""The delay after which the next address is tried in parallel: RFC 8305, for networks with broken IPv6."""
_NO_LINGER: Final = struct.pack("ii", 1, 0)
"""Discards unacknowledged data with the connection. Otherwise the kernel would keep sending an abandoned write for minutes
across a network partition, after another client may have written."""


async def look_up(host: str, port: int) -> list[Address]:
    """Resolve a name to addresses, best first. Use no thread of the loop: it would delay the loop's shutdown.

    Raises OSError.
    """
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        family = socket.AF_INET if literal.version == 4 else socket.AF_INET6
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    def ask() -> list[Address]:
        return [*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)]

    return await call_in_daemon_thread(ask, "look-up")


async def connect(addresses: Sequence[Address]) -> socket.socket:
    """Connect by Happy Eyeballs (RFC 8305). Raises OSError; cancelling closes all open attempts."""
    if not addresses:
        raise OSError("no such host")
    return await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_S, socket_factory=_make_socket)


def _make_socket(address: Address) -> socket.socket:
    """Create a socket that detects a dead peer. It cannot detect a frozen proxy."""
    # asyncio disables Nagle's algorithm only if the protocol is named.
    made = socket.socket(address[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    for option, value in _KEEP_ALIVE:
        if hasattr(socket, option):  # not all systems have all of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


_MAX_TUNNEL_HEAD: Final = 16 * 1024
"""The longest response of a proxy to CONNECT."""


class Dialer:
    """Creates connections to one server, optionally through `proxy`."""

    def __init__(
        self,
        server: Origin,
        *,
        proxy: Origin | None = None,
        tls_server_name: str | None = None,
        user_agent: str = "",
        connect_s: float,
        keep_alive_s: float,
    ) -> None:
        """Connect to one server.

        `tls_server_name` is the name in the server's certificate if it differs from the server's host. `connect_s` seconds are
        for TCP, tunnel and TLS together, excluding name resolution. An idle connection is closed after `keep_alive_s` seconds.
        """
        self._server = server
        self._proxy = proxy
        self._tls_server_name = tls_server_name or server.host
        self._connect_s = connect_s
        self._keep_alive_s = keep_alive_s
        self._buffer = memoryview(mmap(-1, BUFFER_BYTES))  # not a bytearray, which would touch every page
        self._tunnel_request = tunnel_request(server, proxy, user_agent) if proxy is not None else b""

    async def dial(self, context: ssl.SSLContext | None) -> Connection:
        """Create a connection, with `context` for TLS. Raises ConnectError; cancelling closes what was opened."""
        first = self._proxy or self._server
        connection = Connection(self._buffer, context, self._keep_alive_s)
        limit = asyncio.timeout(None)  # set once the name is resolved
        try:
            addresses = await look_up(first.host, first.port)
            async with limit:
                limit.reschedule(asyncio.get_running_loop().time() + self._connect_s)
                await self._open(connection, await connect(addresses), context)
        except (OSError, ValueError) as error:  # ValueError: not a valid host name
            if limit.expired():
                raise ConnectError("connection timed out") from None
            # Its frames reference both asyncio's 256 KB TLS read buffer and the future that holds this exception. Such cycles
            # would wait for a garbage collection, and with an expired server certificate there would be a hundred at once.
            error.__traceback__ = None
            kind = TLSError if isinstance(error, ssl.SSLError) else ConnectError
            raise kind(f"Cannot connect to {first.authority}: {str(error) or type(error).__name__}") from error
        return connection

    async def _open(self, connection: Connection, raw: socket.socket, context: ssl.SSLContext | None) -> None:
        """Make a connected socket the transport of `connection`; close it on failure."""
        try:
            await self._attach(connection, raw, context)
        except BaseException:
            connection.abort()  # ends a handshake that nothing awaits any more
            raise

    async def _attach(self, connection: Connection, raw: socket.socket, context: ssl.SSLContext | None) -> None:
        proxy = self._proxy
        if proxy is None:
            await self._adopt(lambda: connection, raw, context, self._tls_server_name if self._server.tls else None)
            return
        proxy_name = proxy.host if proxy.tls else None
        if not self._server.tls:
            await self._adopt(lambda: connection, raw, context, proxy_name)
            return
        tunnel = _Tunnel(self._tunnel_request)
        await self._adopt(lambda: tunnel, raw, context, proxy_name)
        try:
            plain = await tunnel.opened
            encrypted = await asyncio.get_running_loop().start_tls(
                plain,
                connection,
                context or _system_context(),
                server_hostname=self._tls_server_name,
                ssl_handshake_timeout=self._connect_s,
            )
        except BaseException:
            tunnel.abort()
            raise
        if encrypted is not None:
            connection.connection_made(encrypted)  # asyncio does not call it here

    async def _adopt(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        raw: socket.socket,
        context: ssl.SSLContext | None,
        tls_name: str | None,
    ) -> None:
        """Add a socket to the loop, with TLS if there is a name to verify."""
        tls = None if tls_name is None else context or _system_context()
        limit = None if tls is None else self._connect_s
        await asyncio.get_running_loop().create_connection(
            protocol, sock=raw, ssl=tls, server_hostname=tls_name, ssl_handshake_timeout=limit
        )


@cache
def _system_context() -> ssl.SSLContext:
    """Return a context that trusts the system's CAs. Reads their files once."""
    return ssl.create_default_context()


class _Tunnel(asyncio.Protocol):
    """Requests a tunnel from a proxy. `opened` resolves to the tunnel's transport, or fails with ConnectError or OSError."""

    def __init__(self, request: bytes) -> None:
        self.opened: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, rest = self._answer.partition(b"\r\n\r\n")
        if not end and len(self._answer) <= _MAX_TUNNEL_HEAD:
            return
        version, _, status = head.partition(b"\r\n")[0].partition(b" ")
        if not end or not version.startswith(b"HTTP/1.") or not status[:3].isdigit():
            self._end(ConnectError("the proxy did not send an HTTP response"))
        elif status[:1] != b"2":
            self._end(ConnectError(f"the proxy returned {status.decode('latin-1')}"))
        elif rest:
            self._end(
                ConnectError("the proxy sent data after its CONNECT response")
            )  # TLS servers wait for the client to begin
        elif self._transport is not None and not self.opened.done():
            self.opened.set_result(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionResetError("the proxy closed the connection"))

    def abort(self) -> None:
        """Close the connection immediately."""
        if self._transport is not None:
            self._transport.abort()

    def _end(self, error: Exception) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)


class Pool:
    """A connection pool.

    The most recently used connection is reused first (LIFO), so that surplus ones become idle and close. Waiting
    requests are served in order.

    Invariants: at most `max_connections` connections are in use or being created; waiters are served in order; all idle
    connections have the newest `SSLContext`, so none has an old client certificate.
    """

    def __init__(
        self, dial: Callable[[ssl.SSLContext | None], Awaitable[Connection]], *, max_connections: int = 0, pool_s: float
    ) -> None:
        """`dial` creates a connection. `max_connections` 0 sets no limit; `pool_s` limits waiting and connecting together."""
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
        """Return an idle connection with `context`, if there is one and no request is waiting."""
        if self._taken >= self._max_connections:
            return None
        connection = self._pop(context)
        if connection is not None:
            self._taken += 1
        return connection

    async def acquire(self, context: ssl.SSLContext | None, until: float, *, fresh: bool = False) -> Connection:
        """Return a connection, a new one if `fresh`, by the time `until`. Raises RequestTimeoutError, ConnectError.

        Safe to cancel.
        """
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
        """Close all connections. Waiting requests get an error."""
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

    # Called by connections

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

    # Internal

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
            connection.abort()  # its certificate is outdated; `lost` removes it from the list
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
                self._leave()  # it was passed to us in the same turn of the loop
            raise

    def _leave(self) -> None:
        """Pass the slot on to the first waiter, or free it."""
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._taken -= 1


CONNECT_S: Final = 10.0
"""TCP and TLS together. Go's clients allow 10 s for TLS alone, and a reachable server responds in milliseconds."""
POOL_S: Final = 20.0
"""Waiting for a free connection and creating one, together. At the server's thousand writes per second such a wait means a
queue of twenty thousand requests, where no pool can help."""
KEEP_ALIVE_S: Final = 45.0
"""The maximum idle time in the pool: less than the 60 s after which common load balancers silently drop connections. A
request on an open connection costs us 0.3 ms and the server 1.0 ms; a TLS handshake costs several times that."""


class HttpTransport:
    """A pool of connections to one server. Use as an async context manager; leaving it closes all connections.

    Requests that must not queue behind others need their own transport; transports may share one `Settings`. Redirects
    are not followed, and cookies are not stored. Not safe to share between loops.
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
        """Take the settings of a server; does not connect yet. Raises ValueError for an invalid address.

        `user_agent` identifies the program. `max_connections` 0 sets no limit, which suits streams: each occupies a connection.
        32 connections are twice the number that keeps a server on two cores busy; opening another connection costs both sides 2
        ms. The other arguments are seconds.
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
        """See `Transport.send`.

        When this returns, a response that is not a stream is complete, and its connection is free again. Raises RuntimeError if
        the transport is not open, and ValueError for a malformed request: one whose path, query or content type contains a line
        break.
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
            # Only now: the wait for a connection may be long, and `on_leave` must check the state at the time of
            # sending.
            data = self._writer.write(on_leave(request), credentials)
        except BaseException:
            connection.abort()
            raise
        try:
            return await connection.exchange(request, data, until)
        except ConnectionLostError:
            # only a GET is resent automatically; for other methods only the caller knows whether that is safe.
            if request.method != "GET" or not connection.stale:
                raise
        connection = await pool.acquire(context, until, fresh=True)
        return await connection.exchange(request, data, until)
