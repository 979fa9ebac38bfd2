"""Encodes the bodies of writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Final

import msgspec

_SCALARS: Final = frozenset({str, int, float, bool, NoneType})


def encode(body: object) -> bytes:
    """Encode a body as JSON; bytes are encoded already.

    Raises TypeError for a struct that omits fields with default values, such as a slice (`api.meta.Struct`): a patch would not
    set them, so 0, "" and None could never be written, and in a create the server would set defaults of its own. A struct that
    is declared with `omit_defaults=False` is encoded completely. `msgspec.Raw` is not checked.
    """
    if isinstance(body, bytes):
        return body
    found = [body]
    inside: Iterable[object]
    for (
        value
    ) in found:  # which grows meanwhile; a recursion would fail for templates that are nested deeper than its limit
        if isinstance(value, dict):
            inside = value.values()
        elif isinstance(value, (list, tuple)):
            inside = value
        elif isinstance(value, msgspec.Struct):
            if value.__struct_config__.omit_defaults:
                raise TypeError(
                    f"{type(value).__name__} omits fields with default values, so the write would not set them: pass a dict, or"
                    " declare the struct with omit_defaults=False"
                )
            inside = [getattr(value, name) for name in value.__struct_fields__]
        else:
            continue
        for each in inside:
            if type(each) not in _SCALARS:
                found.append(each)  # noqa: PERF401 - a comprehension per object takes twice the time
    return msgspec.json.encode(body)


def encode_change(body: object) -> bytes:
    """Encode the body of an update, patch or apply. Raises TypeError like `encode`, and ValueError for an empty precondition.

    The server takes an empty UID or resourceVersion for none, so the change would be made to any object of the name.
    """
    metadata = body.get("metadata") if isinstance(body, dict) else None
    given: Mapping[object, object] = metadata if isinstance(metadata, dict) else {}
    operations = [each for each in body if isinstance(each, dict)] if isinstance(body, list) else []  # of a JSON patch
    for name in ("uid", "resourceVersion"):
        tested = [operation.get("value") for operation in operations if operation.get("path") == f"/metadata/{name}"]
        if "" in (given.get(name), *tested):
            raise ValueError(
                f"metadata.{name} is empty, which the server ignores: omit it, or pass the one of the object read"
            )
    return encode(body)
