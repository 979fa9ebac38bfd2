"""Decodes responses, and splits the body of a watch into lines, one per event. Raises DecodeError for invalid data."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final, Self, TypeVar

import msgspec

from tfjob_operator.api.client.errors import DecodeError
from tfjob_operator.api.decoding import decode
from tfjob_operator.api.meta import Struct

T = TypeVar("T")
UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All exceptions of msgspec for undecodable bytes: the last two for invalid UTF-8 and for JSON nested too deeply."""


class _Versioned(Struct, frozen=True):
    resource_version: str = ""


class _WriteResponse(Struct, frozen=True):
    metadata: _Versioned = _Versioned()


_WRITTEN: Final = msgspec.json.Decoder(_WriteResponse)


def version_written(raw: bytes) -> str:
    """Return the resourceVersion in the response to a write, or "" if it has none."""
    try:
        return decode(_WRITTEN, raw).metadata.resource_version
    except UNDECODABLE:
        return ""


def decode_response(raw: bytes, kind: type[T], *, request: str) -> T:
    """Decode a response. Raises DecodeError, also for a proxy's HTML page; the error names `request` and quotes no value."""
    try:
        return decode(msgspec.json.Decoder(kind), raw)
    except UNDECODABLE as error:
        raise DecodeError(f"the response cannot be decoded: {error}", request=request) from error


MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""The longest line of a watch. etcd rejects requests over 1.5 MB, and their JSON is a few times as long; without a limit a
body that is not a watch would be buffered until memory runs out."""


class WatchBlocks:
    """Iterates over blocks of whole lines; all lines that end in the same chunk form one or two blocks.

    A block is a view into its chunk; only a line that spans chunks is copied, into a block of its own. A last line without
    a newline is incomplete and dropped; the watch will deliver it again. Raises the exceptions of `chunks`, and
    DecodeError for a line longer than `max_line_bytes`.
    """

    __slots__ = ("_begun", "_begun_bytes", "_chunks", "_max_line_bytes", "_request")

    def __init__(self, chunks: AsyncIterator[bytes], *, request: str, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        """Read from `chunks` of any size; `request` is for error messages."""
        self._chunks = chunks
        self._request = request
        self._max_line_bytes = max_line_bytes
        self._begun: list[bytes] = []
        self._begun_bytes = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[memoryview]:
        while True:
            chunk = await anext(self._chunks)  # StopAsyncIteration also ends this iteration
            blocks: list[memoryview] = []
            begin, end = 0, chunk.rfind(b"\n") + 1
            if end and self._begun:
                begin = chunk.find(b"\n") + 1
                blocks.append(memoryview(b"".join((*self._begun, chunk[:begin]))))
                self._begun.clear()
                self._begun_bytes = 0
            if begin < end:
                blocks.append(memoryview(chunk)[begin:end])
            if end < len(chunk):
                self._begin(chunk[end:])
            if blocks:
                return blocks

    def _begin(self, part: bytes) -> None:
        """Buffer an incomplete line."""
        self._begun_bytes += len(part)
        if self._begun_bytes > self._max_line_bytes:
            raise DecodeError(f"a line exceeds {self._max_line_bytes} bytes", request=self._request)
        self._begun.append(part)


class WatchLines:
    """Iterates over batches of whole lines without their newlines; lines that arrive together form one batch.

    Empty lines and the CR of a CRLF are removed. `blocks` yields the same lines unsplit, so a decoder that takes many lines at
    once need not copy each line. Iterate over lines or `blocks`, not both.
    """

    __slots__ = ("blocks",)

    def __init__(self, chunks: AsyncIterator[bytes], *, request: str, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        """See `WatchBlocks`."""
        self.blocks = WatchBlocks(chunks, request=request, max_line_bytes=max_line_bytes)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[bytes]:
        while True:
            if lines := lines_of(await anext(self.blocks)):
                return lines


def lines_of(blocks: Iterable[memoryview]) -> list[bytes]:
    """Return the lines of these blocks without their newlines; empty ones are omitted."""
    return [line for block in blocks for line in map(_without_cr, bytes(block).split(b"\n")) if line]


def _without_cr(line: bytes) -> bytes:
    return line[:-1] if line.endswith(b"\r") else line
