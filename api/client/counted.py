"""A body whose chunks are counted while they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Counted:
    """Iterates over `chunks`. `count` is how many bytes have come, `ended` says that these were all."""

    __slots__ = ("_chunks", "count", "ended")

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self.count = 0
        self.ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self.ended = True
            raise
        self.count += len(chunk)
        return chunk
