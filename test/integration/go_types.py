"""What a program in Go makes of a TFJob: the types of its structs, and the rules by which client-go decodes JSON into them.

Go decodes a list as a whole, so one field that fails here fails for everything in the list. The rules are those of
sigs.k8s.io/json (client-go since 1.23) and of its predecessor: names match exactly, unknown ones are ignored, null leaves
the zero value, a number must be written as its type requires. The structs are those of training-operator 1.9 and of the core
API.

`api.v1.reader` describes types too, and is not used here on purpose. It checks values, not text, to tell a user what is
wrong: any string may be a quantity there. This module judges the CRD's schema, and with it the operator, by Go's rules; so it
must not be built on the operator's own tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from hack.crd_schema.schema import GONE, Definitions, Schema

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_CORE: Final = "io.k8s.api.core.v1."


class NumberText(str):
    """A number as it is written."""

    __slots__ = ()


class CannotDecodeError(ValueError):
    """Go's decoder would have failed, and with it the decoding of the whole list."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type that is one value. `read` raises CannotDecodeError for what Go does not accept; it is never called with null."""

    name: str
    read: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A slice."""

    item: Type


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map with strings for keys."""

    value: Type


@dataclass(frozen=True, slots=True)
class StructOf:
    """A struct, by the names in JSON of its fields."""

    fields: Mapping[str, Type]


Type = Scalar | ListOf | MapOf | StructOf


def decode(body: bytes, go_type: Type) -> None:
    """Decode a JSON text as Go does. Raises CannotDecodeError."""
    document = json.loads(body, parse_int=NumberText, parse_float=NumberText, parse_constant=_no_constant)
    check(document, go_type, "")


def check(value: Any, go_type: Type, path: str) -> None:
    """Decode one value. Raises CannotDecodeError, with the path."""
    if value is None:
        return
    match go_type:
        case Scalar():
            try:
                go_type.read(value)
            except CannotDecodeError as error:
                raise CannotDecodeError(f"{path}: {value!r} into {go_type.name}: {error}") from None
        case ListOf():
            if not isinstance(value, list):
                raise CannotDecodeError(f"{path}: {value!r} into a slice")
            for index, item in enumerate(value):
                check(item, go_type.item, f"{path}[{index}]")
        case MapOf() | StructOf():
            if not isinstance(value, dict):
                raise CannotDecodeError(f"{path}: {value!r} into a {type(go_type).__name__}")
            for key, inner in value.items():
                if isinstance(go_type, MapOf):
                    check(inner, go_type.value, f"{path}.{key}")
                elif key in go_type.fields:
                    check(inner, go_type.fields[key], f"{path}.{key}")


def _no_constant(text: str) -> None:
    raise CannotDecodeError(f"{text} is no JSON")


def _text(value: Any) -> None:
    if not isinstance(value, str) or isinstance(value, NumberText):
        raise CannotDecodeError("no string")


def _boolean(value: Any) -> None:
    if not isinstance(value, bool):
        raise CannotDecodeError("no bool")


def _integer(bits: int) -> Callable[[Any], None]:
    def read(value: Any) -> None:
        # Go calls strconv.ParseInt on the number as it is written: 1.0 and 1e3 are not integers to it.
        if not isinstance(value, NumberText) or not re.fullmatch("-?[0-9]+", value):
            raise CannotDecodeError("no integer")
        if not -(2 ** (bits - 1)) <= int(value) < 2 ** (bits - 1):
            raise CannotDecodeError("out of range")

    return read


