"""The source of a reflector: the protocol `ListerWatcher`, its implementation over the API client, and a pager.

API servers serve a list from their watch cache as a whole, ignoring the page size: 250 MB for the pods of one job with 2,500
workers. To keep memory low, complete items are cut off and decoded as they arrive, and their bytes dropped. At startup, memory
is then needed only for the cache and one piece. When the body ends, the remaining bytes are decoded as a list.

In JSON, the end of an item is guessed and then verified. The guess is `},` followed by the first bytes of the first item, up to
and including the second `{` of that item. Such bytes may also occur inside an item; a piece cut there is not valid JSON and
does not decode. In that case the items are parsed one by one, which is exact and a few times slower; only crafted content
requires it. In protobuf, each item is preceded by its length, so no guess is needed.

Both list readers are provisional: API servers of Kubernetes 1.34 and later stream a list as events of a watch, one object at a
time. They go when 1.33 is out of support.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Final, Generic, Protocol

import msgspec

from tfjob_operator.api import protobuf
from tfjob_operator.api.client.decoding import UNDECODABLE
from tfjob_operator.api.client.errors import DecodeError, ExpiredError, error_from_event
from tfjob_operator.api.client.options import ListOptions, ListReadOptions, with_page
from tfjob_operator.api.client.rest import DEAD_PEER_S, RestClient
from tfjob_operator.informers.codec import Codec, ListPage, Skipped, WatchEvent
from tfjob_operator.informers.deltas import T

PIECE_BYTES: Final = 500_000
"""Bytes buffered before cutting: about 100 pods, which decode in 2 ms before the loop runs again."""
_ITEMS: Final = re.compile(rb'"items"\s*:\s*\[\s*(?=\S)')
_BEGINNING: Final = re.compile(rb"\{[^][{}]{1,200}\{")


class _Envelope(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


class ListReader(Generic[T]):
    """Reads one page of a JSON list. Single use.

    Invariant: `_head` followed by `_held` is a list of all items that are not decoded yet.
    """

    def __init__(self, codec: Codec[T], *, piece_bytes: int = PIECE_BYTES) -> None:
        self._codec = codec
        self._piece_bytes = piece_bytes
        self._enough: float = piece_bytes
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._head = b""
        self._mark = b""
        self._items: list[T] = []
        self._skipped: list[Skipped] = []

    async def read(self, chunks: AsyncIterator[bytes]) -> ListPage[T]:
        """Decode the body in pieces; return the same page as `Codec.decode_page`. Raises DecodeError and errors of `chunks`."""
        async for chunk in chunks:
            self._held.append(chunk)
            self._held_bytes += len(chunk)
            if self._held_bytes >= self._enough:
                await self._cut()
        rest = await self._codec.decode_page(b"".join((self._head, *self._held)))
        if not self._items and not self._skipped:
            return rest
        self._items += rest.items
        self._skipped += rest.skipped
        return ListPage(self._items, rest.resource_version, rest.continue_token, self._skipped)

    async def _cut(self) -> None:
        """Decode complete items and keep the remainder."""
        text = b"".join(self._held)
        self._held.clear()
        if not self._head:
            begin = _begin_of_items(text)
            if not begin:
                self._keep(text, math.inf)  # unknown format: decode at the end of the body
                return
            self._head, text = text[:begin], text[begin:]
            beginning = _BEGINNING.match(text)
            self._mark = b"}," + beginning.group() if beginning is not None else b""
        end = text.rfind(self._mark) + 1 if self._mark else 0
        if end and await self._decode(text[:end]):
            text = text[end + 1 :]
        else:
            end = self._codec.end_of_objects(text)
            if end and not await self._decode(text[:end]):
                raise DecodeError(f"not a list of {self._codec.resource}: an item is not valid JSON")
            text = text[end + 1 :] if end else text
        # An item longer than a piece is parsed again when the number of received bytes has doubled.
        self._keep(text, max(self._piece_bytes, 2 * len(text)))
        await asyncio.sleep(0)

    def _keep(self, text: bytes, enough: float) -> None:
        self._held.append(text)
        self._held_bytes = len(text)
        self._enough = enough

    async def _decode(self, items: bytes) -> bool:
        """Decode comma-separated items. Returns False if the bytes are not whole items."""
        decoded = await self._codec.decode_items(items)
        if decoded is None:
            return False
        self._items += decoded[0]
        self._skipped += decoded[1]
        return True


def _begin_of_items(text: bytes) -> int:
    """Return the offset of the first item of a list; 0 if unknown. Only the server controls the bytes before it."""
    match = _ITEMS.search(text)
    if match is None or text[match.end()] == ord("]"):
        return 0
    try:
        envelope = msgspec.json.decode(text[: match.end()] + b"]}", type=_Envelope)
    except UNDECODABLE:
        return 0
    return match.end() if envelope.items == [] else 0


PIECE: Final = 50
"""Objects decoded before yielding to the loop: 1 ms for pods."""


class ProtobufListReader(Generic[T]):
    """Reads one page of a protobuf list. Single use."""

    def __init__(self, codec: Codec[T], message: protobuf.Message, *, piece_bytes: int = PIECE_BYTES) -> None:
        """Decode items with `codec`; `message` describes their fields."""
        self._codec = codec
        self._message = message
        self._piece_bytes = piece_bytes
        self._left: int | None = None
        """Remaining bytes of the list; None before its length is known."""
        self._items: list[T] = []
        self._skipped: list[Skipped] = []
        self._meta: dict[str, str] | None = None

    async def read(self, chunks: AsyncIterator[bytes]) -> ListPage[T]:
        """Decode a body, yielding to the event loop between pieces.

        Raises DecodeError for an incomplete list, and errors of `chunks`.
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
                    # An item longer than a piece is parsed again when the number of received bytes has doubled.
                    enough = max(self._piece_bytes, 2 * held_bytes)
            await self._decode(b"".join(held))
        except protobuf.MalformedError as error:
            raise DecodeError(f"not a list of {self._codec.resource}: {error}") from error
        if self._left != 0 or self._meta is None:
            raise DecodeError(f"not a list of {self._codec.resource}: it is truncated or has no metadata")
        version, token = self._meta.get("resourceVersion", ""), self._meta.get("continue", "")
        return ListPage(self._items, version, token, self._skipped)

    async def _decode(self, text: bytes) -> bytes:
        """Decode complete items and return the remainder."""
        at = 0
        if self._left is None:
            try:
                kind, at, end = protobuf.open_envelope(text)
            except IndexError:
                return text
            self._codec.check_list_kind(kind)
            self._left = end - at
        while self._left:
            try:
                key, begin = protobuf.varint(text, at)
                length, begin = protobuf.varint(text, begin)
            except IndexError:
                break
            end = begin + length
            if key & 7 != protobuf.LENGTH or end - at > self._left:
                raise protobuf.MalformedError("an item is not a message, or is longer than the list")
            if end > len(text):
                break
            self._left -= end - at
            at = end
            self._take(key >> 3, text, begin, end)
            if (len(self._items) + len(self._skipped)) % PIECE == 0:
                await asyncio.sleep(0)
        return text[at:]

    def _take(self, field: int, text: bytes, begin: int, end: int) -> None:
        if field == protobuf.META:
            self._meta = protobuf.read(text, begin, end, protobuf.LIST_META)
        elif field == protobuf.ITEMS:
            decoded = self._codec.decode_message(self._message, text, begin, end)
            if isinstance(decoded, Skipped):
                self._skipped.append(decoded)
            else:
                self._items.append(decoded)


