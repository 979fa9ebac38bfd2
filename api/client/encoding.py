"""Encodes the bodies of writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from types import NoneType
from typing import Final

import msgspec

from tfjob_operator.api.meta import api_name

_SCALARS: Final = frozenset({str, int, float, bool, NoneType})


def encode(body: object) -> bytes:
    """Encode a body as JSON; bytes are encoded already.

    Raises TypeError for a struct that omits fields with default values, such as a slice (`api.meta.Struct`): a patch would not
    set them, so 0, "" and None could never be written, and in a create the server would set defaults of its own. A struct that
    is declared with `omit_defaults=False` is encoded completely. Raises ValueError for a field of the metadata in snake_case,
    which the server would ignore with all that depends on it: the precondition of a patch, the owner of a new object.
    `msgspec.Raw` and bytes are not checked.
    """
    if isinstance(body, bytes):
        return body
    for name in _metadata(body):
        if isinstance(name, str) and "_" in name:
            raise ValueError(f"metadata has no field {name}, did you mean {api_name(name)}?")
    for value in _typed(body):
        if isinstance(value, msgspec.Struct) and value.__struct_config__.omit_defaults:
            raise TypeError(
                f"{type(value).__name__} omits fields with default values, so the write would not set them: pass a dict, or"
                " declare the struct with omit_defaults=False"
            )
    return msgspec.json.encode(body)


def contains_type(body: object) -> bool:
    """Return True if an object of a class with fields, such as a struct, is a value in the dicts and lists of a body."""
    return any(isinstance(value, msgspec.Struct) or is_dataclass(value) for value in _typed(body))


def _typed(body: object) -> list[object]:
    """Return what a body has in its dicts, lists and structs besides these and scalars, and the structs themselves."""
    typed: list[object] = []
    found = [body]
    inside: Iterable[object]
    # It grows meanwhile: a recursion would fail for templates that are nested deeper than Python's limit.
    for value in found:
        if isinstance(value, dict):
            inside = value.values()
        elif isinstance(value, (list, tuple)):
            inside = value
        elif isinstance(value, msgspec.Struct):
            typed.append(value)
            inside = [getattr(value, name) for name in value.__struct_fields__]
        else:
            typed.append(value)
            continue
        for each in inside:
            if type(each) not in _SCALARS:
                found.append(each)  # noqa: PERF401 - a comprehension per object takes twice the time
    return typed


def _metadata(body: object) -> Mapping[object, object]:
    """Return the metadata in a body by encoded name: of a dict or a struct, in a dict or a struct."""
    metadata = body.get("metadata") if isinstance(body, dict) else getattr(body, "metadata", None)
    if isinstance(metadata, msgspec.Struct):
        fields = zip(metadata.__struct_encode_fields__, metadata.__struct_fields__, strict=True)
        return {encoded: getattr(metadata, name) for encoded, name in fields}
    return metadata if isinstance(metadata, dict) else {}


def encode_change(body: object) -> bytes:
    """Encode the body of an update, patch or apply. Raises TypeError and ValueError like `encode`.

    Also raises ValueError for a precondition that is empty or null. The server takes such a UID or resourceVersion for none, so
    the change would be made to any object of the name.
    """
    given = _metadata(body)
    operations = [each for each in body if isinstance(each, dict)] if isinstance(body, list) else []  # of a JSON patch
    for name in ("uid", "resourceVersion"):
        tested = [operation.get("value") for operation in operations if operation.get("path") == f"/metadata/{name}"]
        values = [*([given[name]] if name in given else ()), *tested]
        if "" in values or None in values:
            raise ValueError(
                f"metadata.{name} is empty, which the server ignores: omit it, or pass the one of the object read"
            )
    return encode(body)
