"""One HTTP/1.1 connection: it sends one request after the other, and each ends with its response or with an error.

Its `Deadline` moves with every request, though its timer is hardly ever set anew.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable
from typing import Final, Protocol, cast

from tfjob_operator.api.client.http.errors import ConnectionLostError, RequestTimeoutError, TransportError
from tfjob_operator.api.client.http.messages import Request
from tfjob_operator.api.client.http.responses import Headers, ResponseParser, StreamResponse, WholeResponse


class Deadline:
    """Calls `expire` when the deadline that was set last has come.

    Deadlines mostly move forward and are hardly ever reached. So one timer stays where it is, and checks when it fires
    whether the deadline has moved on: an exchange costs a comparison instead of a timer that is created, sorted in and
    cancelled.
    """

    __slots__ = ("_at", "_expire", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, expire: Callable[[], None]) -> None:
        self._loop = loop
        self._expire = expire
        self._at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Move the deadline to a moment of the loop's clock; infinity takes it away."""
        self._at = at
        timer = self._timer
        if timer is None:
            if at < math.inf:
                self._timer = self._loop.call_at(at, self._look)
        elif timer.when() > at:
            timer.cancel()
            self._timer = self._loop.call_at(at, self._look)

    def cancel(self) -> None:
        """Remove the deadline and its timer."""
        self._at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        # The loop rounds up by its clock's resolution, so the timer's own moment counts, not what the clock says now.
        due = self._timer is not None and self._timer.when() >= self._at
        self._timer = None
        if due:
            self._at = math.inf
            self._expire()
        else:
            self.set(self._at)


PLAIN_READ_BYTES: Final = 256 * 1024
"""The most that is read at once without TLS. asyncio reads in pieces of this size too."""
BUFFER_BYTES: Final = 1024 * 1024
"""Size of the buffer that all connections of a loop read into: it is empty again when a callback returns. With TLS asyncio
may hand over half a megabyte, and at the end of a connection it does so only once: what did not fit would be lost.
Untouched pages of the buffer cost nothing."""


class Owner(Protocol):
    """The owner of a connection: called when it is free, lost or closed."""

    def released(self, connection: Connection, /) -> None:
        """Take the connection back: the exchange is over, and it can be used again."""
        ...

    def lost(self, connection: Connection, /) -> None:
        """Drop the connection: it cannot be used any more, whether it was in use or not. Called once."""
        ...

    def closed(self, connection: Connection, /) -> None:
        """Note that the socket is closed. Called once, after `lost`."""
        ...


class _Exchange:
    """A request under way. `response` is set when the whole response is here or, for a stream, its head."""

    __slots__ = ("request", "response", "stream")

    def __init__(self, request: Request, response: asyncio.Future[WholeResponse | StreamResponse]) -> None:
        self.request = request
        self.response = response
        self.stream: StreamResponse | None = None


