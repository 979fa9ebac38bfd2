"""Where a reflector gets its objects: the protocol `ListerWatcher`, its implementation on the API client, and a pager (RF-08).

In tests `fakes.source.FakeSource` implements the protocol.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Final, Generic, Protocol

from tfjob_operator.api.client.errors import ExpiredError, error_from_event
from tfjob_operator.api.client.options import ListOptions, ListReadOptions, with_page
from tfjob_operator.api.client.rest import DEAD_PEER_S, RestClient
from tfjob_operator.api.protobuf import MAGIC, MEDIA_TYPE
from tfjob_operator.informers.codec import Codec, Page, WatchEvent
from tfjob_operator.informers.deltas import T
from tfjob_operator.informers.list_reader import ListReader, ProtobufListReader

PROTOBUF_OR_JSON: Final = f"{MEDIA_TYPE}, application/json"
"""API servers take the first that they can serve; what stands between may know JSON alone."""
Batch = list[WatchEvent[T]]
"""Events that arrived together, in order."""


class ListerWatcher(Protocol[T]):
    """A collection that can be listed and watched. Only the implementation knows which one it is (namespace, selectors)."""

    async def list(self, options: ListOptions) -> Page[T]:
        """Read one page. Raises ApiError."""
        ...

    def watch(self, options: ListOptions) -> AbstractAsyncContextManager[AsyncIterator[Batch[T]]]:
        """Open a watch; inside the block iterate over batches of events, in order.

        Entering raises ApiError when the watch cannot be opened. The iteration ends when the server closes the stream, and
        raises StatusError for an ERROR event, TransportError for a broken stream, DecodeError for garbage.
        """
        ...


class ListWatch(Generic[T]):
    """`ListerWatcher` over a `RestClient`: one resource, narrowed by namespace and selectors, decoded by a codec."""

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
        """List and watch through `client`. A watch that is silent for `idle_s` seconds is opened again where it was (RF-29)."""
        self._client = client
        self._idle_s = idle_s
        self._codec = codec
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector

    async def list(self, options: ListOptions) -> Page[T]:
        """See `ListerWatcher.list`."""
        how: ListReadOptions = {} if self._codec.message is None else {"accept": PROTOBUF_OR_JSON}
        return await self._client.read_list(self._codec.resource, self._narrowed(options), self._read, **how)

    async def _read(self, chunks: AsyncIterator[bytes]) -> Page[T]:
        """Read a list in the encoding in which it comes."""
        message = self._codec.message
        if message is None:
            return await ListReader(self._codec).read(chunks)
        begin = b""
        while len(begin) < len(MAGIC) and (chunk := await anext(chunks, b"")):
            begin += chunk
        if begin.startswith(MAGIC):
            return await ProtobufListReader(self._codec, message).read(_after(begin, chunks))
        return await ListReader(self._codec).read(_after(begin, chunks))

    @asynccontextmanager
    async def watch(self, options: ListOptions) -> AsyncIterator[AsyncIterator[Batch[T]]]:
        """See `ListerWatcher.watch`."""
        async with (
            self._client.watch(self._codec.resource, self._narrowed(options), idle_s=self._idle_s) as lines,
            aclosing(self._events(lines.blocks)) as events,
        ):
            yield events

    async def _events(self, batches: AsyncIterator[Sequence[memoryview]]) -> AsyncGenerator[Batch[T], None]:
        async for blocks in batches:
            events, failure = self._codec.decode_events(blocks)
            yield events  # what came before a failure did happen
            if failure is not None:
                raise error_from_event(failure.status, request=f"WATCH {self._codec.resource}")

    def _narrowed(self, options: ListOptions) -> ListOptions:
        return replace(
            options,
            namespace=self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
        )


async def _after(begin: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield what was read already, and then the rest."""
    yield begin
    async for chunk in chunks:
        yield chunk


PAGE_SIZE: Final = 500
"""RF-07: client-go's choice. A page of 500 pods has 2.6 MB and decodes in about 2 ms."""


class Pager(Generic[T]):
    """Follows continue tokens. Pages are decoded as they arrive, so of their bytes hardly any are held.

    Invariant: what is returned is one consistent snapshot: its resourceVersion is that of the first page, to which the
    server's token binds the others.
    """

    def __init__(self, source: ListerWatcher[T]) -> None:
        self._source = source

    async def list(self, options: ListOptions, page_size: int) -> tuple[Page[T], bool]:
        """Read everything that `options` ask for; also say whether it came in more than one page.

        `page_size` 0 asks for everything at once. A continue token that expired under way is answered by one full list at
        the version originally asked for. Raises ApiError; ExpiredError only if the first page or that full list is expired.
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
        return Page(items, version, "", skipped), True
