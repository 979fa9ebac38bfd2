"""Decompresses a response that was sent as gzip."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, Self

from tfjob_operator.api.client.http.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tfjob_operator.api.client.http.messages import Response

PIECE_BYTES: Final = 1024 * 1024
"""The most that one chunk becomes at once. gzip makes JSON ten times smaller, but crafted input a thousand times."""

_GZIP: Final = 16 + zlib.MAX_WBITS


class UnzippedResponse:
    """`Response` whose body arrives as gzip. For one reader, who never holds more than a chunk and `PIECE_BYTES`."""

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
                    raise TransportError("the compressed response has no end") from None
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