_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_SUFFIXES: Final = {"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
_GO_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_LONGEST_EXPONENT: Final = 3
"""In digits. Go accepts longer exponents and computes the number in full: no informer survives an exponent of ten digits."""


def _quantity(value: Any) -> None:
    """resource.Quantity takes the bytes between the quotes as they are, so an escape is an error too."""
    if not isinstance(value, str):
        raise CannotDecodeError("neither number nor string")
    text = (value if isinstance(value, NumberText) else json.dumps(value, ensure_ascii=False)[1:-1]).strip(_GO_SPACE)
    number = _NUMBER.match(text)
    if number is None:
        raise CannotDecodeError("no quantity")
    suffix = text[number.end() :]
    if suffix in _SUFFIXES:
        return
    if not re.fullmatch(f"[eE][+-]?[0-9]{{1,{_LONGEST_EXPONENT}}}", suffix):
        raise CannotDecodeError("not a suffix of a quantity")


def _int_or_string(value: Any) -> None:
    if isinstance(value, str) and not isinstance(value, NumberText):
        return
    _integer(32)(value)


def _time(value: Any) -> None:
    """metav1.Time is time.Parse by RFC 3339."""
    _text(value)
    if not re.fullmatch(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})", value
    ):
        raise CannotDecodeError("not in RFC 3339")
    if value.startswith("0000"):  # a year that Go knows and Python does not
        value = f"2000{value[4:]}"
    try:
        datetime.fromisoformat(value)
    except ValueError as error:
        raise CannotDecodeError(str(error)) from None


def _anything(_value: Any) -> None:
    """FieldsV1 keeps the bytes."""


STRING: Final = Scalar("string", _text)
BOOL: Final = Scalar("bool", _boolean)
INT32: Final = Scalar("int32", _integer(32))
INT64: Final = Scalar("int64", _integer(64))
QUANTITY: Final = Scalar("resource.Quantity", _quantity)
INT_OR_STRING: Final = Scalar("intstr.IntOrString", _int_or_string)
TIME: Final = Scalar("metav1.Time", _time)
_BY_NAME: Final[Mapping[str, Type]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": QUANTITY,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": INT_OR_STRING,
    _META + "Time": TIME,
    _META + "FieldsV1": Scalar("metav1.FieldsV1", _anything),
}
_SCALARS: Final[Mapping[tuple[str, str], Type]] = {
    ("string", ""): STRING,
    ("boolean", ""): BOOL,
    ("integer", "int32"): INT32,
    ("integer", "int64"): INT64,
}


def type_of(definitions: Definitions, schema: Schema) -> Type:
    """The Go type from which an API server generated this piece of its OpenAPI document."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/definitions/")
        return _BY_NAME[name] if name in _BY_NAME else struct(definitions, name)
    if "items" in schema:
        return ListOf(type_of(definitions, schema["items"]))
    if "additionalProperties" in schema:
        return MapOf(type_of(definitions, schema["additionalProperties"]))
    if "properties" in schema:
        return StructOf({name: type_of(definitions, field) for name, field in schema["properties"].items()})
    return _SCALARS[schema["type"], schema.get("format", "")]


def struct(definitions: Definitions, name: str) -> StructOf:
    """A struct of the Kubernetes API, including fields that only older versions had."""
    fields = {**definitions[name], **GONE.get(name, {})}
    return StructOf({field: type_of(definitions, schema) for field, schema in fields.items()})


def tfjob(definitions: Definitions) -> StructOf:
    """TFJob of training-operator 1.9, and the run policy inline as tf-operator had it."""
    inline: dict[str, Type] = {
        "cleanPodPolicy": STRING,
        "ttlSecondsAfterFinished": INT32,
        "activeDeadlineSeconds": INT64,
        "backoffLimit": INT32,
    }
    scheduling: dict[str, Type] = {
        "minAvailable": INT32,
        "queue": STRING,
        "minResources": MapOf(QUANTITY),
        "priorityClass": STRING,
        "scheduleTimeoutSeconds": INT32,
    }
    policy = {**inline, "suspend": BOOL, "managedBy": STRING, "schedulingPolicy": StructOf(scheduling)}
    replica: dict[str, Type] = {
        "replicas": INT32,
        "restartPolicy": STRING,
        "template": struct(definitions, _CORE + "PodTemplateSpec"),
    }
    spec: dict[str, Type] = {
        **inline,
        "runPolicy": StructOf(policy),
        "successPolicy": STRING,
        "enableDynamicWorker": BOOL,
        "tfReplicaSpecs": MapOf(StructOf(replica)),
    }
    meta = struct(definitions, _META + "ObjectMeta")
    return StructOf({"apiVersion": STRING, "kind": STRING, "metadata": meta, "spec": StructOf(spec)})
