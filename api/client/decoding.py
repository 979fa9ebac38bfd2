"""Responses decoded into values. What is not JSON, or not the JSON that was asked for, becomes a DecodeError."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from tfjob_operator.api.client.errors import DecodeError
from tfjob_operator.api.depth import decode

T = TypeVar("T")

UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All that msgspec raises for bytes that do not fit: the last two for text that is no UTF-8 and for what nests too deep."""


def decode_answer(raw: bytes, kind: type[T], *, request: str) -> T:
    """Decode an answer to `request`, which is for the message. Raises DecodeError, which quotes no value.

    A proxy that answers 200 with a page of its own is a failure to reach the server, to be retried like any other.
    """
    try:
        return decode(msgspec.json.Decoder(kind), raw)
    except UNDECODABLE as error:
        raise DecodeError(f"the answer can not be understood: {error}", request=request) from error
