"""HTTP to one API server: the one-method `Transport` seam, and its implementation on aiohttp.

Everything above sends a `Request` and reads a `Response`; tests put a model server behind the same method. Here socket
failures become our errors, every wait has a limit, and cancelling the task that waits closes the connection at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

import aiohttp

from api.client.errors import ConnectError, ConnectionLostError, RequestTimeoutError, TLSError, TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from types import TracebackType

    from api.client.config import Settings

CONNECT_TIMEOUT_S = 10.0
"""TCP and TLS together; client-go gives TLS alone 10 s (RF-29), and an API server within reach answers in milliseconds."""

KEEP_ALIVE_S = 60.0
"""How long an idle connection waits in the pool. Kept alive a pod costs the server 1.0 ms, on a fresh TLS one far more."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `total_s` limits the whole exchange (None: no limit), `idle_s` every single read."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    total_s: float | None = 30.0
    idle_s: float = 30.0

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
        """Give the connection back if the body was read to its end, else close it. Safe to call twice."""
        ...


class Transport(Protocol):
    """The seam between us and HTTP."""

    async def send(self, request: Request) -> Response:
        """Send a request and wait for the head of the answer, whatever its status. Raises TransportError."""
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
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _translate(error, self._request) from error

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _translate(error, self._request) from error

    def close(self) -> None:
        # release() keeps the connection only when the body was read to its end; a watch that we leave early is closed.
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


class AiohttpTransport:
    """A pool of connections to one server. Use as an async context manager; leaving it closes all connections.

    Watches and leases get a transport of their own, so that they never queue behind creates.
    """

    def __init__(self, settings: Settings, *, max_connections: int = 64, user_agent: str = "tfjob-operator") -> None:
        self._settings = settings
        self._max_connections = max_connections
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # No cookies and no decompression: an API server on the same network sends plain JSON faster than gzip.
        connector = aiohttp.TCPConnector(
            limit=self._max_connections,
            keepalive_timeout=KEEP_ALIVE_S,
            ssl=self._settings.ssl_context if self._settings.ssl_context is not None else True,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": self._user_agent, "Accept": "application/json", "Accept-Encoding": "identity"},
            skip_auto_headers={"Content-Type"},
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
        headers: dict[str, str] = {}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        authorization = await self._settings.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        try:
            response = await self._session.request(
                request.method,
                self._settings.server + request.path,
                params=request.query,
                data=request.body,
                headers=headers,
                allow_redirects=False,
                proxy=self._settings.proxy,
                server_hostname=self._settings.tls_server_name,
                timeout=aiohttp.ClientTimeout(
                    total=request.total_s,
                    sock_connect=CONNECT_TIMEOUT_S,
                    sock_read=request.idle_s,
                ),
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _translate(error, request) from error
        return AiohttpResponse(request, response)


def _translate(error: Exception, request: Request) -> TransportError:
    """The one place where socket and aiohttp failures become ours."""
    text = str(error) or type(error).__name__
    name = str(request)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return ConnectError(f"no connection within {CONNECT_TIMEOUT_S:g} s", request=name)
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return RequestTimeoutError("no answer in time", request=name)
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError)):
        return TLSError(text, request=name)
    if isinstance(error, aiohttp.ClientConnectorError):
        return ConnectError(text, request=name)
    return ConnectionLostError(text, request=name)
