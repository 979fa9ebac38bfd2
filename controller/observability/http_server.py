"""Serves /metrics, /healthz and /readyz: plain HTTP, one request per connection, on the main event loop.

This is intentional: a blocked loop fails its liveness probe, and gauges can be read without locks. Requests are parsed by
llhttp (`httptools`), which the client needs anyway. aiohttp would cost 11 MB and 0.1 s at import, a third of the process.

The number of connections of all clients, and the lifetime of each, are limited. Anyone who can reach the port may open
connections and send nothing, or half a request, or never read the response. Each connection uses a file descriptor; if none is
left, neither the kubelet nor our own client can connect. Anyone may also request the metrics in a loop. So metrics are rendered
at most once a second. At most METRICS_RATE pages a second are sent, to client addresses in turn. A client that requests them in
a loop delays neither the operator, nor the probes, nor Prometheus.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, cast

import httptools
import structlog
from prometheus_client import CollectorRegistry

from tfjob_operator.controller.observability import ListenError
from tfjob_operator.controller.observability.metrics import CONTENT_TYPE, exposition

Check = Callable[[], str | None]
"""Returns the problem, or None."""


METHODS: Final = ("GET", "HEAD")
METRICS: Final = "/metrics"
METRICS_CACHE_S: Final = 1.0
"""How long rendered metrics are reused: rendering blocks the loop for about 10 ms."""
METRICS_RATE: Final = 50
"""Metrics pages sent per second, 90 KB each; Prometheus scrapes twice a minute."""
TEXT: Final = "text/plain; charset=utf-8"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PageResponse:
    """An HTTP response."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = TEXT


class Pages:
    """The three pages. They take no parameters and require no authentication."""

    def __init__(
        self, registry: CollectorRegistry, *, healthz: Mapping[str, Check], readyz: Mapping[str, Check]
    ) -> None:
        """Serve the metrics of `registry` and the results of the checks."""
        self._registry = registry
        self._rendered: tuple[float, PageResponse] | None = None
        self.limiter = ScrapeLimiter()
        self._pages: dict[str, Callable[[], PageResponse]] = {
            METRICS: self._metrics,
            "/healthz": lambda: _check_response(healthz),
            "/readyz": lambda: _check_response(readyz),
        }

    def response(self, method: str, path: str) -> PageResponse:
        """Return the page at `path`. Does not raise: a page that crashes is logged and answered with 500."""
        page = self._pages.get(path)
        if page is None:
            return _plain(HTTPStatus.NOT_FOUND)
        if method not in METHODS:
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return page()
        except Exception:  # a bug in a page must not end the process, and the client needs a response
            log.exception("page_crashed", path=path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _metrics(self) -> PageResponse:
        now = asyncio.get_running_loop().time()
        if self._rendered is None or now - self._rendered[0] >= METRICS_CACHE_S:
            self._rendered = now, PageResponse(HTTPStatus.OK, exposition(self._registry), CONTENT_TYPE)
        return self._rendered[1]


class ScrapeLimiter:
    """Limits scrapes to METRICS_RATE a second; if several clients wait, they are served round-robin by address."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, dict[Callable[[], None], None]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._left = METRICS_RATE
        """Unused capacity of the current second."""

    def take(self, address: str, go: Callable[[], None]) -> None:
        """Call `go`: now, or when it is this address's turn."""
        self._set_timer()
        if self._left > 0 and not self._waiting:
            self._left -= 1
            go()
        else:
            self._waiting.setdefault(address, {})[go] = None

    def leave(self, address: str, go: Callable[[], None]) -> None:
        """Remove a waiting call: its client has disconnected."""
        waiting = self._waiting.get(address, {})
        waiting.pop(go, None)
        if not waiting:
            self._waiting.pop(address, None)

    def _next(self) -> None:
        self._timer = None
        if not self._waiting:
            self._left += 1
            if self._left < METRICS_RATE:
                self._set_timer()
            return
        address, waiting = self._waiting.popitem(last=False)
        go = next(iter(waiting))
        del waiting[go]
        if waiting:
            self._waiting[address] = waiting
        self._set_timer()
        go()

    def _set_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(1 / METRICS_RATE, self._next)

    def close(self) -> None:
        """Remove all waiting calls."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()


def _check_response(checks: Mapping[str, Check]) -> PageResponse:
    """Return `ok`, or 500 with the failing checks, in the API server's format."""
    results = {name: check() for name, check in checks.items()}
    wrong = [f"[-]{name} failed: {problem}\n" for name, problem in results.items() if problem is not None]
    if not wrong:
        return PageResponse(HTTPStatus.OK, b"ok")
    fine = [f"[+]{name} ok\n" for name, problem in results.items() if problem is None]
    return PageResponse(HTTPStatus.INTERNAL_SERVER_ERROR, "".join(fine + wrong).encode())


def _plain(status: HTTPStatus) -> PageResponse:
    return PageResponse(status, f"{status.value}: {status.phrase}".encode())


CONNECTION_TIMEOUT_S: Final = 10.0
"""Maximum lifetime of a connection. It carries one request, and this is Prometheus's default scrape timeout."""
MAX_CONNECTIONS: Final = 512
"""Maximum number of connections: half of the default limit of 1,024 file descriptors."""


class ConnectionLimiter:
    """The open connections of a server, limited in number.

    If there are too many, the oldest is closed: legitimate requests are served within milliseconds, so an old connection is
    useless. Rejecting the newest would let a flood lock out all clients.
    """

    def __init__(self) -> None:
        self._open: dict[PageProtocol, None] = {}
        self._connection_ended = asyncio.Event()

    def opened(self, connection: PageProtocol) -> None:
        """Add a connection; close the oldest if there are too many."""
        if len(self._open) >= MAX_CONNECTIONS:
            next(iter(self._open)).end()
        self._open[connection] = None

    def ended(self, connection: PageProtocol) -> None:
        """Remove a connection."""
        self._open.pop(connection, None)
        self._connection_ended.set()

    async def close(self, within_s: float) -> None:
        """Close all connections: immediately, or after `within_s` seconds if a response is being sent."""
        for connection in [each for each in self._open if not each.is_closing]:
            connection.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._open:
                    self._connection_ended.clear()
                    await self._connection_ended.wait()
        for connection in list(self._open):
            connection.end()


CLOSE_TIMEOUT_S: Final = 0.5
"""How long a response in progress may take during shutdown."""
BACKLOG: Final = 128
"""Connections waiting to be accepted: more than a scraper and a kubelet, so that other clients do not lock them out."""
MAX_REQUEST_BYTES: Final = 16_384
"""Maximum size of a request, including headers and a body. Prometheus and the kubelet send a few hundred bytes; common servers
accept 8 to 16 KB of headers."""


@dataclass(frozen=True, slots=True)
class PageServer:
    """Serves the pages of a process on `address` and `port`; an empty address means all interfaces."""

    registry: CollectorRegistry
    address: str
    port: int

    @asynccontextmanager
    async def serving(self, *, healthz: Mapping[str, Check], readyz: Mapping[str, Check]) -> AsyncIterator[None]:
        """Serve the registry's metrics and the results of the checks inside the block. Raises ListenError."""
        pages = Pages(self.registry, healthz=healthz, readyz=readyz)
        connections = ConnectionLimiter()
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: PageProtocol(pages, connections), self.address or None, self.port, backlog=BACKLOG
            )
        except OSError as error:
            raise ListenError(f"cannot listen on {self.address or '*'}:{self.port}: {error}") from error
        try:
            yield
        finally:
            server.close()
            await connections.close(CLOSE_TIMEOUT_S)
            pages.limiter.close()


