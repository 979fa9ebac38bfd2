"""Makes connections: name, TCP, proxy tunnel, TLS. Sockets notice a dead peer; a look-up delays no stop of the loop."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from functools import cache
from mmap import mmap
from typing import Any, Final, TypeAlias, cast

from aiohappyeyeballs import start_connection

from tfjob_operator.api.client.http.connection import BUFFER_BYTES, Connection
from tfjob_operator.api.client.http.daemon_thread import call_in_daemon_thread
from tfjob_operator.api.client.http.errors import ConnectError, TLSError
from tfjob_operator.api.client.http.messages import Origin, tunnel_request

Address: TypeAlias = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]
"""An address as `socket.getaddrinfo` tells it: family, type, protocol, name, and what sockets take, with the port."""
_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 9))
"""Seconds of silence before the first probe, seconds between probes, and how many may fail: the numbers of Go's dialer
(RF-29). Probes also keep an idle connection in the tables of what is between us and the server."""
_NEXT_ADDRESS_S: Final = 0.25
"""How long one address is tried before the next one is tried too: RFC 8305, for networks where IPv6 leads nowhere."""
_NO_LINGER: Final = struct.pack("ii", 1, 0)
"""What was not acknowledged is dropped with the connection. Otherwise the kernel would go on sending a write for minutes
after we gave it up, through a network that was cut, to a server to which somebody else has written since (LE-10)."""


async def look_up(host: str, port: int) -> list[Address]:
    """Return the addresses of a name, best first, without the loop's threads, for which its stop waits. Raises OSError."""
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
    """Connect by Happy Eyeballs (RFC 8305). Raises OSError; cancelling closes all that was begun."""
    if not addresses:
        raise OSError("no such host")
    return await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_S, socket_factory=_make_socket)


def _make_socket(address: Address) -> socket.socket:
    """Make a socket that finds a dead peer, but not a frozen proxy."""
    # asyncio turns Nagle's algorithm off only where the protocol is named.
    made = socket.socket(address[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    for option, value in _KEEP_ALIVE:
        if hasattr(socket, option):  # not every system has all of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


_MAX_TUNNEL_HEAD: Final = 16 * 1024
"""Longest response of a proxy to CONNECT."""


class Dialer:
    """Makes connections to one server, through `proxy` if there is one."""

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
        """Connect to one server. `tls_server_name` is the name in its certificate, where that is not its host.

        `connect_s` seconds are for TCP, tunnel and TLS together, without the lookup of the name. An idle connection closes
        after `keep_alive_s` seconds.
        """
        self._server = server
        self._proxy = proxy
        self._tls_server_name = tls_server_name or server.host
        self._connect_s = connect_s
        self._keep_alive_s = keep_alive_s
        self._buffer = memoryview(mmap(-1, BUFFER_BYTES))  # not a bytearray, which would touch every page
        self._tunnel_request = tunnel_request(server, proxy, user_agent) if proxy is not None else b""

    async def dial(self, context: ssl.SSLContext | None) -> Connection:
        """Make a connection, with `context` where TLS is spoken. Raises ConnectError; cancelling it closes what was begun."""
        first = self._proxy or self._server
        connection = Connection(self._buffer, context, self._keep_alive_s)
        limit = asyncio.timeout(None)  # begins when the name is known
        try:
            addresses = await look_up(first.host, first.port)
            async with limit:
                limit.reschedule(asyncio.get_running_loop().time() + self._connect_s)
                await self._open(connection, await connect(addresses), context)
        except (OSError, ValueError) as error:  # ValueError: a name that no host can have
            if limit.expired():
                raise ConnectError("connection timed out") from None
            # Its frames hold the future whose exception it is, and the 256 KB into which asyncio reads TLS. Such circles would
            # wait for the garbage collector, and with a server whose certificate has expired a hundred of them at once.
            error.__traceback__ = None
            kind = TLSError if isinstance(error, ssl.SSLError) else ConnectError
            raise kind(f"Cannot connect to {first.authority}: {str(error) or type(error).__name__}") from error
        return connection

    async def _open(self, connection: Connection, raw: socket.socket, context: ssl.SSLContext | None) -> None:
        """Make a connected socket the transport of `connection`; close it on failure."""
        try:
            await self._attach(connection, raw, context)
        except BaseException:
            connection.abort()  # a handshake that has not noticed yet that nobody waits for it
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
            connection.connection_made(encrypted)  # asyncio leaves that to its caller

    async def _adopt(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        raw: socket.socket,
        context: ssl.SSLContext | None,
        tls_name: str | None,
    ) -> None:
        """Let the loop drive a socket, with TLS if there is a name to verify."""
        tls = None if tls_name is None else context or _system_context()
        limit = None if tls is None else self._connect_s
        await asyncio.get_running_loop().create_connection(
            protocol, sock=raw, ssl=tls, server_hostname=tls_name, ssl_handshake_timeout=limit
        )


@cache
def _system_context() -> ssl.SSLContext:
    """Return a context that trusts the system's authorities. Reads its files, once."""
    return ssl.create_default_context()


class _Tunnel(asyncio.Protocol):
    """Asks a proxy for a tunnel. `opened` is the transport of the tunnel, or a ConnectError or OSError."""

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
            )  # a server waits for the client to begin with TLS
        elif self._transport is not None and not self.opened.done():
            self.opened.set_result(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionResetError("the proxy closed the connection"))

    def abort(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()

    def _end(self, error: Exception) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
