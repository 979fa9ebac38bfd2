"""The two kinds of response: one that has arrived completely, and a stream that is read while it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol, Self

from tfjob_operator.api.client.http.errors import ConnectionLostError, RequestTimeoutError

if TYPE_CHECKING:
    from tfjob_operator.api.client.http.errors import TransportError
    from tfjob_operator.api.client.http.messages import Request

HELD_BYTES: Final = 256 * 1024
"""How much of a stream is read ahead of its reader: some fifty objects of 5 KB, so that a burst is one batch."""


class Headers(Mapping[str, str]):
    """Headers as they came. Names are matched without regard to case; of several with one name the last counts."""

    __slots__ = ("_came", "_lower")

    def __init__(self, came: dict[bytes, bytes]) -> None:
        self._came = came
        self._lower: dict[str, str] | None = None

    def _by_name(self) -> dict[str, str]:
        # Bytes above ASCII have no meaning, and Latin-1 takes all of them.
        if self._lower is None:
            self._lower = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._came.items()
            }
        return self._lower

    def __getitem__(self, name: str) -> str:
        exact = self._came.get(name.encode("latin-1"))  # most servers write names as we do: nothing to translate
        return self._by_name()[name.lower()] if exact is None else exact.decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def __len__(self) -> int:
        return len(self._by_name())


class WholeResponse:
    """A `Response` whose body has arrived. It holds no connection."""

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
    """What a stream needs of its connection."""

    def pause(self) -> None:
        """Read no more for now."""
        ...

    def resume(self) -> None:
        """Go on reading."""
        ...

    def abort(self) -> None:
        """Close it at once."""
        ...


class StreamResponse:
    """A `Response` whose body is still arriving on a connection of its own. For one reader.

    At most `HELD_BYTES`, and what one read of the socket brings, wait for the reader; then the connection is not read from
    until the reader has taken them.
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

    # What the reader does

    async def body(self) -> bytes:
        """See `Response.body`. It gets `total_s` once more: an error response is short, and one that trickles must end too."""
        try:
            async with asyncio.timeout(self._request.total_s):
                return b"".join([chunk async for chunk in self])
        except TimeoutError:
            raise RequestTimeoutError("no response in time", request=str(self._request)) from None

    def chunks(self) -> AsyncIterator[bytes]:
        """See `Response.chunks`."""
        # Not a generator: one that is left early is finished by a task of the loop's, which nobody here would own.
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
        """See `Response.close`. If the stream has not ended, its connection is closed."""
        source = self._source
        if source is not None:
            self.fail(ConnectionLostError("the stream was closed"))
            source.abort()

    # What the connection does

    def feed(self, chunk: bytes) -> None:
        """Take a piece of the body."""
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
        """Note that nothing more comes. What has arrived can still be read."""
        self._source = None
        error.request = str(self._request)
        self._failure = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