class PageProtocol(asyncio.Protocol):
    """One connection: reads one request, responds and closes. Anything but HTTP gets a 400, which is not logged."""

    def __init__(self, pages: Pages, connections: ConnectionLimiter) -> None:
        self._pages = pages
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._received = 0
        self._answered = False
        self._path = self._method = self._peer = ""
        self._transport: asyncio.Transport | None = None
        self._limit: asyncio.TimerHandle | None = None

    @property
    def is_closing(self) -> bool:
        """True once the response is being sent."""
        return self._transport is None or self._transport.is_closing()

    def end(self) -> None:
        """Close the connection immediately, dropping unsent data."""
        self._connections.ended(self)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport and start the timeout."""
        self._connections.opened(self)
        self._limit = asyncio.get_running_loop().call_later(CONNECTION_TIMEOUT_S, self.end)
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if peer else ""

    def connection_lost(self, _exc: Exception | None) -> None:
        """Release the transport, the parser and the waiting call."""
        self._transport = None
        self._connections.ended(self)
        if self._limit is not None:
            self._limit.cancel()
        self._pages.limiter.leave(self._peer, self._respond)
        del self._parser  # a reference cycle

    def data_received(self, data: bytes) -> None:
        """Parse received data; reject requests that are too long or not HTTP."""
        if self._answered:
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # upgrade requests are ignored: the page is served
        except httptools.HttpParserError:
            self._refuse()
        if self._received > MAX_REQUEST_BYTES:
            self._refuse()

    def on_url(self, url: bytes) -> None:
        """Append a part of the URL."""
        self._url += url

    def on_message_complete(self) -> None:
        """Handle a complete request."""
        if self._answered:
            return  # a second request on a closing connection
        self._method = self._parser.get_method().decode()
        try:
            self._path = (httptools.parse_url(self._url).path or b"/").decode()
        except httptools.HttpParserInvalidURLError:
            self._refuse()
            return
        if self._path == METRICS:
            self._pages.limiter.take(self._peer, self._respond)
        else:
            self._respond()

    def _respond(self) -> None:
        if self._transport is not None:
            self._send(self._pages.response(self._method, self._path), with_body=self._method != "HEAD")

    def _refuse(self) -> None:
        self._send(PageResponse(HTTPStatus.BAD_REQUEST, b"400: Bad Request"))

    def _send(self, response: PageResponse, *, with_body: bool = True) -> None:
        if self._answered or self._transport is None:
            return
        self._answered = True
        head = [
            f"HTTP/1.1 {response.status.value} {response.status.phrase}",
            f"Content-Type: {response.content_type}",
            f"Content-Length: {len(response.body)}",
            "Connection: close",  # a new connection every few seconds is cheap
        ]
        if response.status is HTTPStatus.METHOD_NOT_ALLOWED:
            head.append(f"Allow: {', '.join(METHODS)}")
        self._transport.write("\r\n".join([*head, "", ""]).encode() + (response.body if with_body else b""))
        self._transport.close()
