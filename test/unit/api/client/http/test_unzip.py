"""UnzippedResponse: the original body, however the chunks are cut, and an error if it is incomplete."""

from __future__ import annotations

import gzip

import pytest

from fakes.transport import FakeResponse, FakeTransport
from tfjob_operator.api.client.errors import ConnectionLostError, TransportError
from tfjob_operator.api.client.http import Request
from tfjob_operator.api.client.http.responses import PIECE_BYTES, UnzippedResponse

BODY = b'{"items":[' + b'{"kind":"Pod"},' * 1000 + b"{}]}"
ZIPPED = gzip.compress(BODY, mtime=0)


async def unzipped(*pieces: bytes | Exception) -> UnzippedResponse:
    """A response whose body arrives in these pieces."""
    return UnzippedResponse(await FakeTransport(FakeResponse(201, pieces)).send(Request("GET", "/x")))


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
async def test_a_compressed_body_is_what_it_was_however_it_is_cut(size: int) -> None:
    response = await unzipped(*(ZIPPED[start : start + size] for start in range(0, len(ZIPPED), size)))
    assert (response.status, response.headers["Content-Type"]) == (201, "application/json")
    assert await response.body() == BODY


async def test_what_is_tiny_and_becomes_huge_is_handed_on_in_pieces() -> None:
    """A hundred megabytes of zeros are a hundred kilobytes on the wire."""
    response = await unzipped(gzip.compress(bytes(10 * PIECE_BYTES)))
    sizes = [len(chunk) async for chunk in response.chunks()]
    assert (sum(sizes), max(sizes)) == (10 * PIECE_BYTES, PIECE_BYTES)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ((ZIPPED[:-9],), "is truncated"),
        ((), "is truncated"),
        ((b"{}",), "is not gzip"),
        ((ZIPPED[:-8], b"\0" * 8), "is not gzip"),
    ],
)
async def test_a_body_that_is_cut_or_is_no_gzip_is_an_error(pieces: tuple[bytes, ...], message: str) -> None:
    """A truncated list must not be taken for a complete one."""
    with pytest.raises(TransportError, match=message):
        await (await unzipped(*pieces)).body()


async def test_a_stream_that_breaks_gives_first_what_it_had_and_then_its_error() -> None:
    response = await unzipped(ZIPPED[:200], ConnectionLostError("reset"))
    assert BODY.startswith(await anext(response.chunks()))
    with pytest.raises(ConnectionLostError):
        await response.body()


async def test_closing_it_closes_what_it_reads() -> None:
    transport = FakeTransport(FakeResponse(200, ZIPPED))
    UnzippedResponse(await transport.send(Request("GET", "/x"))).close()
    assert transport.unclosed == 0
