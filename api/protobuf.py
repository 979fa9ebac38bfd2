"""Decodes protobuf messages into the equivalent JSON objects. Pure.

A protobuf list costs an API server a fifth of the CPU time of a JSON list (docs/design/scale.md). Messages contain
field numbers, but neither names nor types. A table therefore lists the fields that are read, with the numbers from
Kubernetes' `generated.proto`. Field numbers are never reused, so the tables are valid for all versions. Each other
field is skipped in one step. The tables in this module are those of k8s.io/apimachinery/pkg/apis/meta/v1 (July 2026):
the metadata of objects, lists and failures.

The result is the JSON object that the same API server would have written, with only these fields, and times as
datetimes. Callers do not need to know the encoding.

This module and `api.core_messages` are provisional, as the list readers that use them: see `informers.listwatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"
"""The first bytes of a response in this encoding, before the envelope (apimachinery: pkg/runtime/serializer/protobuf)."""
LENGTH: Final = 2
"""The wire type of values preceded by their length (protobuf.dev/programming-guides/encoding)."""
_VARINT: Final = 0
"""The wire type of integers."""
_FIXED: Final = {1: 8, 5: 4}
"""The wire types of fixed size. Kubernetes does not use the types 3 and 4, groups."""
LAYOUTS: Final = 64
"""The number of message lengths for which a layout is cached. Pods of a job differ by the digits of indices and addresses."""
LAYOUT_BYTES: Final = 256
"""The most header bytes of a cached layout; the metadata of a pod has 60. A tenant may write a hundred thousand annotations."""
ALIKE: Final = 512
"""The most cached messages of a type."""
ALIKE_BYTES: Final = 256
"""Longer messages are not cached."""
_Object = dict[str, Any]
PutBytes = Callable[[_Object, bytes, int, int], None]
PutWhole = Callable[[_Object, int], None]


class MalformedError(ValueError):
    """The bytes are not a valid message."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field that is read: its JSON name, and functions that store its value in an object; `of` is its message type."""

    name: str
    put_bytes: PutBytes | None = None
    put_whole: PutWhole | None = None
    of: Message | None = None