PROTOBUF_OR_JSON: Final = f"{protobuf.MEDIA_TYPE}, application/json"
"""API servers choose the first type they support; proxies may support JSON only."""
Batch = list[WatchEvent[T]]
"""Events that arrived together, in order."""


class ListerWatcher(Protocol[T]):
    """A collection that can be listed and watched. Namespace and selectors are up to the implementation."""

    async def list(self, options: ListOptions) -> ListPage[T]:
        """Read one page. Raises ApiError."""
        ...

    def watch(self, options: ListOptions) -> AbstractAsyncContextManager[AsyncIterator[Batch[T]]]:
        """Open a watch; inside the block, iterate over batches of events, in order.

        Entering raises ApiError if the watch cannot be opened. The iteration ends when the server closes the stream, and raises
        StatusError for an ERROR event, TransportError for a broken stream, DecodeError for invalid data.
        """
        ...


class ListWatch(Generic[T]):
    """`ListerWatcher` over a `RestClient`: one resource, filtered by namespace and selectors, decoded by a codec."""

    def __init__(
        self,
        client: RestClient,
        codec: Codec[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        idle_s: float = DEAD_PEER_S,
    ) -> None:
        """List and watch through `client`. A watch silent for `idle_s` seconds is resumed on a new connection.

        Raises ValueError for a namespace that cannot exist, whose cache would be empty forever.
        """
        codec.resource.check_namespace(namespace)
        self._client = client
        self._idle_s = idle_s
        self._codec = codec
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector

    async def list(self, options: ListOptions) -> ListPage[T]:
        """See `ListerWatcher.list`."""
        how: ListReadOptions = {} if self._codec.message is None else {"accept": PROTOBUF_OR_JSON}
        return await self._client.read_list(self._codec.resource, self._filtered(options), self._read, **how)

    async def _read(self, chunks: AsyncIterator[bytes]) -> ListPage[T]:
        """Read a list in the encoding chosen by the server."""
        message = self._codec.message
        if message is None:
            return await ListReader(self._codec).read(chunks)
        begin = b""
        while len(begin) < len(protobuf.MAGIC) and (chunk := await anext(chunks, b"")):
            begin += chunk
        if begin.startswith(protobuf.MAGIC):
            return await ProtobufListReader(self._codec, message).read(_after(begin, chunks))
        return await ListReader(self._codec).read(_after(begin, chunks))

    @asynccontextmanager
    async def watch(self, options: ListOptions) -> AsyncIterator[AsyncIterator[Batch[T]]]:
        """See `ListerWatcher.watch`."""
        async with (
            self._client.watch(self._codec.resource, self._filtered(options), idle_s=self._idle_s) as lines,
            aclosing(self._events(lines.blocks)) as events,
        ):
            yield events

    async def _events(self, batches: AsyncIterator[Sequence[memoryview]]) -> AsyncGenerator[Batch[T], None]:
        async for blocks in batches:
            events, failure = self._codec.decode_events(blocks)
            yield events  # events before an ERROR event are valid
            if failure is not None:
                raise error_from_event(failure.status, request=f"WATCH {self._codec.resource}")

    def _filtered(self, options: ListOptions) -> ListOptions:
        return replace(
            options, namespace=self._namespace, label_selector=self._label_selector, field_selector=self._field_selector
        )


async def _after(begin: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the bytes already read, then the rest."""
    yield begin
    async for chunk in chunks:
        yield chunk


PAGE_SIZE: Final = 500
"""Client-go's value. A page of 500 pods has 2.6 MB and decodes in about 2 ms."""


class Pager(Generic[T]):
    """Follows continue tokens, decoding pages as they arrive.

    Invariant: the result is a consistent snapshot at the resourceVersion of the first page. The server's token binds the other
    pages to this version.
    """

    def __init__(self, source: ListerWatcher[T]) -> None:
        self._source = source

    async def list(self, options: ListOptions, page_size: int) -> tuple[ListPage[T], bool]:
        """Return everything that `options` select, and True if it took more than one page.

        `page_size` 0 requests everything at once. If a continue token expires, the list is restarted without paging at the
        version originally requested. Raises ApiError. The error is an ExpiredError only if the version of the first page or of
        the restarted list has expired.
        """
        page = await self._source.list(replace(options, limit=page_size))
        if not page.continue_token:
            return page, False
        items, skipped = page.items, page.skipped
        version, token = page.resource_version, page.continue_token
        while token:
            try:
                page = await self._source.list(with_page(replace(options, limit=page_size), continue_token=token))
            except ExpiredError:
                return await self._source.list(replace(options, limit=0)), True
            items += page.items
            skipped += page.skipped
            token = page.continue_token
        return ListPage(items, version, "", skipped), True
