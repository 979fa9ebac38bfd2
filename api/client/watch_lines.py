"""Cuts the body of a watch into lines, one event each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from api.client.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""Longest line before a stream counts as garbage. etcd refuses requests over 1.5 MB, and their JSON is a few times as long;
without a limit a body that is no watch would be collected until memory ends."""


class WatchLines:
    """Iterates over batches of whole lines without their ends: what arrived together stays together.

    A line may span any number of chunks and is put together once, so long ones cost no more per byte than short ones. Empty
    lines and the CR of a CRLF are dropped. So is a last line without its end: it was cut off, and will come again. Raises
    what `chunks` raises, and DecodeError for a line longer than `max_line_bytes`.
    """

    __slots__ = ("_begun", "_begun_bytes", "_chunks", "_max_line_bytes", "_request")

    def __init__(self, chunks: AsyncIterator[bytes], *, request: str, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        """Read from `chunks`, pieces of any size; `request` is for error messages."""
        self._chunks = chunks
        self._request = request
        self._max_line_bytes = max_line_bytes
        self._begun: list[bytes] = []
        self._begun_bytes = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[bytes]:
        while True:
            lines = (await anext(self._chunks)).split(b"\n")  # the end of the chunks is our end
            rest = lines.pop()
            if lines:
                lines[0] = b"".join([*self._begun, lines[0]])
                self._begun.clear()
                self._begun_bytes = 0
            self._begin(rest)
            if whole := [line for line in map(_without_cr, lines) if line]:
                return whole

    def _begin(self, part: bytes) -> None:
        """Keep a part of a line whose end has not come."""
        self._begun_bytes += len(part)
        if self._begun_bytes > self._max_line_bytes:
            raise DecodeError(f"a line of more than {self._max_line_bytes} bytes", request=self._request)
        self._begun.append(part)


def _without_cr(line: bytes) -> bytes:
    return line[:-1] if line.endswith(b"\r") else line
