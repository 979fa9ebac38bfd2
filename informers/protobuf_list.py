"""Decodes a list in protobuf while it arrives.

In it the length of each item stands before the item, so nothing is guessed, as `list_reader` has to with JSON.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic

from tfjob_operator.api.client.errors import DecodeError
from tfjob_operator.api.meta_messages import ITEMS, LIST_META, META
from tfjob_operator.api.protobuf import LENGTH, MalformedError, open_envelope, read, varint
from tfjob_operator.informers.codec import Page, Skipped
from tfjob_operator.informers.deltas import T

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tfjob_operator.api.protobuf import Message
    from tfjob_operator.informers.codec import Codec

PIECE_BYTES: Final = 500_000
"""What is gathered before it is decoded."""
PIECE: Final = 50
"""Objects decoded between two turns of the loop: 1 ms of pods."""


class ProtobufListReader(Generic[T]):
    """Reads one page of a list. For one use."""

    def __init__(self, codec: Codec[T], message: Message, *, piece_bytes: int = PIECE_BYTES) -> None:
        """Decode items by `codec`; `message` are their fields."""
        self._codec = codec
        self._message = message
        self._piece_bytes = piece_bytes
        self._left: int | None = None
        """Bytes of the list that are not decoded yet; None before its length is known."""
        self._items: list[T] = []
        self._skipped: list[Skipped] = []
        self._meta: dict[str, str] | None = None

    async def read(self, chunks: AsyncIterator[bytes]) -> Page[T]:
        """Read a body to its end. Raises what `chunks` raises, and DecodeError when it is not a whole list of objects.

        Lets the loop run between pieces.
        """
        held: list[bytes] = []
        held_bytes, enough = 0, self._piece_bytes
        try:
            async for chunk in chunks:
                held.append(chunk)
                held_bytes += len(chunk)
                if held_bytes >= enough:
                    held = [await self._decode(b"".join(held))]
                    held_bytes = len(held[0])
                    # An item that is longer than a piece is looked at again when twice as much of it is here.
                    enough = max(self._piece_bytes, 2 * held_bytes)
            await self._decode(b"".join(held))
        except MalformedError as error:
            raise DecodeError(f"not a list of {self._codec.resource}: {error}") from error
        if self._left != 0 or self._meta is None:
            raise DecodeError(f"not a list of {self._codec.resource}: it has no end, or no metadata")
        version, token = self._meta.get("resourceVersion", ""), self._meta.get("continue", "")
        return Page(self._items, version, token, self._skipped)

    async def _decode(self, text: bytes) -> bytes:
        """Decode what is whole, and return the rest."""
        at = 0
        if self._left is None:
            try:
                kind, at, end = open_envelope(text)
            except IndexError:
                return text
            self._codec.check_list_kind(kind)
            self._left = end - at
        while self._left:
            try:
                key, begin = varint(text, at)
                length, begin = varint(text, begin)
            except IndexError:
                break
            end = begin + length
            if key & 7 != LENGTH or end - at > self._left:
                raise MalformedError("an item is no message, or longer than the list")
            if end > len(text):
                break
            self._left -= end - at
            at = end
            self._take(key >> 3, text, begin, end)
            if (len(self._items) + len(self._skipped)) % PIECE == 0:
                await asyncio.sleep(0)
        return text[at:]

    def _take(self, field: int, text: bytes, begin: int, end: int) -> None:
        if field == META:
            self._meta = read(text, begin, end, LIST_META)
        elif field == ITEMS:
            decoded = self._codec.decode_message(self._message, text, begin, end)
            if isinstance(decoded, Skipped):
                self._skipped.append(decoded)
            else:
                self._items.append(decoded)
