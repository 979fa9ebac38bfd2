"""HTTP to one API server: the one-method `Transport` seam, and its implementation on aiohttp.

Everything above sends a `Request` and reads a `Response`; tests put a model server behind the same method. Here socket
failures become our errors, every wait has a limit, and cancelling the task that waits closes the connection at once.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, Self
from urllib.parse import urlencode

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from api.client.errors import ConnectError, ConnectionLostError, RequestTimeoutError, TLSError, TransportError
from api.client.sockets import kept_alive_socket, look_up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from types import TracebackType

    from api.client.config import Settings
    from api.client.credentials import Credentials

CONNECT_S: Final = 10.0
"""TCP and TLS together; client-go gives TLS alone 10 s (RF-29), and an API server within reach answers in milliseconds."""

POOL_S: Final = 20.0
"""The wait for a free connection, and making one, together. At the server's thousand writes a second a line this long is
twenty thousand requests, for which no pool is the right place."""

KEEP_ALIVE_S: Final = 45.0
"""How long an idle connection waits in the pool: less than the 60 s after which common load balancers forget it without a word.
Kept alive a pod costs us 0.3 ms and the server 1.0 ms; a TLS handshake before it costs several times that."""

_READ_BUFFER: Final = 256 * 1024
"""What is taken from a stream before its reader is waited for: some fifty pods, so that a burst is one batch."""

_FAILURES: Final = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request.

    `total_s` limits the whole exchange, from the wait for a free connection to the last byte of the answer. With `idle_s` the
    answer is a stream, which has no end: then `total_s` limits what comes before its head, and `idle_s` each silence after.
    Neither is ever infinite, so no exchange can hang.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    total_s: float = 40.0
    idle_s: float | None = None

    @property
    def stream(self) -> bool:
        """Whether the answer is a stream."""
        return self.idle_s is not None

    def target(self) -> str:
        """The path with the query, encoded."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Response(Protocol):
    """An answer whose head has arrived. Must be closed, whatever happens."""

    @property
    def status(self) -> int:
        """The HTTP status code."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; names are matched without regard to case."""
        ...

    async def body(self) -> bytes:
        """Read the whole body. Raises TransportError."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Read the body as it arrives, in pieces of any size. Raises TransportError when the stream breaks."""
        ...

    def close(self) -> None:
        """Give the connection back if the body was read to its end, else close it at once. Safe to call twice."""
        ...


class Transport(Protocol):
    """One server, reached by HTTP."""

    async def send(self, request: Request) -> Response:
        """Send a request and wait for the head of the answer, whatever its status. Raises TransportError.

        Cancelling it closes the connection in use at once.
        """
        ...


class AiohttpResponse:
    """`Response` over aiohttp."""

    __slots__ = ("_request", "_response")

    def __init__(self, request: Request, response: aiohttp.ClientResponse) -> None:
        self._request = request
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def body(self) -> bytes:
        try:
            return await self._response.read()
        except _FAILURES as error:
            raise _translate(error, self._request) from _harmless(error)

    def chunks(self) -> AsyncIterator[bytes]:
        # Not a generator: one that is left early is finished by a task of the loop's, which nobody here would own.
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._response.content.readany()
        except _FAILURES as error:
            raise _translate(error, self._request) from _harmless(error)
        if not chunk:
            raise StopAsyncIteration
        return chunk

    def close(self) -> None:
        # A body that was read to its end has given its connection back already. Any other connection is cut: an orderly end
        # of TLS waits for the peer's, and one that is gone never sends it.
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()


