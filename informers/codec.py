"""From JSON to deltas: how the bytes of one resource become frozen structs.

A list page, and the lines of a watch, are decoded in one typed pass. Only if that fails (an object with a wrong type in it,
B01) are they taken apart and decoded object by object. So one object that cannot be decoded keeps no other out of the
cache, and the common case pays nothing for that.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, Final, Generic, cast

import msgspec

from tfjob_operator.api.client.decoding import UNDECODABLE, lines_of
from tfjob_operator.api.client.errors import DecodeError
from tfjob_operator.api.decoding import after_first, decode, levelled
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct, meta_key
from tfjob_operator.api.protobuf import METADATA, MalformedError, Message, read
from tfjob_operator.informers.deltas import Added, Bookmark, Deleted, Modified, T

ONE_PASS_BYTES: Final = 4_000_000
"""A page larger than this is decoded in pieces, with the loop running in between: 4 MB decode in about 10 ms, and a page of
500 pods has 2.6 MB. The price of the pieces is a second pass over the bytes, about a third more time."""

PIECE: Final = 500
"""Objects decoded between two turns of the loop: 2 ms of pods."""

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark after the last object that existed when a watch began (RF-27)."""

_TRAILING: Final = re.compile(r"trailing characters \(byte (\d+)\)")

_PLAIN: Final = frozenset({Added, Modified, Deleted})


class Skipped(msgspec.Struct, frozen=True):
    """An object that could not be decoded and was left out. Without readable metadata `key` and `resource_version` are ""."""

    error: Exception
    key: str = ""
    resource_version: str = ""
    deleted: bool = False


