"""Responses decoded into values. What is not JSON, or not of the requested type, becomes a DecodeError."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from tfjob_operator.api.client.errors import DecodeError
from tfjob_operator.api.depth import decode
from tfjob_operator.api.meta import Struct

T = TypeVar("T")

UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All that msgspec raises for bytes that it cannot decode: the last two for text that is not UTF-8 and for JSON that nests
too deep."""


class _Versioned(Struct, frozen=True):
    resource_version: str = ""


class _Written(Struct, frozen=True):
    metadata: _Versioned = _Versioned()


_WRITTEN: Final = msgspec.json.Decoder(_Written)


def version_written(raw: bytes) -> str:
    """Return the resourceVersion in the response to a write; "" if there is none that can be read."""
    try:
        return decode(_WRITTEN, raw).metadata.resource_version
    except UNDECODABLE:
        return ""


def decode_response(raw: bytes, kind: type[T], *, request: str) -> T:
    """Decode a response to `request`, which is for the message. Raises DecodeError, which quotes no value.

    A proxy that answers 200 with a page of its own is a failure to reach the server, to be retried like any other.
    """
    try:
        return decode(msgspec.json.Decoder(kind), raw)
    except UNDECODABLE as error:
        raise DecodeError(f"the response cannot be understood: {error}", request=request) from error