class AiohttpTransport:
    """A pool of connections to one server. Use as an async context manager; leaving it closes all connections.

    Watches and leases each get a transport of their own, so that they never queue behind creates. All of them may share one
    `Settings`. Redirects are not followed, and cookies not kept.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        max_connections: int = 64,
        user_agent: str = "tfjob-operator",
        connect_s: float = CONNECT_S,
        pool_s: float = POOL_S,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        """`max_connections` 0 sets no limit, which suits watches: each holds one as long as it lives. 64 is four times what
        keeps an API server on two cores busy. The other numbers are seconds. Nothing is opened yet.
        """
        self._settings = settings
        self._max_connections = max_connections
        self._user_agent = user_agent
        self._connect_s = connect_s
        self._pool_s = pool_s
        self._keep_alive_s = keep_alive_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            limit=self._max_connections,
            keepalive_timeout=self._keep_alive_s,
            resolver=_Resolver(),
            socket_factory=kept_alive_socket,
        )
        # No decompression: an API server on the same network sends plain JSON faster than gzip.
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": self._user_agent, "Accept": "application/json", "Accept-Encoding": "identity"},
            skip_auto_headers={"Content-Type"},
            read_bufsize=_READ_BUFFER,
        )
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, request: Request) -> Response:
        """See `Transport.send`. Raises RuntimeError when the transport is not open."""
        if self._session is None:
            raise RuntimeError("the transport is not open: use it as an async context manager")
        credentials = await self._settings.credentials.get()
        try:
            if request.idle_s is None:
                response = await self._start(self._session, request, credentials, request.total_s)
            else:  # aiohttp's own limit would go on over the body
                async with asyncio.timeout(request.total_s):
                    response = await self._start(self._session, request, credentials, None)
        except _FAILURES as error:
            raise _translate(error, request) from _harmless(error)
        if response.status == 401:
            self._settings.credentials.refused()
        return AiohttpResponse(request, response)

    async def _start(
        self, session: aiohttp.ClientSession, request: Request, credentials: Credentials, total_s: float | None
    ) -> aiohttp.ClientResponse:
        headers = {} if request.body is None else {"Content-Type": request.content_type}
        if credentials.authorization is not None:
            headers["Authorization"] = credentials.authorization
        return await session.request(
            request.method,
            URL(self._settings.server + request.target(), encoded=True),
            data=request.body,
            headers=headers,
            allow_redirects=False,
            proxy=self._settings.proxy,
            ssl=credentials.ssl_context or True,  # the pool tells connections apart by it: a new certificate, a new one
            server_hostname=self._settings.tls_server_name,
            middlewares=(_send_once,) if request.method in _RESENT else None,
            timeout=aiohttp.ClientTimeout(
                total=total_s, connect=self._pool_s, sock_connect=self._connect_s, sock_read=request.idle_s
            ),
        )


_RESENT: Final = frozenset({"PUT", "DELETE"})
"""The methods of changes that aiohttp takes for safe to send again when a kept-alive connection turns out to be dead."""


class _NotResentError(aiohttp.ClientError):
    """Hides a lost connection from aiohttp, which would send a PUT or DELETE again and let its answer tell of a conflict."""


async def _send_once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Middleware for what changes something: only the caller knows whether sending it twice does no harm (WR-06)."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise  # never resent
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _NotResentError(str(error)) from error


class _Resolver(AbstractResolver):
    """Lets aiohttp ask us for addresses."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST)
            for kind, address in await look_up(host, port, family)
        ]

    async def close(self) -> None:
        """Nothing is held."""


def _harmless(error: Exception) -> Exception | None:
    """The error as a cause, unless its repr quotes the request's headers, and so our token."""
    return None if isinstance(error, aiohttp.ClientResponseError) else error


def _translate(error: Exception, request: Request) -> TransportError:
    """The one place where socket and aiohttp failures become ours."""
    text = str(error) or type(error).__name__
    kind: type[TransportError] = ConnectionLostError
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        kind, text = ConnectError, "no connection in time"
    elif isinstance(error, TimeoutError):
        kind, text = RequestTimeoutError, "no answer in time"
    elif isinstance(error, aiohttp.ClientHttpProxyError):
        kind, text = ConnectError, f"the proxy answered {error.status} {error.message}"
    elif isinstance(error, aiohttp.ClientResponseError):
        kind, text = TransportError, f"the answer is not HTTP: {error.message}"
    elif isinstance(error, aiohttp.ClientSSLError):
        kind = TLSError
    elif isinstance(error, aiohttp.ClientConnectorError):
        kind = ConnectError
    return kind(text, request=str(request))
