"""Reads messages in protobuf as the JSON objects that they stand for. Pure.

A list in protobuf costs an API server a fifth of what it costs in JSON (docs/design/scale.md). A message says neither the names
of its fields nor their types, so a table names those that are read, by their numbers in Kubernetes' `generated.proto`. A number
is never given to another field, so the tables hold for all versions. All other fields are passed over, each in one step. The
tables here are those of k8s.io/apimachinery/pkg/apis/meta/v1 (July 2026): the metadata of all objects, lists and failures.

What is read is the JSON object that the same API server would have written, with only those fields, and times as datetimes. So
nothing that reads it has to know where it came from.
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
"""What a response of this type begins with, before an envelope (apimachinery: pkg/runtime/serializer/protobuf)."""
LENGTH: Final = 2
"""The wire type of what has its length before it (protobuf.dev/programming-guides/encoding)."""
_VARINT: Final = 0
"""The wire type of a whole number."""
_FIXED: Final = {1: 8, 5: 4}
"""The wire types that have always as many bytes. The types 3 and 4, groups, Kubernetes does not use."""
LAYOUTS: Final = 64
"""Of how many lengths the layout of a message is remembered. Pods of a job differ by the digits of indices and addresses."""
LAYOUT_BYTES: Final = 256
"""Layouts with more bytes in heads are not; the metadata of a pod has 60. A tenant may write a hundred thousand annotations."""
ALIKE: Final = 512
"""How many messages of a type that are alike are remembered."""
ALIKE_BYTES: Final = 256
"""Longer messages are not."""
_Object = dict[str, Any]
PutBytes = Callable[[_Object, bytes, int, int], None]
PutWhole = Callable[[_Object, int], None]


class MalformedError(ValueError):
    """The bytes are no such message."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field that is read: its name in JSON, and what puts its value into an object; `of` is the message that it contains."""

    name: str
    put_bytes: PutBytes | None = None
    put_whole: PutWhole | None = None
    of: Message | None = None


class Message:
    """The fields of a message that are read, by their numbers.

    `alike`: most messages of this type equal an earlier one, byte by byte, as labels and conditions of pods do. Of the last
    ones it is remembered what was read, so nobody may change it.
    """

    __slots__ = ("_alike", "_layouts", "_put_bytes", "_put_whole", "fields")

    def __init__(self, fields: Mapping[int, Field], *, alike: bool = False) -> None:
        """Read these fields."""
        self.fields = fields
        # By their keys on the wire, which are number and wire type.
        self._put_bytes = {number << 3 | LENGTH: f.put_bytes for number, f in fields.items() if f.put_bytes}
        self._put_whole = {number << 3 | _VARINT: f.put_whole for number, f in fields.items() if f.put_whole}
        self._layouts: dict[int, _Layout] = {}
        self._alike = lru_cache(ALIKE)(self._read) if alike else None

    def read(self, text: bytes) -> dict[str, Any]:
        """Return a message as an object. Raises MalformedError, and IndexError or KeyError, which mean the same."""
        if self._alike is not None and len(text) <= ALIKE_BYTES:
            return self._alike(text)
        return self._read(text)

    def _read(self, text: bytes) -> _Object:
        if not text:
            return {}
        # Most messages lie as an earlier one of their length did: objects of a kind differ in the length of few fields. To
        # compare all heads in one step is faster than to go from one to the next: a pod takes 14 us, and took 25 us.
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
            # One byte is mostly all: of a key where the number is below 16, of a length below 128.
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
        # With 0 there are two places at least: of a single one it returns no tuple.
        heads: Callable[[bytes], tuple[int, ...]] = itemgetter(0, *places)
        return _Layout(heads, heads(text), parts, numbers)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the fields of a message lie.

    The head of a field is its key with its length, or with its value if it is a number. A message of the same length with the
    same bytes at the places of all heads has the same layout, for each head says where the next one is.
    """

    heads: Callable[[bytes], tuple[int, ...]]
    """Returns the bytes of all heads of a message."""
    expected: tuple[int, ...]
    """What it returns for this layout."""
    parts: Sequence[tuple[PutBytes, int, int]]
    """For each field that is read: what puts it into an object, and where it begins and ends."""
    numbers: Sequence[tuple[PutWhole, int]]
    """For each number that is read: what puts it into an object, and its value."""


def text(name: str, *, always: bool = False) -> Field:
    """Return a field with text. Go's JSON leaves an empty one out (`omitempty`), if it must not `always` be there."""

    def put(found: _Object, buffer: bytes, begin: int, end: int) -> None:
        if begin < end or always:
            found[name] = buffer[begin:end].decode(errors="replace")  # as Go's JSON does with what is not UTF-8

    return Field(name, put)


