"""Serves /metrics, /healthz and /readyz: plain HTTP, one request a connection, on the loop that does the work.

That is on purpose: a loop that is stuck does not answer its liveness probe, and gauges can be read without locks. Requests are
parsed by llhttp (`httptools`), which the client needs anyway. Importing aiohttp costs 11 MB and 0.1 s, a third of the process,
for three pages without arguments.

Connections are few and short, whoever opens them (D11). Anyone who reaches the port can open connections and send nothing, or
half of a request, or never read the response. Each holds a file descriptor; when these run out, neither the kubelet nor our own
client can connect. Anyone can also ask for the metrics in a loop. So these are rendered once a second, and METRICS_RATE pages
are sent in a second, to addresses in turn: neither the work nor the probes nor an honest Prometheus waits for such a client.
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

from tfjob_operator.controller.observability.metrics import CONTENT_TYPE, exposition

Check = Callable[[], str | None]
"""Returns what is wrong, or None."""


METHODS: Final = ("GET", "HEAD")
METRICS: Final = "/metrics"
METRICS_KEPT_S: Final = 1.0
"""How long a rendered page of metrics is sent: rendering takes some 10 ms of the loop."""
METRICS_RATE: Final = 50
"""Pages of metrics that are sent in a second, 90 KB each: Prometheus asks twice a minute."""
TEXT: Final = "text/plain; charset=utf-8"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PageResponse:
    """A status and a body."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = TEXT


