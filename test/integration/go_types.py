"""What a program in Go makes of a TFJob: the types of its structs, and the rules by which client-go decodes JSON into them.

Go decodes a list as a whole, so one field that fails here fails for everything in the list. The rules are those of
sigs.k8s.io/json (client-go since 1.23) and of its predecessor: names match exactly, unknown ones are ignored, null leaves
the zero value, a number must be written as its type requires. The structs are those of training-operator 1.9 and of the core
API.

`api.v1.reader` describes types too, and is not used here on purpose. It checks values, not text, to tell a user what is
wrong: any string may be a quantity there. This module judges the CRD's schema, and with it the operator, by Go's rules; so it
must not be built on the operator's own tables.
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from hack.crd_schema.__main__ import definitions
from hack.crd_schema.schema import GONE, Schema

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_CORE: Final = "io.k8s.api.core.v1."
_DEFINITIONS: Final = definitions()


class NumberText(str):
    """A number as it is written."""

    __slots__ = ()


class CannotDecodeError(ValueError):
    """Go's decoder would have failed, and with it the decoding of the whole list."""


def resolved(schema: Schema) -> Schema:
    """The schema of the struct that a schema refers to, with fields that only older versions had; or the schema itself."""
    name = schema.get("$ref", "").removeprefix("#/definitions/")
    return schema if name in ("", *READERS) else {"properties": {**_DEFINITIONS[name], **GONE.get(name, {})}}


def scalar(schema: Schema) -> str:
    """The key in `READERS` of a schema that is about one value."""
    reference: str = schema.get("$ref", "")
    return reference.removeprefix("#/definitions/") or f"{schema['type']}{schema.get('format', '')}"


def decode(body: bytes) -> None:
    """Decode a TFJob in JSON as Go does. Raises CannotDecodeError."""
    check(json.loads(body, parse_int=NumberText, parse_float=NumberText, parse_constant=_no_constant), TFJOB, "")


def check(value: Any, schema: Schema, path: str) -> None:
    """Decode one value. Raises CannotDecodeError, with the path."""
    schema = resolved(schema)
    if value is None:
        return
    if "items" in schema:
        if not isinstance(value, list):
            raise CannotDecodeError(f"{path}: {value!r} into a slice")
        for index, item in enumerate(value):
            check(item, schema["items"], f"{path}[{index}]")
    elif schema.keys() & {"properties", "additionalProperties"}:
        if not isinstance(value, dict):
            raise CannotDecodeError(f"{path}: {value!r} into a struct or a map")
        fields, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key, inner in value.items():
            if (known := fields.get(key, others)) is not None:
                check(inner, known, f"{path}.{key}")
    else:
        try:
            READERS[scalar(schema)](value)
        except CannotDecodeError as error:
            raise CannotDecodeError(f"{path}: {value!r} into {scalar(schema)}: {error}") from None


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


QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING: Final = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
TIME: Final = _META + "Time"
READERS: Final[Mapping[str, Callable[[Any], None]]] = {
    "string": _text,
    "boolean": _boolean,
    "integerint32": _integer(32),
    "integerint64": _integer(64),
    QUANTITY: _quantity,
    INT_OR_STRING: _int_or_string,
    TIME: _time,
    _META + "FieldsV1": _anything,
}
"""How Go reads a value that is not null, by type and format, or by the name of a definition. They raise CannotDecodeError."""


def _struct(**fields: Schema) -> Schema:
    return {"properties": fields}


_STRING: Final = {"type": "string"}
_BOOL: Final = {"type": "boolean"}
_INT32: Final = {"type": "integer", "format": "int32"}
_INT64: Final = {"type": "integer", "format": "int64"}
_INLINE: Final = {
    "cleanPodPolicy": _STRING,
    "ttlSecondsAfterFinished": _INT32,
    "activeDeadlineSeconds": _INT64,
    "backoffLimit": _INT32,
}
_SCHEDULING: Final = _struct(
    minAvailable=_INT32,
    queue=_STRING,
    minResources={"additionalProperties": {"$ref": QUANTITY}},
    priorityClass=_STRING,
    scheduleTimeoutSeconds=_INT32,
)
_REPLICA: Final = _struct(replicas=_INT32, restartPolicy=_STRING, template={"$ref": _CORE + "PodTemplateSpec"})
SPEC: Final = _struct(
    **_INLINE,
    runPolicy=_struct(**_INLINE, suspend=_BOOL, managedBy=_STRING, schedulingPolicy=_SCHEDULING),
    successPolicy=_STRING,
    enableDynamicWorker=_BOOL,
    tfReplicaSpecs={"additionalProperties": _REPLICA},
)
"""The specification of a TFJob of training-operator 1.9, and the run policy inline as tf-operator had it."""
TFJOB: Final = _struct(apiVersion=_STRING, kind=_STRING, metadata={"$ref": _META + "ObjectMeta"}, spec=SPEC)