def number(name: str) -> Field:
    """Return a field with an int32 or int64."""

    def put(found: _Object, value: int) -> None:
        found[name] = _signed(value)

    return Field(name, put_whole=put)


def numbers(name: str) -> Field:
    """Return a field with a list of int32 or int64, each with its key, as Kubernetes writes them."""

    def put(found: _Object, value: int) -> None:
        found.setdefault(name, []).append(_signed(value))

    return Field(name, put_whole=put)


def truth(name: str) -> Field:
    """Return a field with a boolean."""

    def put(found: _Object, value: int) -> None:
        found[name] = bool(value)

    return Field(name, put_whole=put)


def one(name: str, of: Message) -> Field:
    """Return a field with a message."""

    def put(found: _Object, buffer: bytes, begin: int, end: int) -> None:
        found[name] = of.read(buffer[begin:end])

    return Field(name, put, of=of)


def many(name: str, of: Message) -> Field:
    """Return a field with a list of messages."""

    def put(found: _Object, buffer: bytes, begin: int, end: int) -> None:
        found.setdefault(name, []).append(of.read(buffer[begin:end]))

    return Field(name, put, of=of)


def pairs(name: str) -> Field:
    """Return a field with a map of texts."""

    def put(found: _Object, buffer: bytes, begin: int, end: int) -> None:
        pair = _PAIR.read(buffer[begin:end])
        found.setdefault(name, {})[pair.get("key", "")] = pair.get("value", "")

    return Field(name, put)


def time(name: str) -> Field:
    """Return a field with a metav1.Time, which JSON writes in whole seconds; an empty one is Go's zero time, which is null."""

    def put(found: _Object, buffer: bytes, begin: int, end: int) -> None:
        seconds = _TIMESTAMP.read(buffer[begin:end]).get("seconds")
        if seconds is not None:
            found[name] = _time(seconds)

    return Field(name, put)


def read(buffer: bytes, begin: int, end: int, of: Message) -> dict[str, Any]:
    """Return the message between these places as a JSON object. Raises MalformedError."""
    try:
        return of.read(buffer[begin:end])
    except (IndexError, KeyError):
        raise MalformedError("the message ends in a field, or has a wire type that Kubernetes does not use") from None


def open_envelope(buffer: bytes) -> tuple[str, int, int]:
    """Return the kind of an enveloped object, its begin and end. Raises IndexError for too few bytes, MalformedError."""
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
    """Read a number; return it, and the place after it. Raises IndexError when the buffer ends before, and MalformedError."""
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
    """Return an int32 or int64, of which a negative one is written as what is missing to 2 ** 64."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _time(seconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        raise MalformedError(f"{seconds} s after 1970 is no time") from None


_TYPE, _ENVELOPED = 1, 2
"""Fields of runtime.Unknown: what the object is, and the object."""
_TYPE_META: Final = Message({2: text("kind")})
_TIMESTAMP: Final = Message({1: number("seconds")})
_PAIR: Final = Message({1: text("key"), 2: text("value")}, alike=True)
LIST_META: Final = Message({2: text("resourceVersion"), 3: text("continue")})
META, ITEMS = 1, 2
"""The fields of a list of any kind: its metadata, and an item."""
_OWNER: Final = Message({1: text("kind"), 3: text("name"), 4: text("uid"), 6: truth("controller")}, alike=True)
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
        11: pairs("labels"),
        13: many("ownerReferences", _OWNER),
    }
)
METADATA: Final = Message({1: one("metadata", OBJECT_META)})
"""An object of any kind, of which only the metadata is read."""
_CAUSE: Final = Message({1: text("reason"), 2: text("message"), 3: text("field")})
_DETAILS: Final = Message({1: text("name"), 3: text("kind"), 4: many("causes", _CAUSE), 5: number("retryAfterSeconds")})
STATUS: Final = Message({3: text("message"), 4: text("reason"), 5: one("details", _DETAILS), 6: number("code")})
"""What an API server answers instead of a list, in the encoding of the list."""
