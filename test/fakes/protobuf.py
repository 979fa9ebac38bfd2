"""Encodes objects as protobuf, as an API server does: the inverse of `api.protobuf`."""

from datetime import datetime
from typing import Any

from tfjob_operator.api.protobuf import ITEMS, LIST_META, MAGIC, META, Message


def encode(found: dict[str, Any], of: Message) -> bytes:
    places = {field.name: (number, field.of) for number, field in of.fields.items()}
    written = b""
    for name, value in found.items():
        number, inner = places[name]
        for each in value if isinstance(value, list) else [value]:
            written += _field(number, each, inner)
    return written


def envelope(kind: str, body: bytes) -> bytes:
    """Encode a whole response: `runtime.Unknown` after the magic bytes."""
    what = with_length(1, b"v1") + with_length(2, kind.encode())
    return MAGIC + with_length(1, what) + with_length(2, body) + with_length(3, b"") + with_length(4, b"")


def list_of(kind: str, items: list[bytes], *, version: str, token: str = "") -> bytes:
    meta = encode({"resourceVersion": version, "continue": token}, LIST_META)
    return envelope(f"{kind}List", with_length(META, meta) + b"".join(with_length(ITEMS, item) for item in items))


def with_length(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Encode a number; a negative one in ten bytes like Go."""
    value &= (1 << 64) - 1
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def _field(number: int, value: object, inner: Message | None) -> bytes:
    match value:
        case bool() | int():
            return varint(number << 3) + varint(int(value))
        case str():
            return with_length(number, value.encode())
        case datetime():
            return with_length(number, varint(1 << 3) + varint(int(value.timestamp())) + varint(2 << 3) + varint(0))
        case dict() if inner is not None:
            return with_length(number, encode(value, inner))
        case dict():
            pairs = (with_length(1, key.encode()) + with_length(2, text.encode()) for key, text in value.items())
            return b"".join(with_length(number, pair) for pair in pairs)
        case _:
            raise TypeError(f"{value!r} cannot be written")
