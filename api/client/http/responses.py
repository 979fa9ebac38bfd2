"""Responses, parsed incrementally by llhttp (`httptools`): complete ones, streams, gzip. Determines where a response ends."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final, Protocol, Self

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from tfjob_operator.api.client.http.errors import ConnectionLostError, RequestTimeoutError, TransportError
from tfjob_operator.api.client.http.messages import Request, Response

MAX_HEAD_BYTES: Final = 64 * 1024
"""The largest head or trailer. Servers send half a kilobyte; without a limit an endless head would fill the memory. Bytes
that arrive in the same read as the end of the head are not counted."""


class ResponseParser:
    """Parses the consecutive responses of one connection.

    `status` is 0 until the head is complete; `ended` is True once the whole response is complete. Then `reusable` tells whether
    the connection can carry another exchange: only if no byte followed this response, so that requests and responses cannot be
    mismatched.
    """

    __slots__ = (
        "_bodyless",
        "_headers",
        "_parser",
        "_pieces",
        "_whole",
        "ended",
        "head",
        "on_body",
        "on_header",
        "reusable",
        "status",
    )

    def __init__(self) -> None:
        self.status = 0
        self.head: dict[bytes, bytes] = {}
        self.ended = False
        self.reusable = False
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._whole = 0
        self._bodyless = 0
        # For each header and chunk the parser calls a dict or list method directly, without Python code in between.
        self.on_header = self._headers.__setitem__
        self.on_body = self._pieces.append
        self._parser = HttpResponseParser(self)

    def feed(self, data: memoryview) -> None:
        """Parse the bytes that have arrived. Raises TransportError if they are not HTTP."""
        before = len(self._pieces)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as error:
            if not self.ended:
                raise TransportError("the response is not HTTP: the server switched protocols") from error
            self.reusable = False
        except HttpParserError as error:
            if not self.ended:
                raise TransportError(f"the response is not HTTP: {error}") from error  # it quotes nothing
            self.reusable = False
        if len(self._pieces) != before:
            self._bodyless = 0
        elif not self.ended:
            self._bodyless += len(data)
            if self._bodyless > MAX_HEAD_BYTES:
                raise TransportError(f"the response is not HTTP: its header exceeds {MAX_HEAD_BYTES} bytes")

    def feed_eof(self) -> bool:
        """Handle the end of the connection; return True if it is the regular end of this response."""
        if not self.status or self.ended:
            return False
        lower = {name.lower(): value for name, value in self.head.items()}
        if b"content-length" in lower or lower.get(b"transfer-encoding", b"").lower().endswith(b"chunked"):
            return False
        self.ended = True
        self.reusable = False
        self._whole = len(self._pieces)
        return True

    def take_body(self) -> bytes:
        """Return the part of the body that has arrived since the last call."""
        if self.ended:
            del self._pieces[self._whole :]  # the body of a second response
        body = b"".join(self._pieces)
        self._pieces.clear()
        return body

    def next(self) -> None:
        """Prepare for the next response."""
        self.ended = False
        self.status = self._bodyless = 0
        self._pieces.clear()
        self._headers.clear()  # trailers

    # Called by the parser

    def on_message_begin(self) -> None:
        """Note that a response begins."""
        if self.ended:
            self.reusable = False

    def on_headers_complete(self) -> None:
        """Process a complete head; informational ones (100 Continue, 103 Early Hints) are discarded."""
        status = self._parser.get_status_code()
        if status >= 200 and not self.ended:
            self.status = status
            self.head = self._headers.copy()
        self._headers.clear()

    def on_message_complete(self) -> None:
        """Note that the response is complete."""
        if self.status and not self.ended:
            self.ended = True
            self._whole = len(self._pieces)
            self.reusable = self._parser.should_keep_alive()


HELD_BYTES: Final = 256 * 1024
"""How much of a stream is read ahead of its reader: about fifty objects of 5 KB, so that a burst forms one batch."""


class Headers(Mapping[str, str]):
    """Raw headers with case-insensitive names; the last of several with the same name wins."""

    __slots__ = ("_came", "_lower")

    def __init__(self, came: dict[bytes, bytes]) -> None:
        self._came = came
        self._lower: dict[str, str] | None = None

    def _by_name(self) -> dict[str, str]:
        # Non-ASCII bytes have no meaning; Latin-1 decodes all of them.
        if self._lower is None:
            self._lower = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._came.items()
            }
        return self._lower

    def __getitem__(self, name: str) -> str:
        exact = self._came.get(name.encode("latin-1"))  # most servers spell names as we do, so no conversion is needed
        return self._by_name()[name.lower()] if exact is None else exact.decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def __len__(self) -> int:
        return len(self._by_name())


class WholeResponse:
    """A `Response` whose body has arrived. It does not hold a connection."""

    __slots__ = ("_body", "_unread", "headers", "status")

    def __init__(self, status: int, headers: Headers, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body = body
        self._unread = bool(body)

    async def body(self) -> bytes:
        """See `Response.body`."""
        return self._body

    def chunks(self) -> AsyncIterator[bytes]:
        """See `Response.chunks`."""
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._unread:
            raise StopAsyncIteration
        self._unread = False
        return self._body

    def close(self) -> None:
        """See `Response.close`."""


class Source(Protocol):
    """The connection of a stream, as the stream uses it."""

    def pause(self) -> None:
        """Stop reading."""
        ...

    def resume(self) -> None:
        """Continue reading."""
        ...

    def abort(self) -> None:
        """Close the connection immediately."""
        ...


class StreamResponse:
    """A `Response` whose body is still arriving on its own connection. For a single reader.

    At most `HELD_BYTES` plus one socket read are buffered; then the connection is not read until the reader has consumed the
    buffered bytes.
    """

    __slots__ = ("_chunks", "_failure", "_held", "_paused", "_request", "_source", "_waiter", "headers", "status")

    def __init__(self, status: int, headers: Headers, source: Source, request: Request) -> None:
        self.status = status
        self.headers = headers
        self._request = request
        self._source: Source | None = source
        self._chunks: list[bytes] = []
        self._held = 0
        self._paused = False
        self._failure: TransportError | None = None
        self._waiter: asyncio.Future[None] | None = None

    # Called by the reader

    async def body(self) -> bytes:
        """See `Response.body`.

        Reading the body may take `total_s` once more, but no longer: an error response is short, and a slow response must also
        end.
        """
        try:
            async with asyncio.timeout(self._request.total_s):
                return b"".join([chunk async for chunk in self])
        except TimeoutError:
            raise RequestTimeoutError("timed out waiting for the response", request=str(self._request)) from None

    def chunks(self) -> AsyncIterator[bytes]:
        """See `Response.chunks`."""
        # Not a generator: if abandoned early, it would be finalized by a task of the loop that no one here owns.
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self._failure is not None:
                raise self._failure
            if self._source is None:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        chunk = b"".join(self._chunks)
        self._chunks.clear()
        self._held = 0
        if self._paused and self._source is not None:
            self._paused = False
            self._source.resume()
        return chunk

    def close(self) -> None:
        """See `Response.close`. Closes the connection of an unfinished stream."""
        source = self._source
        if source is not None:
            self.fail(ConnectionLostError("the stream was closed"))
            source.abort()

    # Called by the connection

    def feed(self, chunk: bytes) -> None:
        """Add a chunk of the body."""
        self._chunks.append(chunk)
        self._held += len(chunk)
        if self._held >= HELD_BYTES and not self._paused and self._source is not None:
            self._paused = True
            self._source.pause()
        self._wake()

    def end(self) -> None:
        """Note that the body is complete. The connection may carry other exchanges from now on."""
        self._source = None
        self._wake()

    def fail(self, error: TransportError) -> None:
        """Note that the body broke off. Chunks that have arrived can still be read."""
        self._source = None
        error.request = str(self._request)
        self._failure = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


PIECE_BYTES: Final = 1024 * 1024
"""The largest decompressed piece of a chunk. gzip shrinks JSON ten times, but crafted input a thousand times."""
_GZIP: Final = 16 + zlib.MAX_WBITS


class UnzippedResponse:
    """A gzip-compressed `Response`. For a single reader; holds at most a chunk and `PIECE_BYTES`."""

    def __init__(self, response: Response) -> None:
        self._response = response
        self._chunks = response.chunks()
        self._unzip = zlib.decompressobj(_GZIP)

    @property
    def status(self) -> int:
        """See `Response.status`."""
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        """See `Response.headers`."""
        return self._response.headers

    async def body(self) -> bytes:
        """See `Response.body`."""
        return b"".join([chunk async for chunk in self])

    def chunks(self) -> AsyncIterator[bytes]:
        """See `Response.chunks`."""
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while True:
            try:
                zipped = self._unzip.unconsumed_tail or await anext(self._chunks)
            except StopAsyncIteration:
                if not self._unzip.eof:
                    raise TransportError("the compressed response is truncated") from None
                raise
            try:
                piece = self._unzip.decompress(zipped, PIECE_BYTES)
            except zlib.error as error:
                raise TransportError(f"the response is not gzip: {error}") from error
            if piece:
                return piece

    def close(self) -> None:
        """See `Response.close`."""
        self._response.close()