class Connection(asyncio.BufferedProtocol):
    """A connection, once asyncio has made it. It carries one exchange at a time.

    Invariants: an exchange ends in exactly one of `Owner.released` and `Owner.lost`; a connection on which unexpected bytes
    arrive is closed, so no response can be taken for that of a later request.
    """

    __slots__ = (
        "_buffer",
        "_deadline",
        "_exchange",
        "_gone",
        "_heard",
        "_keep_alive_s",
        "_loop",
        "_parser",
        "_transport",
        "_used_before",
        "context",
        "owner",
    )

    def __init__(self, buffer: memoryview, context: ssl.SSLContext | None = None, keep_alive_s: float = 45.0) -> None:
        """Read into `buffer`, of `BUFFER_BYTES`; `context` is its SSLContext, `keep_alive_s` how long it may be idle."""
        self.context = context
        self.owner: Owner | None = None
        self._buffer = buffer
        self._keep_alive_s = keep_alive_s
        self._loop = asyncio.get_running_loop()
        self._deadline = Deadline(self._loop, self._expire)
        self._transport: asyncio.Transport | None = None
        self._gone = False
        self._used_before = False
        self._exchange: _Exchange | None = None
        self._heard = False
        self._parser = ResponseParser()

    # What the owner does

    @property
    def gone(self) -> bool:
        """Whether it cannot be used any more."""
        return self._gone

    @property
    def stale(self) -> bool:
        """Whether the server had closed the connection before: it was used, and not one byte came back this time."""
        return self._used_before and not self._heard

    async def exchange(self, request: Request, data: bytes, until: float) -> WholeResponse | StreamResponse:
        """Send `data`, wait till the loop's time `until`. Raises TransportError; cancelling closes the connection."""
        transport = self._transport
        if transport is None or self._exchange is not None:
            raise RuntimeError("the connection is not made yet, or busy")
        response: asyncio.Future[WholeResponse | StreamResponse] = self._loop.create_future()
        exchange = self._exchange = _Exchange(request, response)
        self._heard = False
        self._deadline.set(until)
        transport.write(data)
        try:
            return await response
        except asyncio.CancelledError:
            if self._exchange is exchange:  # else it ended in the same turn, and the connection may serve others by now
                self.abort()
            raise

    def abort(self) -> None:
        """Close it at once. An orderly end of TLS would wait for the peer, which may be gone."""
        if self._gone:
            return
        self._gone = True
        self._exchange = None
        self._deadline.cancel()
        if self._transport is not None:
            self._transport.abort()
        if self.owner is not None:
            self.owner.lost(self)

    def fail(self, error: TransportError) -> None:
        """Close it at once; the exchange under way fails with this error."""
        exchange = self._exchange
        self.abort()
        if exchange is None:
            return
        if exchange.stream is not None:
            exchange.stream.fail(error)
        elif not exchange.response.done():
            exchange.response.set_exception(error)

    # What the stream does

    def pause(self) -> None:
        """Stop reading. Silence does not count until `resume`."""
        if self._transport is not None and not self._gone:
            self._transport.pause_reading()
            self._deadline.set(math.inf)

    def resume(self) -> None:
        """Go on reading."""
        if self._transport is not None and self._exchange is not None:
            self._transport.resume_reading()
            self._await_more(self._exchange)

    # What asyncio does

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        self._transport = cast("asyncio.Transport", transport)
        if transport.get_extra_info("ssl_object") is None:
            self._buffer = self._buffer[:PLAIN_READ_BYTES]
        if self._gone:  # given up in the meantime
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        exchange = self._exchange
        if exchange is None:
            self.abort()  # nobody asked: a server that gives up an idle connection may say so
            return
        self._heard = True
        parser = self._parser
        try:
            parser.feed(self._buffer[:nbytes])
        except TransportError as error:
            self.fail(error)
            return
        if parser.ended:
            self._finish(exchange)
        elif parser.status and exchange.request.stream:
            self._feed_stream(exchange)

    def eof_received(self) -> None:
        """See `asyncio.BaseProtocol`."""
        if self._exchange is not None and self._parser.feed_eof():
            self._finish(self._exchange)
        else:
            self.fail(ConnectionLostError("the server closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        error = ConnectionLostError(f"the connection was lost: {exc}" if str(exc or "") else "the connection was lost")
        error.__cause__ = exc
        self.fail(error)
        self._transport = None  # the two would hold each other until a garbage collection
        if self.owner is not None:
            self.owner.closed(self)

    # The rest

    def _feed_stream(self, exchange: _Exchange) -> StreamResponse:
        """Hand on what has arrived of a stream."""
        stream = exchange.stream
        if stream is None:
            parser = self._parser
            stream = StreamResponse(parser.status, Headers(parser.head), self, exchange.request)
            exchange.stream = stream
            if not exchange.response.done():
                exchange.response.set_result(stream)
        self._await_more(exchange)
        chunk = self._parser.take_body()
        if chunk:
            stream.feed(chunk)
        return stream

    def _await_more(self, exchange: _Exchange) -> None:
        """Start the wait for the next byte of a stream anew."""
        if exchange.request.idle_s is not None:
            self._deadline.set(self._loop.time() + exchange.request.idle_s)

    def _finish(self, exchange: _Exchange) -> None:
        """End the exchange with its response."""
        parser = self._parser
        if exchange.request.stream:
            self._feed_stream(exchange).end()
            if self._transport is not None:
                self._transport.resume_reading()  # whoever is next must not wait for the reader of this one
        elif not exchange.response.done():
            exchange.response.set_result(WholeResponse(parser.status, Headers(parser.head), parser.take_body()))
        if not parser.reusable:
            self.abort()
            return
        parser.next()
        self._exchange = None
        self._used_before = True
        self._deadline.set(self._loop.time() + self._keep_alive_s)
        if self.owner is not None:
            self.owner.released(self)

    def _expire(self) -> None:
        if self._exchange is None:
            self.abort()
        else:
            self.fail(RequestTimeoutError("timed out waiting for the response"))