class Pages:
    """The three pages. They take no arguments and need no authentication."""

    def __init__(
        self, registry: CollectorRegistry, *, healthz: Mapping[str, Check], readyz: Mapping[str, Check]
    ) -> None:
        """Serve the metrics of `registry` and the results of these checks."""
        self._registry = registry
        self._rendered: tuple[float, PageResponse] | None = None
        self.turns = Turns()
        self._pages: dict[str, Callable[[], PageResponse]] = {
            METRICS: self._metrics,
            "/healthz": lambda: _verdict(healthz),
            "/readyz": lambda: _verdict(readyz),
        }

    def response(self, method: str, path: str) -> PageResponse:
        """Return the page at `path`. Raises nothing: a page that crashes is logged, and answered with 500."""
        page = self._pages.get(path)
        if page is None:
            return _plain(HTTPStatus.NOT_FOUND)
        if method not in METHODS:
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return page()
        except Exception:  # a bug in one page must neither end the process nor leave the caller without a response
            log.exception("page_crashed", path=path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _metrics(self) -> PageResponse:
        now = asyncio.get_running_loop().time()
        if self._rendered is None or now - self._rendered[0] >= METRICS_KEPT_S:
            self._rendered = now, PageResponse(HTTPStatus.OK, exposition(self._registry), CONTENT_TYPE)
        return self._rendered[1]


class Turns:
    """Hands out METRICS_RATE turns a second: at once, or when several wait, to one address after the other."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, dict[Callable[[], None], None]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._left = METRICS_RATE
        """Turns of this second that nobody has had to wait for."""

    def take(self, address: str, go: Callable[[], None]) -> None:
        """Call `go`: at once, or when it is this address's turn."""
        self._wind()
        if self._left > 0 and not self._waiting:
            self._left -= 1
            go()
        else:
            self._waiting.setdefault(address, {})[go] = None

    def leave(self, address: str, go: Callable[[], None]) -> None:
        """Forget one that waits: whoever has hung up takes no turn, and nothing is kept of it."""
        waiting = self._waiting.get(address, {})
        waiting.pop(go, None)
        if not waiting:
            self._waiting.pop(address, None)

    def _next(self) -> None:
        self._timer = None
        if not self._waiting:
            self._left += 1
            if self._left < METRICS_RATE:
                self._wind()
            return
        address, waiting = self._waiting.popitem(last=False)
        go = next(iter(waiting))
        del waiting[go]
        if waiting:
            self._waiting[address] = waiting
        self._wind()
        go()

    def _wind(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(1 / METRICS_RATE, self._next)

    def close(self) -> None:
        """Forget who waits."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()


def _verdict(checks: Mapping[str, Check]) -> PageResponse:
    """Return `ok`, or 500 with what fails, in the form of the API server's own pages."""
    results = {name: check() for name, check in checks.items()}
    wrong = [f"[-]{name} failed: {complaint}\n" for name, complaint in results.items() if complaint is not None]
    if not wrong:
        return PageResponse(HTTPStatus.OK, b"ok")
    fine = [f"[+]{name} ok\n" for name, complaint in results.items() if complaint is None]
    return PageResponse(HTTPStatus.INTERNAL_SERVER_ERROR, "".join(fine + wrong).encode())


def _plain(status: HTTPStatus) -> PageResponse:
    return PageResponse(status, f"{status.value}: {status.phrase}".encode())


VISIT_S: Final = 10.0
"""How long a connection may last. It carries one request, and Prometheus by default waits as long for the page."""
MOST: Final = 512
"""How many connections there may be: half of the 1,024 file descriptors that a process has by default."""


class Connections:
    """The open connections of a server. It closes what exceeds the limits.

    When there are too many the oldest one is closed: honest requests are served within milliseconds, so an old connection
    is of no use. Turning away the newest would let a flood shut everybody out.
    """

    def __init__(self) -> None:
        self._open: dict[Conversation, None] = {}
        self._one_has_ended = asyncio.Event()

    def opened(self, connection: Conversation) -> None:
        """Add a connection; close the oldest one if there are too many."""
        if len(self._open) >= MOST:
            next(iter(self._open)).end()
        self._open[connection] = None

    def ended(self, connection: Conversation) -> None:
        """Remove a connection."""
        self._open.pop(connection, None)
        self._one_has_ended.set()

    async def close(self, within_s: float) -> None:
        """Close all connections: at once, or after so many seconds where a response is under way."""
        for connection in [each for each in self._open if not each.is_closing]:
            connection.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._open:
                    self._one_has_ended.clear()
                    await self._one_has_ended.wait()
        for connection in list(self._open):
            connection.end()


GOODBYE_S: Final = 0.5
"""How long a response that is under way when we stop may still take."""
BACKLOG: Final = 128
"""Connections that wait to be accepted: a scraper and a kubelet are two, and others must not keep them out."""
MAX_REQUEST_BYTES: Final = 16_384
"""The longest request that is read, with its headers and a body that no page needs. Prometheus and the kubelet send some
hundred bytes; common servers take 8 to 16 KB of headers."""


class ListenError(Exception):
    """The address cannot be listened on."""


@dataclass(frozen=True, slots=True)
class PageServer:
    """Where the pages of a process are served: on `address`, empty for all interfaces, and `port`."""

    registry: CollectorRegistry
    address: str
    port: int

    @asynccontextmanager
    async def serving(self, *, healthz: Mapping[str, Check], readyz: Mapping[str, Check]) -> AsyncIterator[None]:
        """Serve /metrics of the registry, and what these checks find, inside the block. Raises ListenError."""
        pages = Pages(self.registry, healthz=healthz, readyz=readyz)
        connections = Connections()
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: Conversation(pages, connections), self.address or None, self.port, backlog=BACKLOG
            )
        except OSError as error:
            raise ListenError(f"cannot listen on {self.address or '*'}:{self.port}: {error}") from error
        try:
            yield
        finally:
            server.close()
            await connections.close(GOODBYE_S)
            pages.turns.close()


class Conversation(asyncio.Protocol):
    """One connection: reads one request, responds and closes. What is not HTTP gets a 400, and is not logged."""

    def __init__(self, pages: Pages, connections: Connections) -> None:
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
        """Whether the response is under way."""
        return self._transport is None or self._transport.is_closing()

    def end(self) -> None:
        """Close the connection at once. What was not sent yet is dropped."""
        self._connections.ended(self)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, to respond on it; limit the connection's life."""
        self._connections.opened(self)
        self._limit = asyncio.get_running_loop().call_later(VISIT_S, self.end)
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if peer else ""

    def connection_lost(self, _exc: Exception | None) -> None:
        """Let go of the transport, the parser and the turn."""
        self._transport = None
        self._connections.ended(self)
        if self._limit is not None:
            self._limit.cancel()
        self._pages.turns.leave(self._peer, self._respond)
        del self._parser  # which holds on to this object, as this does to it

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived; refuse what is too long or not HTTP."""
        if self._answered:
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # an upgrade to another protocol is ignored: the page of the URL is served
        except httptools.HttpParserError:
            self._refuse()
        if self._received > MAX_REQUEST_BYTES:
            self._refuse()

    def on_url(self, url: bytes) -> None:
        """Take a piece of the URL from the parser."""
        self._url += url

    def on_message_complete(self) -> None:
        """Note the end of a request."""
        if self._answered:
            return  # a second one on the same connection, which is closing
        self._method = self._parser.get_method().decode()
        try:
            self._path = (httptools.parse_url(self._url).path or b"/").decode()
        except httptools.HttpParserInvalidURLError:
            self._refuse()
            return
        if self._path == METRICS:
            self._pages.turns.take(self._peer, self._respond)
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
            "Connection: close",  # to clients that come every few seconds another connection costs nothing
        ]
        if response.status is HTTPStatus.METHOD_NOT_ALLOWED:
            head.append(f"Allow: {', '.join(METHODS)}")
        self._transport.write("\r\n".join([*head, "", ""]).encode() + (response.body if with_body else b""))
        self._transport.close()
