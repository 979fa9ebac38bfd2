"""Serves the pages of a process: plain HTTP, one request a connection, on the loop that does the work.

That is on purpose: a loop that is stuck does not answer its liveness probe, and gauges can be read without locks.

Requests are parsed by llhttp (`httptools`), which the client needs anyway. Importing aiohttp costs 12 MB and 0.2 s, a
third of the process, for three pages without arguments.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

import httptools

from tfjob_operator.controller.observability.pages import METHODS, PageResponse, Pages
from tfjob_operator.controller.observability.visitors import Visitors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from prometheus_client import CollectorRegistry

    from tfjob_operator.controller.observability.pages import Check

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
        visitors = Visitors(lambda: Conversation(pages))
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(visitors, self.address or None, self.port, backlog=BACKLOG)
        except OSError as error:
            raise ListenError(f"cannot listen on {self.address or '*'}:{self.port}: {error}") from error
        try:
            yield
        finally:
            server.close()
            await visitors.leave(GOODBYE_S)


class Conversation(asyncio.Protocol):
    """One connection: reads one request, responds to it, and closes.

    Anything that is not HTTP gets a 400 and is not logged: strangers could fill the log.
    """

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._received = 0
        self._answered = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, to respond on it."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Let go of the parser."""
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
        method = self._parser.get_method().decode()
        try:
            path = (httptools.parse_url(self._url).path or b"/").decode()
        except httptools.HttpParserInvalidURLError:
            self._refuse()
            return
        self._send(self._pages.response(method, path), with_body=method != "HEAD")

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
