"""From chunks of any size to whole lines, and from those to values."""

import time
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.virtual_loop import VirtualTimeLoop
from tfjob_operator.api.client.decoding import WatchLines, version_written
from tfjob_operator.api.client.errors import DecodeError


@pytest.mark.parametrize(
    ("response", "version"),
    [
        (b'{"kind": "Pod", "metadata": {"name": "a", "resourceVersion": "12", "labels": {"b": "c"}}}', "12"),
        (b'{"metadata": {}}', ""),
        (b"{}", ""),
        (b'{"metadata": null}', ""),
        (b'{"metadata": {"resourceVersion": 12}}', ""),
        (b"<html><body>Welcome</body></html>", ""),
        (b"", ""),
        (b'{"spec": ' + b"[" * 5000 + b"]" * 5000 + b', "metadata": {"resourceVersion": "7"}}', "7"),
    ],
)
def test_the_version_in_the_response_to_a_write_is_read_where_there_is_one(response: bytes, version: str) -> None:
    """EX-10: whatever else comes is no failure of the write."""
    assert version_written(response) == version


async def stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def batches(*chunks: bytes) -> list[list[bytes]]:
    return [batch async for batch in WatchLines(stream(*chunks), request="")]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([], []),
        ([b"a\n"], [[b"a"]]),
        ([b"a\nb\n"], [[b"a", b"b"]]),
        ([b"a\nb", b"c\nd\n"], [[b"a"], [b"bc", b"d"]]),
        ([b"a", b"b", b"c", b"\n"], [[b"abc"]]),
        ([b"a", b"b\nc", b"\n"], [[b"ab"], [b"c"]]),
        ([b"a\r\nb\r", b"\n"], [[b"a"], [b"b"]]),
        ([b"\n\r\n", b"a\n\n"], [[b"a"]]),
        ([b"a\nhalf of a li"], [[b"a"]]),
        ([b"never finished"], []),
    ],
    ids=repr,
)
async def test_lines_are_cut_where_they_end_and_nowhere_else(chunks: list[bytes], expected: list[list[bytes]]) -> None:
    """Lines across chunks, CRLF, empty lines; the truncated last line is dropped, since the watch is resumed before it."""
    assert await batches(*chunks) == expected


@settings(deadline=None)  # a busy machine is not a failure
@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"").strip(b"\r")), max_size=8), st.data())
def test_how_a_stream_was_cut_makes_no_difference(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    loop = VirtualTimeLoop()
    try:
        got = loop.run_until_complete(batches(*chunks))
    finally:
        loop.close()
    assert [line for batch in got for line in batch] == [line for line in lines if line]
    assert all(got)


async def test_a_giant_line_costs_no_more_per_byte_than_a_short_one() -> None:
    """Appending chunk to chunk would copy the line once a chunk: 32 MB in pieces of 4 KB would move 128 GB."""
    piece = b"x" * 4096
    started = time.process_time()
    got = await batches(*[piece] * 8192, b"\n")
    assert len(got[0][0]) == 32 * 1024 * 1024
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("chunks", [[b"123456", b"78901"], [b"ok\n12345678901"]])
async def test_a_line_without_end_is_given_up_before_memory_is(chunks: list[bytes]) -> None:
    lines = WatchLines(stream(*chunks), request="GET /pods", max_line_bytes=10)
    with pytest.raises(DecodeError, match="GET /pods: a line exceeds 10 bytes"):
        [_ async for _ in lines]
    lines = WatchLines(stream(*[b"12345", b"678\n"] * 10), request="", max_line_bytes=10)
    assert [batch async for batch in lines] == [[b"12345678"]] * 10, "the limit is on one line, not on all"


async def test_blocks_are_the_same_lines_not_taken_apart() -> None:
    lines = WatchLines(stream(b"a\nb", b"c", b"\nd\ne\n", b"f", b"g\n"), request="")
    assert [[*map(bytes, blocks)] async for blocks in lines.blocks] == [[b"a\n"], [b"bc\n", b"d\ne\n"], [b"fg\n"]]