class Message:
    """The fields of a message that are read, by number.

    `alike`: most messages of this type, such as labels and conditions of pods, are byte-for-byte equal to an earlier one. The
    decoded values of the latest messages are cached, so callers must not modify these values.
    """

    __slots__ = ("_alike", "_layouts", "_put_bytes", "_put_whole", "fields")

    def __init__(self, fields: Mapping[int, Field], *, alike: bool = False) -> None:
        """Declare the fields that are read."""
        self.fields = fields
        # Keyed by the wire key, which combines number and wire type.
        self._put_bytes = {number << 3 | LENGTH: f.put_bytes for number, f in fields.items() if f.put_bytes}
        self._put_whole = {number << 3 | _VARINT: f.put_whole for number, f in fields.items() if f.put_whole}
        self._layouts: dict[int, _Layout] = {}
        self._alike = lru_cache(ALIKE)(self._read) if alike else None

    def read(self, text: bytes) -> dict[str, Any]:
        """Decode a message. Raises MalformedError, IndexError or KeyError, which all mean that it is malformed."""
        if self._alike is not None and len(text) <= ALIKE_BYTES:
            return self._alike(text)
        return self._read(text)

    def _read(self, text: bytes) -> _Object:
        if not text:
            return {}
        # Most messages have the layout of an earlier message of the same length: objects of a kind differ in the length of few
        # fields. Comparing all headers at once is faster than reading them one by one: 14 us instead of 25 us for a pod.
        layout = self._layouts.get(len(text))
        if layout is None or layout.heads(text) != layout.expected:
            layout = self._layout_of(text)
            if len(layout.expected) <= LAYOUT_BYTES:
                if len(self._layouts) >= LAYOUTS:
                    self._layouts.clear()
                self._layouts[len(text)] = layout
        found: _Object = {}
        for put, begin, end in layout.parts:
            put(found, text, begin, end)
        for put_whole, value in layout.numbers:
            put_whole(found, value)
        return found

    def _layout_of(self, text: bytes) -> _Layout:
        put_bytes, put_whole = self._put_bytes, self._put_whole
        places: list[int] = []
        parts: list[tuple[PutBytes, int, int]] = []
        numbers: list[tuple[PutWhole, int]] = []
        head, end = 0, len(text)
        while head < end:
            # Usually one byte: keys of field numbers below 16, and lengths below 128.
            key, at = text[head], head + 1
            if key > 127:
                key, at = varint(text, head)
            kind = key & 7
            if kind == LENGTH:
                length = text[at]
                at += 1
                if length > 127:
                    length, at = varint(text, at - 1)
                after = at + length
                if key in put_bytes:
                    parts.append((put_bytes[key], at, after))
            elif kind == _VARINT:
                value, at = varint(text, at)
                after = at
                if key in put_whole:
                    numbers.append((put_whole[key], value))
            else:
                after = at + _FIXED[kind]
            places += range(head, at)
            head = after
        if head != end:
            raise MalformedError("a field is longer than its message")
        # The extra 0 makes at least two places; for a single one itemgetter does not return a tuple.
        heads: Callable[[bytes], tuple[int, ...]] = itemgetter(0, *places)
        return _Layout(heads, heads(text), parts, numbers)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The positions of a message's fields.

    The header of a field is its key and its length; the header of a number is its key and its value. A message of the same
    length with the same bytes in all header positions has the same layout, since each header determines the position of the
    next.
    """

    heads: Callable[[bytes], tuple[int, ...]]
    """Returns the header bytes of a message."""
    expected: tuple[int, ...]
    """The header bytes of a message with this layout."""
    parts: Sequence[tuple[PutBytes, int, int]]
    """For each field that is read: the function that stores it in an object, its begin and end."""
    numbers: Sequence[tuple[PutWhole, int]]
    """For each number that is read: the function that stores it in an object, and its value."""


def text(name: str, *, always: bool = False) -> Field:
    """Declare a string field. Go's JSON omits an empty one (`omitempty`) unless it is `always` present."""

    def put(found: _Object, buffer: bytes, begin: int, end: int) -> None:
        if begin < end or always:
            found[name] = buffer[begin:end].decode(errors="replace")  # as Go's JSON does with invalid UTF-8

    return Field(name, put)


def number(name: str) -> Field:
    """Declare an int32 or int64 field."""

    def put(found: _Object, value: int) -> None:
        found[name] = _signed(value)

    return Field(name, put_whole=put)


def numbers(name: str) -> Field:
    """Declare a list of int32 or int64, each with its own key, as Kubernetes encodes them."""

    def put(found: _Object, value: int) -> None:
        found.setdefault(name, []).append(_signed(value))

    return Field(name, put_whole=put)


def boolean(name: str) -> Field:
    """Declare a boolean field."""

    def put(found: _Object, value: int) -> None:
        found[name] = bool(value)

    return Field(name, put_whole=put)


def one(name: str, of: Message) -> Field:
    """Declare a message field."""

    def put(found: _Object, buffer: bytes, begin: int, end: int) -> None:
        found[name] = of.read(buffer[begin:end])

    return Field(name, put, of=of)


def many(name: str, of: Message) -> Field:
    """Declare a list of messages."""

    def put(found: _Object, buffer: bytes, begin: int, end: int) -> None:
        found.setdefault(name, []).append(of.read(buffer[begin:end]))

    return Field(name, put, of=of)


def string_map(name: str) -> Field:
    """Declare a map of strings."""

    def put(found: _Object, buffer: bytes, begin: int, end: int) -> None:
        pair = _PAIR.read(buffer[begin:end])
        found.setdefault(name, {})[pair.get("key", "")] = pair.get("value", "")

    return Field(name, put)


