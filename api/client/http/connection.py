"""An HTTP/1.1 connection: it carries one request at a time, which ends with a response or an error.

Each new request moves the `Deadline` of the connection. This rarely requires a new timer.
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
    """Calls `expire` when the most recently set deadline has passed.

    Deadlines usually move forward and are rarely reached. So the timer is kept. When it fires, it checks whether the deadline
    has moved. So an exchange only compares two times; it does not create, sort and cancel a timer.
    """

    __slots__ = ("_at", "_expire", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, expire: Callable[[], None]) -> None:
        self._loop = loop
        self._expire = expire
        self._at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Move the deadline to a time of the loop's clock; infinity removes it."""
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
        # The loop rounds up to its clock's resolution, so compare with the timer's own time, not with the current time.
        due = self._timer is not None and self._timer.when() >= self._at
        self._timer = None
        if due:
            self._at = math.inf
            self._expire()
        else:
            self.set(self._at)


PLAIN_READ_BYTES: Final = 256 * 1024
"""The largest single read without TLS, which is also the size of asyncio's reads."""
BUFFER_BYTES: Final = 1024 * 1024
"""The size of the read buffer that all connections of a loop share: it is empty again when a callback returns. With TLS
asyncio may deliver half a megabyte, and only once at the end of a connection: what does not fit would be lost. Unused
pages of the buffer take no memory."""


class Owner(Protocol):
    """The owner of a connection, notified when it is free, lost or closed."""

    def released(self, connection: Connection, /) -> None:
        """Take the connection back: the exchange has ended, and it can be reused."""
        ...

    def lost(self, connection: Connection, /) -> None:
        """Drop the connection: it can no longer be used, whether it was in use or not. Called once."""
        ...

    def closed(self, connection: Connection, /) -> None:
        """Note that the socket was closed. Called once, after `lost`."""
        ...


class _Exchange:
    """A request in progress. `response` is set when the whole response has arrived; for a stream, when its head has arrived."""

    __slots__ = ("request", "response", "stream")

    def __init__(self, request: Request, response: asyncio.Future[WholeResponse | StreamResponse]) -> None:
        self.request = request
        self.response = response
        self.stream: StreamResponse | None = None


class Connection(asyncio.BufferedProtocol):
    """An established connection, which carries one exchange at a time.

    Invariants: every exchange ends with either `Owner.released` or `Owner.lost`; a connection that receives unexpected
    bytes is closed, so no response can be attributed to a later request.
    """

    __slots__ = (
        "_buffer",
        "_deadline",
        "_exchange",
        "_gone",
        "_keep_alive_s",
        "_loop",
        "_parser",
        "_received",
        "_transport",
        "_used_before",
        "context",
        "owner",
    )

    def __init__(self, buffer: memoryview, context: ssl.SSLContext | None = None, keep_alive_s: float = 45.0) -> None:
        """Read into `buffer` of size `BUFFER_BYTES`; `context` is the SSLContext, `keep_alive_s` the maximum idle time."""
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
        self._received = False
        self._parser = ResponseParser()

    # Called by the owner

    @property
    def gone(self) -> bool:
        """True if it can no longer be used."""
        return self._gone

    @property
    def stale(self) -> bool:
        """True if a reused connection received no byte this time: the server had already closed it."""
        return self._used_before and not self._received

    async def exchange(self, request: Request, data: bytes, until: float) -> WholeResponse | StreamResponse:
        """Send `data` and wait until the loop's time `until`. Raises TransportError; cancelling closes the connection."""
        transport = self._transport
        if transport is None or self._exchange is not None:
            raise RuntimeError("the connection is not made yet, or busy")
        response: asyncio.Future[WholeResponse | StreamResponse] = self._loop.create_future()
        exchange = self._exchange = _Exchange(request, response)
        self._received = False
        self._deadline.set(until)
        transport.write(data)
        try:
            return await response
        except asyncio.CancelledError:
            # otherwise the exchange ended in the same turn of the loop, and the connection may be in use again
            if self._exchange is exchange:
                self.abort()
            raise

    def abort(self) -> None:
        """Close the connection immediately. An orderly TLS shutdown would wait for the peer, which may be unreachable."""
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
        """Close the connection immediately; the current exchange fails with this error."""
        exchange = self._exchange
        self.abort()
        if exchange is None:
            return
        if exchange.stream is not None:
            exchange.stream.fail(error)
        elif not exchange.response.done():
            exchange.response.set_exception(error)

    # Called by the stream

    def pause(self) -> None:
        """Stop reading. The idle timeout is suspended until `resume`."""
        if self._transport is not None and not self._gone:
            self._transport.pause_reading()
            self._deadline.set(math.inf)

    def resume(self) -> None:
        """Continue reading."""
        if self._transport is not None and self._exchange is not None:
            self._transport.resume_reading()
            self._await_more(self._exchange)

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        self._transport = cast("asyncio.Transport", transport)
        if transport.get_extra_info("ssl_object") is None:
            self._buffer = self._buffer[:PLAIN_READ_BYTES]
        if self._gone:  # aborted in the meantime
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        exchange = self._exchange
        if exchange is None:
            self.abort()  # unsolicited data: some servers send a response before they close an idle connection
            return
        self._received = True
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
        self._transport = None  # otherwise the reference cycle would remain until a garbage collection
        if self.owner is not None:
            self.owner.closed(self)

    # Internal

    def _feed_stream(self, exchange: _Exchange) -> StreamResponse:
        """Pass on the bytes of a stream that have arrived."""
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
        """Restart the idle timeout of a stream."""
        if exchange.request.idle_s is not None:
            self._deadline.set(self._loop.time() + exchange.request.idle_s)

    def _finish(self, exchange: _Exchange) -> None:
        """End the exchange with its response."""
        parser = self._parser
        if exchange.request.stream:
            self._feed_stream(exchange).end()
            if self._transport is not None:
                self._transport.resume_reading()  # the next exchange must not wait for the reader of this one
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
