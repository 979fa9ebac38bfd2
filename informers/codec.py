"""Decoding: turns list pages and watch lines of one resource into frozen structs.

A list page, or the lines of a watch, are decoded into structs in one pass. If that fails because an object has a field of the
wrong type, each object is decoded separately. So an undecodable object does not keep other objects out of the cache, and
the common case has no overhead.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from operator import or_
from typing import Any, Final, Generic, cast, get_args

import msgspec

from tfjob_operator.api.client.decoding import UNDECODABLE, lines_of
from tfjob_operator.api.client.errors import DecodeError
from tfjob_operator.api.decoding import after_first, decode, truncated_to_levels
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct, meta_key
from tfjob_operator.api.protobuf import METADATA, MalformedError, Message, read
from tfjob_operator.informers.deltas import Added, Bookmark, Deleted, Modified, T

ONE_PASS_BYTES: Final = 4_000_000
"""Larger pages are decoded in pieces, yielding to the loop in between: 4 MB take about 10 ms, and a page of 500 pods has 2.6
MB. Decoding in pieces takes a third more time, since it reads the bytes twice."""

PIECE: Final = 500
"""Objects decoded before yielding to the loop: 2 ms for pods."""

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark that follows the last object that existed when the watch started."""

_TRAILING: Final = re.compile(r"trailing characters \(byte (\d+)\)")

_PLAIN: Final = frozenset({Added, Modified, Deleted})


class Skipped(msgspec.Struct, frozen=True):
    """An object left out because it could not be decoded. `key` and `resource_version` are "" if its metadata is unreadable."""

    error: Exception
    key: str = ""
    resource_version: str = ""
    deleted: bool = False