class Failure(msgspec.Struct, frozen=True):
    """An ERROR event: the server ends the watch and says why in a Status."""

    status: bytes


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list. An empty `continue_token` says that it is the last one."""

    items: list[T]
    resource_version: str
    continue_token: str = ""
    skipped: list[Skipped] = field(default_factory=list)


WatchEvent = Added[T] | Modified[T] | Deleted[T] | Bookmark | Skipped


class _Head(Struct, frozen=True):
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class _BookmarkMeta(Struct, frozen=True):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _BookmarkHead(Struct, frozen=True):
    metadata: _BookmarkMeta = _BookmarkMeta()


class _WireBookmark(msgspec.Struct, frozen=True, tag="BOOKMARK", tag_field="type"):
    object: _BookmarkHead


class _WireError(msgspec.Struct, frozen=True, tag="ERROR", tag_field="type"):
    object: msgspec.Raw


class _WireEvent(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _ListMeta(Struct, frozen=True):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class _WirePage(msgspec.Struct, Generic[T], frozen=True):
    kind: str
    metadata: _ListMeta
    items: list[T] | None = None  # Go writes an empty list as null


class _RawPage(msgspec.Struct, frozen=True):
    kind: str
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class Codec(Generic[T]):
    """Decodes one resource into one type. Stateless, so any number of informers may share it.

    The type does what a transform does in client-go (SI-12): of each object only the fields of the struct are kept, in
    lists and watches alike.
    """

    def __init__(
        self,
        resource: Resource,
        kind: type[T],
        *,
        on_undecodable: Callable[[bytes, Exception], T] | None = None,
        message: Message | None = None,
    ) -> None:
        """Decode `resource` into `kind`, a frozen msgspec struct with `metadata`.

        A struct that says its kind (`tag_field="kind", tag="Pod"`) has it checked as it is decoded, so that all events that
        arrive together are decoded in one pass; otherwise it is looked for in each line, which costs a copy of the line.

        An object that does not fit is kept as what `on_undecodable(raw, error)` makes of it (B01). Without that function, or
        if it raises, the object is skipped: the cache keeps what it knew of it, if anything, and the reflector logs and counts
        it. While a list holds an object whose very name cannot be read, nothing is reported as deleted by that list.

        With `message`, the fields of the struct in protobuf, lists are asked for in protobuf, which costs an API server a fifth
        of the time; custom resources have none. Watches are JSON.
        """
        self.resource = resource
        self.kind = kind
        self.message = message
        self._on_undecodable = on_undecodable
        generic: tuple[Any, ...] = (Added, Modified, Deleted)
        typed: Any = reduce(or_, [event[kind] for event in generic])
        page: Any = _WirePage
        self._event = msgspec.json.Decoder[Any](typed | _WireBookmark | _WireError)
        self._page = msgspec.json.Decoder[_WirePage[T]](page[kind])
        self._items = msgspec.json.Decoder[list[T]](list[kind])  # type: ignore[valid-type]
        self._raw = msgspec.json.Decoder(msgspec.Raw)
        self._raw_items = msgspec.json.Decoder(list[msgspec.Raw])
        self._object = msgspec.json.Decoder(kind)
        self._raw_event = msgspec.json.Decoder(_WireEvent)
        self._raw_page = msgspec.json.Decoder(_RawPage)
        self._head = msgspec.json.Decoder(_Head)
        self._kind_mark = f'"kind":"{resource.kind}"'.encode()
        config = cast("type[msgspec.Struct]", kind).__struct_config__
        self._says_kind = (config.tag_field, config.tag) == ("kind", resource.kind)

    async def decode_page(self, body: bytes) -> Page[T]:
        """Decode a page, letting the loop run in between. Raises DecodeError if it is no list of objects (RF-12)."""
        if len(body) <= ONE_PASS_BYTES:
            try:
                page = self._page.decode(body)
            except UNDECODABLE:
                pass  # perhaps just one object: the careful way finds out
            else:
                self.check_list_kind(page.kind)
                return Page(page.items or [], page.metadata.resource_version, page.metadata.continue_token)
        return await self._decode_page_in_pieces(body)

    async def _decode_page_in_pieces(self, body: bytes) -> Page[T]:
        try:
            raw = decode(self._raw_page, body)
        except UNDECODABLE as error:
            raise DecodeError(f"not a list of {self.resource}: {error}") from error
        self.check_list_kind(raw.kind)
        items, skipped = await self._decode_objects(raw.items or ())
        return Page(items, raw.metadata.resource_version, raw.metadata.continue_token, skipped)

    async def decode_items(self, items: bytes) -> tuple[list[T], list[Skipped]] | None:
        """Decode objects with commas between them; return also those that were left out. None if not all are whole objects."""
        text = b"[%b]" % items
        try:
            return self._items.decode(text), []
        except UNDECODABLE:
            pass  # perhaps just one object
        try:
            raw = decode(self._raw_items, text)
        except UNDECODABLE:
            return None
        return await self._decode_objects(raw)

    def decode_message(self, message: Message, buffer: bytes, begin: int, end: int) -> T | Skipped:
        """Decode an object in protobuf, with these fields, between these places of a buffer."""
        try:
            found = read(buffer, begin, end, message)
        except MalformedError as error:
            return _skip(_head_of_message(buffer, begin, end), error)
        try:
            return msgspec.convert(found, self.kind)
        except UNDECODABLE as error:
            return self._rescue(msgspec.Raw(msgspec.json.encode(found)), error)

    def end_of_objects(self, items: bytes) -> int:
        """Return where the last whole item ends, at a comma; 0 if none does. `items` begin with an item. Reads bytes once."""
        begin, view = 0, memoryview(items)
        while (after := _after_first(self._raw, view[begin:])) and items[begin + after - 1] == ord(","):
            begin += after
        return max(0, begin - 1)

    async def _decode_objects(self, raw: Sequence[msgspec.Raw]) -> tuple[list[T], list[Skipped]]:
        items: list[T] = []
        skipped: list[Skipped] = []
        for number, item in enumerate(raw, 1):
            decoded = self._decode_object(item)
            if isinstance(decoded, Skipped):
                skipped.append(decoded)
            else:
                items.append(decoded)
            if number % PIECE == 0:
                await asyncio.sleep(0)
        return items, skipped

    def check_list_kind(self, kind: str) -> None:
        """Raise DecodeError unless this is the kind of a list: a Status must not pass for an empty one, which deletes all."""
        if not kind.endswith("List"):
            raise DecodeError(f"not a list of {self.resource}: kind {kind!r}")

    def decode_events(self, blocks: Sequence[memoryview]) -> tuple[list[WatchEvent[T]], Failure | None]:
        """Decode blocks of whole lines of a watch, up to an ERROR event, which is returned beside what came before it.

        One typed pass; if there is anything but plain changes of our resource in it, line by line. Raises DecodeError for a
        line that is no event.
        """
        if not self._says_kind:
            return self._decode_one_by_one(blocks)
        events: list[WatchEvent[T]] = []
        try:
            for block in blocks:
                events += self._event.decode_lines(block)
        except UNDECODABLE:
            return self._decode_one_by_one(blocks)
        if not _PLAIN.issuperset(map(type, events)):
            return self._decode_one_by_one(blocks)
        return events, None

    def _decode_one_by_one(self, blocks: Sequence[memoryview]) -> tuple[list[WatchEvent[T]], Failure | None]:
        events: list[WatchEvent[T]] = []
        for line in lines_of(blocks):
            event = self.decode_event(line)
            if isinstance(event, Failure):
                return events, event
            events.append(event)
        return events, None

    def decode_event(self, line: bytes) -> WatchEvent[T] | Failure:
        """Decode one line of a watch. Raises DecodeError when it is no event at all."""
        try:
            event = self._event.decode(line)
        except UNDECODABLE:
            return self._decode_event_carefully(line)
        if isinstance(event, _WireBookmark):
            meta = event.object.metadata
            return Bookmark(meta.resource_version, (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true")
        if isinstance(event, _WireError):
            return Failure(bytes(event.object))
        if self._says_kind or self._kind_mark in line:  # cheaper than decoding a field that no slice has
            return cast("WatchEvent[T]", event)
        return self._decode_event_carefully(line)

    def _decode_event_carefully(self, line: bytes) -> WatchEvent[T]:
        try:
            wire = decode(self._raw_event, line)
            head = self._read_head(wire.object)
        except UNDECODABLE as error:
            raise DecodeError(f"not a watch event of {self.resource}: {error}") from error
        if head.kind not in {self.resource.kind, ""}:
            return _skip(head, TypeError(f"expected a {self.resource.kind}, got a {head.kind}"))
        decoded = self._decode_object(wire.object)
        match wire.type, decoded:
            case "DELETED", Skipped():
                return msgspec.structs.replace(decoded, deleted=True)
            case _, Skipped():
                return decoded
            case "ADDED", _:
                return Added(decoded)
            case "MODIFIED", _:
                return Modified(decoded)
            case "DELETED", _:
                return Deleted(decoded)
            case _:
                return _skip(head, ValueError(f"unknown event type {wire.type!r}"))

    def _decode_object(self, raw: msgspec.Raw) -> T | Skipped:
        try:
            return decode(self._object, raw)
        except UNDECODABLE as error:
            return self._rescue(raw, error)

    def _rescue(self, raw: msgspec.Raw, error: Exception) -> T | Skipped:
        if self._on_undecodable is not None:
            try:
                return self._on_undecodable(levelled(bytes(raw)), error)
            except Exception as failure:  # noqa: BLE001 - a caller's function that fails must cost this one object only
                error = failure
        return _skip(self._read_head(raw), error)

    def _read_head(self, raw: msgspec.Raw) -> _Head:
        try:
            return decode(self._head, raw)
        except UNDECODABLE:
            return _Head()


def _after_first(decoder: msgspec.json.Decoder[msgspec.Raw], values: memoryview) -> int:
    """How many bytes the first of these values has, with what separates it from the next one; 0 if that cannot be seen.

    msgspec tells it in the words of an error only. Should they change, nothing worse comes of it than lists that are decoded
    when they are whole.
    """
    try:
        decoder.decode(values)
    except RecursionError:
        return after_first(values)
    except UNDECODABLE as error:
        if (found := _TRAILING.search(str(error))) is not None:
            return int(found[1])
    return 0


def _head_of_message(buffer: bytes, begin: int, end: int) -> _Head:
    try:
        return msgspec.convert(read(buffer, begin, end, METADATA), _Head)
    except (MalformedError, *UNDECODABLE):
        return _Head()


def _skip(head: _Head, error: Exception) -> Skipped:
    return Skipped(error, meta_key(head.metadata), head.metadata.resource_version)
