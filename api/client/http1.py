"""One HTTP/1.1 connection: requests go out one after the other, and answers are put together from what arrives.

The parsing is llhttp's, through `httptools`; here is what it leaves open: when an answer ends, whether the connection can
serve another request, and what becomes of whoever waits when it breaks, falls silent or talks nonsense.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from api.client.answers import Headers, StreamAnswer, WholeAnswer
from api.client.deadline import Deadline
from api.client.errors import ConnectionLostError, RequestTimeoutError, TransportError

if TYPE_CHECKING:
    import ssl

    from api.client.transport import Request

MAX_HEAD_BYTES: Final = 64 * 1024
"""Longest head, or trailer. API servers send half a kilobyte; without a limit a head that never ends would fill the memory.
What came in one read with the end of the head is not counted."""

PLAIN_READ_BYTES: Final = 256 * 1024
"""Most that is read at once without TLS, which asyncio too reads in pieces of this size."""

BUFFER_BYTES: Final = 1024 * 1024
"""Room to read into, shared by all connections of a loop: it is empty again when a callback returns. With TLS asyncio may have
half a megabyte at hand, and when the peer is done it asks once only: what did not fit would be lost. Untouched pages of
the buffer cost nothing."""


class Owner(Protocol):
    """Who is told what becomes of a connection."""

    def released(self, connection: Connection, /) -> None:
        """The exchange is over, and the connection can be used again."""
        ...

    def lost(self, connection: Connection, /) -> None:
        """The connection can not be used any more, whether it was in use or not. Comes once."""
        ...

    def closed(self, connection: Connection, /) -> None:
        """The socket is closed. Comes once, after `lost`."""
        ...


class _Exchange:
    """A request under way. `answer` has its result when the whole answer is here, or the head of a stream."""

    __slots__ = ("answer", "request", "stream")

    def __init__(self, request: Request, answer: asyncio.Future[WholeAnswer | StreamAnswer]) -> None:
        self.request = request
        self.answer = answer
        self.stream: StreamAnswer | None = None


class Connection(asyncio.BufferedProtocol):
    """A connection, once asyncio has made it. It carries one exchange at a time.

    Invariants: an exchange ends in exactly one of `Owner.released` and `Owner.lost`; a connection on which anything arrives
    that nobody asked for is closed, so no answer can be taken for that of a later request.
    """

    __slots__ = (
        "_bodyless",
        "_buffer",
        "_deadline",
        "_ended",
        "_exchange",
        "_gone",
        "_head",
        "_headers",
        "_heard",
        "_keep_alive_s",
        "_loop",
        "_parser",
        "_pieces",
        "_reusable",
        "_status",
        "_transport",
        "_used_before",
        "context",
        "on_body",
        "on_header",
        "owner",
    )

    def __init__(self, buffer: memoryview, context: ssl.SSLContext | None = None, keep_alive_s: float = 45.0) -> None:
        """Read into `buffer`, of `BUFFER_BYTES`; `context` is what was proved with, `keep_alive_s` how long it may be idle."""
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
        # What the parser says. It calls lists and dicts without a detour through Python, for each header and each chunk.
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._head: dict[bytes, bytes] = {}
        self._status = 0
        self._bodyless = 0
        self._ended = False
        self._reusable = False
        self.on_header = self._headers.__setitem__
        self.on_body = self._pieces.append
        self._parser = HttpResponseParser(self)

    # What the owner does

    @property
    def gone(self) -> bool:
        """Whether it is of no use any more."""
        return self._gone

    @property
    def stale(self) -> bool:
        """Whether the exchange that failed found a connection that the server had given up before: it was used before, and now
        not a byte came back.
        """
        return self._used_before and not self._heard

    async def exchange(self, request: Request, data: bytes, until: float) -> WholeAnswer | StreamAnswer:
        """Send `data`, and wait for the answer until the loop's clock shows `until`: for its end, of a stream for its head.

        Raises TransportError, which does not name the request. Cancelling it closes the connection at once.
        """
        transport = self._transport
        if transport is None or self._exchange is not None:
            raise RuntimeError("the connection is not made yet, or busy")
        answer: asyncio.Future[WholeAnswer | StreamAnswer] = self._loop.create_future()
        exchange = self._exchange = _Exchange(request, answer)
        self._heard = False
        self._deadline.set(until)
        transport.write(data)
        try:
            return await answer
        except asyncio.CancelledError:
            if (
                self._exchange is exchange
            ):  # else it was over in the same turn, and the connection may serve others by now
                self.abort()
            raise

    def abort(self) -> None:
        """Close it at once: an orderly end of TLS waits for the peer's, and one that is gone never sends it."""
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
        """Close it at once, and tell whoever waits for an answer why."""
        exchange = self._exchange
        self.abort()
        if exchange is None:
            return
        if exchange.stream is not None:
            exchange.stream.fail(error)
        elif not exchange.answer.done():
            exchange.answer.set_exception(error)

    # What the stream does

    def pause(self) -> None:
        """Read no more for now. The silence that follows is ours."""
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
        before = len(self._pieces)
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self._ended:
                self.fail(_because(TransportError, "the answer is not HTTP", error))
                return
            self._reusable = False  # nonsense after a whole answer
        if self._ended:
            self._finish(exchange)
            return
        self._bodyless = self._bodyless + nbytes if len(self._pieces) == before else 0
        if self._bodyless > MAX_HEAD_BYTES:
            self.fail(TransportError(f"the answer is not HTTP: its head is longer than {MAX_HEAD_BYTES} bytes"))
        elif self._status and exchange.request.stream:
            self._feed_stream(exchange)

    def eof_received(self) -> None:
        """See `asyncio.BaseProtocol`."""
        if self._exchange is not None and self._status and _ends_with_connection(self._head):
            self._reusable = False
            self._finish(self._exchange)
        else:
            self.fail(ConnectionLostError("the server closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        self.fail(_because(ConnectionLostError, "the connection broke", exc))
        del self._parser  # the two hold each other
        if self.owner is not None:
            self.owner.closed(self)

    # What the parser does

    def on_message_begin(self) -> None:
        """Hear that something begins, which should be the answer."""
        if self._ended:
            self._reusable = False  # a second answer to one request

    def on_headers_complete(self) -> None:
        """Take the head; what precedes the real one (100 Continue, 103 Early Hints) is dropped. Trailers come later."""
        status = self._parser.get_status_code()
        if status >= 200 and not self._ended:
            self._status = status
            self._head = self._headers.copy()
        self._headers.clear()

    def on_message_complete(self) -> None:
        """Note that the answer is whole. What follows in the same read is not ours, so it is finished after that."""
        if self._status and not self._ended:
            self._ended = True
            self._reusable = self._parser.should_keep_alive()

    # The rest

    def _feed_stream(self, exchange: _Exchange) -> StreamAnswer:
        """Hand on what has arrived of a stream."""
        stream = exchange.stream
        if stream is None:
            stream = exchange.stream = StreamAnswer(self._status, Headers(self._head), self, exchange.request)
            if not exchange.answer.done():
                exchange.answer.set_result(stream)
        self._await_more(exchange)
        if self._pieces:
            chunk = b"".join(self._pieces)
            self._pieces.clear()
            stream.feed(chunk)
        return stream

    def _await_more(self, exchange: _Exchange) -> None:
        """Start the wait for the next byte of a stream anew."""
        if exchange.request.idle_s is not None:
            self._deadline.set(self._loop.time() + exchange.request.idle_s)

    def _finish(self, exchange: _Exchange) -> None:
        """End the exchange with its answer."""
        if exchange.request.stream:
            self._feed_stream(exchange).end()
            if self._transport is not None:
                self._transport.resume_reading()  # whoever is next must not wait for the reader of this one
        elif not exchange.answer.done():
            exchange.answer.set_result(WholeAnswer(self._status, Headers(self._head), b"".join(self._pieces)))
        if not self._reusable:
            self.abort()
            return
        self._exchange = None
        self._used_before = True
        self._ended = False
        self._status = self._bodyless = 0
        self._pieces.clear()
        self._headers.clear()
        self._deadline.set(self._loop.time() + self._keep_alive_s)
        if self.owner is not None:
            self.owner.released(self)

    def _expire(self) -> None:
        if self._exchange is None:
            self.abort()
        else:
            self.fail(RequestTimeoutError("no answer in time"))


def _ends_with_connection(head: dict[bytes, bytes]) -> bool:
    """Whether the body that follows this head has no other end than that of the connection."""
    lower = {name.lower(): value for name, value in head.items()}
    return b"content-length" not in lower and not lower.get(b"transfer-encoding", b"").lower().endswith(b"chunked")


def _because(kind: type[TransportError], text: str, cause: Exception | None) -> TransportError:
    """An error with its cause, in the cause's words. Neither asyncio nor the parser quotes what was sent."""
    error = kind(f"{text}: {cause}" if cause is not None and str(cause) else text)
    error.__cause__ = cause
    return error