class WatchError(msgspec.Struct, frozen=True):
    """An ERROR event: the server ends the watch and sends the reason as a Status."""

    status: bytes


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """One page of a list. The last page has an empty `continue_token`."""

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
    """Decodes one resource into one type. Stateless, so informers may share it.

    The type replaces client-go's transform function: only the struct's fields are kept, in lists and watches alike.
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

        Raises TypeError if the struct or one in its fields is not frozen: all handlers share the objects of a cache, and a
        change of one would look like a state of the cluster. For the same reason, declare fields as Mapping and tuple, which
        type checkers protect, instead of dict and list.

        If the struct declares its kind (`tag_field="kind", tag="Pod"`), the kind is checked during decoding, and all events
        that arrive together are decoded in one pass. Otherwise each line is searched for the kind, which requires a copy of the
        line.

        A field of type `msgspec.Raw` keeps its JSON, and its readers decode it. It takes less CPU and memory than a Mapping.

        `on_undecodable(raw, error)` may return a substitute for an object that does not match the type. Without it, or if
        it raises, the object is skipped: the cache keeps the last decoded version, if any, and the reflector logs and counts
        the object. If a list contains an object with an unreadable name, no object is reported as deleted after that list.

        `message` describes the struct's fields in protobuf. With it, lists are requested in protobuf, which takes a fifth of
        the API server CPU time that JSON takes; custom resources do not support protobuf. Watches use JSON. Raises TypeError
        if the struct has fields of type `msgspec.Raw`, which protobuf cannot fill.
        """
        types = types_in(kind)
        structs = [each for each in types if issubclass(each, msgspec.Struct)]
        if mutable := [each.__name__ for each in structs if not each.__struct_config__.frozen]:
            raise TypeError(
                f"objects of a cache are shared, so declare these structs with frozen=True: {', '.join(mutable)}"
            )
        self._keeps_json = msgspec.Raw in types
        if self._keeps_json and message is not None:
            raise TypeError(
                f"{kind.__name__} has fields of type msgspec.Raw, which protobuf cannot fill: omit `message`"
            )
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

    def is_like(self, other: Codec[T]) -> bool:
        """Return True if both decode alike: the same resource and type, with the same hook and message."""
        return (self.resource, self.kind, self.message, self._on_undecodable) == (
            *(other.resource, other.kind, other.message, other._on_undecodable),
        )

    async def decode_page(self, body: bytes) -> ListPage[T]:
        """Decode a page, yielding to the event loop between pieces.

        Raises DecodeError if it is not a list of objects.
        """
        if len(body) <= ONE_PASS_BYTES:
            try:
                page = self._page.decode(body)
            except UNDECODABLE:
                pass  # perhaps only one object is undecodable
            else:
                self.check_list_kind(page.kind)
                return ListPage(
                    self._detach(page.items or []), page.metadata.resource_version, page.metadata.continue_token
                )
        return await self._decode_page_in_pieces(body)

    async def _decode_page_in_pieces(self, body: bytes) -> ListPage[T]:
        try:
            raw = decode(self._raw_page, body)
        except UNDECODABLE as error:
            raise DecodeError(f"not a list of {self.resource}: {error}") from error
        self.check_list_kind(raw.kind)
        items, skipped = await self._decode_objects(raw.items or ())
        return ListPage(items, raw.metadata.resource_version, raw.metadata.continue_token, skipped)

    async def decode_items(self, items: bytes) -> tuple[list[T], list[Skipped]] | None:
        """Decode comma-separated objects; also return the skipped ones. Returns None if the bytes are not whole objects."""
        text = b"[%b]" % items
        try:
            return self._detach(self._items.decode(text)), []
        except UNDECODABLE:
            pass  # perhaps only one object is undecodable
        try:
            raw = decode(self._raw_items, text)
        except UNDECODABLE:
            return None
        return await self._decode_objects(raw)

    def decode_message(self, message: Message, buffer: bytes, begin: int, end: int) -> T | Skipped:
        """Decode the protobuf object at `buffer[begin:end]`, whose fields `message` describes."""
        try:
            found = read(buffer, begin, end, message)
        except MalformedError as error:
            return _skip(_head_of_message(buffer, begin, end), error)
        try:
            return msgspec.convert(found, self.kind)
        except UNDECODABLE as error:
            return self._substitute(msgspec.Raw(msgspec.json.encode(found)), error)

    def end_of_objects(self, items: bytes) -> int:
        """Return the index of the comma after the last complete object in `items`, or 0. `items` starts with an object."""
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
        return self._detach(items), skipped

    def _detach(self, items: list[T]) -> list[T]:
        """Copy the JSON that objects keep; otherwise each would hold the whole list or chunk from which it was decoded."""
        if self._keeps_json:
            for item in items:
                _detached(item)
        return items

    def check_list_kind(self, kind: str) -> None:
        """Raise DecodeError unless `kind` is a list kind. A Status mistaken for an empty list would delete every object."""
        if not kind.endswith("List"):
            raise DecodeError(f"not a list of {self.resource}: kind {kind!r}")

    def decode_events(self, blocks: Sequence[memoryview]) -> tuple[list[WatchEvent[T]], WatchError | None]:
        """Decode blocks of whole watch lines; return the events, and the ERROR event that ended them, if any.

        Blocks that contain only plain changes of this resource are decoded in one pass; otherwise all blocks are decoded line
        by line. Raises DecodeError for a line that is not an event.
        """
        events, failure = self._decode_blocks(blocks)
        if self._keeps_json:
            self._detach([event.object for event in events if isinstance(event, (Added, Modified, Deleted))])
        return events, failure

    def _decode_blocks(self, blocks: Sequence[memoryview]) -> tuple[list[WatchEvent[T]], WatchError | None]:
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

    def _decode_one_by_one(self, blocks: Sequence[memoryview]) -> tuple[list[WatchEvent[T]], WatchError | None]:
        events: list[WatchEvent[T]] = []
        for line in lines_of(blocks):
            event = self.decode_event(line)
            if isinstance(event, WatchError):
                return events, event
            events.append(event)
        return events, None

    def decode_event(self, line: bytes) -> WatchEvent[T] | WatchError:
        """Decode one line of a watch. Raises DecodeError if it is not an event."""
        try:
            event = self._event.decode(line)
        except UNDECODABLE:
            return self._decode_event_carefully(line)
        if isinstance(event, _WireBookmark):
            meta = event.object.metadata
            return Bookmark(meta.resource_version, (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true")
        if isinstance(event, _WireError):
            return WatchError(bytes(event.object))
        if self._says_kind or self._kind_mark in line:  # cheaper than decoding `kind`
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
            return self._substitute(raw, error)

    def _substitute(self, raw: msgspec.Raw, error: Exception) -> T | Skipped:
        if self._on_undecodable is not None:
            try:
                return self._on_undecodable(truncated_to_levels(bytes(raw)), error)
            except Exception as failure:  # noqa: BLE001 - an error in the callback affects this object only
                error = failure
        return _skip(self._read_head(raw), error)

    def _read_head(self, raw: msgspec.Raw) -> _Head:
        try:
            return decode(self._head, raw)
        except UNDECODABLE:
            return _Head()


def types_in(kind: object) -> list[type]:
    """Return all types of which an object of this type consists."""
    found: dict[type, None] = {}
    waiting = [kind]
    while waiting:
        each = waiting.pop()
        waiting += get_args(each)
        if isinstance(each, type) and each not in found:
            found[each] = None
            if issubclass(each, msgspec.Struct):
                waiting += [field.type for field in msgspec.structs.fields(each)]
    return [*found]


@cache
def _fields_with_json(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the names of the fields that keep JSON, or have structs that do."""
    return tuple(each.name for each in msgspec.structs.fields(kind) if msgspec.Raw in types_in(each.type))


def _detached(value: Any) -> Any:
    """Return the value with copies of the JSON that it keeps; a struct is changed in place."""
    if isinstance(value, msgspec.Raw):
        return value.copy()
    if isinstance(value, msgspec.Struct):
        for name in _fields_with_json(type(value)):
            msgspec.structs.force_setattr(value, name, _detached(getattr(value, name)))
    elif isinstance(value, (list, tuple)):
        return type(value)(map(_detached, value))
    elif isinstance(value, dict):
        return {key: _detached(each) for key, each in value.items()}
    return value


def _after_first(decoder: msgspec.json.Decoder[msgspec.Raw], values: memoryview) -> int:
    """Return the length of the first value including its separator; 0 if it cannot be determined.

    msgspec reports the length only in an error message. If the wording of the message changes, lists are not decoded until they
    are complete; nothing else depends on it.
    """
    try:
        decoder.decode(values)
    except RecursionError:
        return after_first(values)
    except UNDECODABLE as error:
        if (match := _TRAILING.search(str(error))) is not None:
            return int(match[1])
    return 0


def _head_of_message(buffer: bytes, begin: int, end: int) -> _Head:
    try:
        return msgspec.convert(read(buffer, begin, end, METADATA), _Head)
    except (MalformedError, *UNDECODABLE):
        return _Head()


def _skip(head: _Head, error: Exception) -> Skipped:
    return Skipped(error, meta_key(head.metadata), head.metadata.resource_version)