def quantities(name: str) -> Field:
    """Declare a map of quantities, such as the resources of a node. JSON has their text."""

    def put(found: _Object, buffer: bytes, begin: int, end: int) -> None:
        pair = _RESOURCE.read(buffer[begin:end])
        found.setdefault(name, {})[pair.get("key", "")] = pair.get("value", {}).get("string", "")

    return Field(name, put)


def time(name: str) -> Field:
    """Declare a metav1.Time field. JSON has whole seconds; an empty field, which is Go's zero time, is null."""

    def put(found: _Object, buffer: bytes, begin: int, end: int) -> None:
        seconds = _TIMESTAMP.read(buffer[begin:end]).get("seconds")
        if seconds is not None:
            found[name] = _time(seconds)

    return Field(name, put)


def read(buffer: bytes, begin: int, end: int, of: Message) -> dict[str, Any]:
    """Decode the message between two positions as a JSON object. Raises MalformedError."""
    try:
        return of.read(buffer[begin:end])
    except (IndexError, KeyError):
        raise MalformedError("the message ends in a field, or has a wire type that Kubernetes does not use") from None


def open_envelope(buffer: bytes) -> tuple[str, int, int]:
    """Return kind, begin and end of an object in an envelope. Raises IndexError if bytes are missing, or MalformedError."""
    kind, at = "", len(MAGIC)
    while True:
        key, at = varint(buffer, at)
        if key & 7 != LENGTH:
            raise MalformedError("no envelope of an object")
        length, at = varint(buffer, at)
        if key >> 3 == _ENVELOPED:
            return kind, at, at + length
        if at + length > len(buffer):
            raise IndexError
        if key >> 3 == _TYPE:
            kind = read(buffer, at, at + length, _TYPE_META).get("kind", "")
        at += length


def varint(buffer: bytes, at: int) -> tuple[int, int]:
    """Decode an integer; return it and the position after it. Raises IndexError if the buffer ends early, or MalformedError."""
    value = shift = 0
    while True:
        byte = buffer[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise MalformedError("a number of more than 64 bits")


def _signed(value: int) -> int:
    """Return an int32 or int64 from its two's complement encoding."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _time(seconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        raise MalformedError(f"{seconds} s after 1970 is not a valid time") from None


_TYPE, _ENVELOPED = 1, 2
"""Fields of runtime.Unknown: the type of the object, and the object."""
_TYPE_META: Final = Message({2: text("kind")})
_TIMESTAMP: Final = Message({1: number("seconds")})
_PAIR: Final = Message({1: text("key"), 2: text("value")}, alike=True)
_RESOURCE: Final = Message({1: text("key"), 2: one("value", Message({1: text("string")}))}, alike=True)
LIST_META: Final = Message({2: text("resourceVersion"), 3: text("continue")})
META, ITEMS = 1, 2
"""Fields of every list: its metadata, and its items."""
_OWNER: Final = Message(
    {1: text("kind"), 3: text("name"), 4: text("uid"), 5: text("apiVersion"), 6: boolean("controller")}, alike=True
)
OBJECT_META: Final = Message(
    {
        1: text("name"),
        3: text("namespace"),
        5: text("uid"),
        6: text("resourceVersion"),
        7: number("generation"),
        8: time("creationTimestamp"),
        9: time("deletionTimestamp"),
        10: number("deletionGracePeriodSeconds"),
        11: string_map("labels"),
        13: many("ownerReferences", _OWNER),
    }
)
METADATA: Final = Message({1: one("metadata", OBJECT_META)})
"""An object of any kind whose metadata alone is read."""
_CAUSE: Final = Message({1: text("reason"), 2: text("message"), 3: text("field")})
_DETAILS: Final = Message({1: text("name"), 3: text("kind"), 4: many("causes", _CAUSE), 5: number("retryAfterSeconds")})
STATUS: Final = Message({3: text("message"), 4: text("reason"), 5: one("details", _DETAILS), 6: number("code")})
"""The API server's response instead of a list, in the encoding of the list."""
