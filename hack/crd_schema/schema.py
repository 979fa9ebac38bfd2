"""Converts an API server's OpenAPI document to the structural schema of a pod template, and writes it into the CRD.

An object that a Go program cannot decode into its structs breaks every list that contains it, for all watchers of the
collection. Therefore the schema checks types and nothing else: no required fields, no enums, unknown fields are preserved, and
null is accepted everywhere, as in Go. Most fields of objects need no `nullable` for that: an API server drops null fields, and
to Go a missing field is the same as a null one. Without `nullable` the schema is much cheaper.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

Schema = dict[str, Any]
Definitions = dict[str, Schema]

ROOT: Final = "io.k8s.api.core.v1.PodTemplateSpec"
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_VOLUME: Final = "io.k8s.api.core.v1.EphemeralVolumeSource"
_CLAIM: Final = "io.k8s.api.core.v1.PodResourceClaim"
BEGIN: Final = "# made by `make renew`\n"
END: Final = "# end of what is made\n"
_TYPE_KEYS: Final = ("type", "format", "$ref", "items", "additionalProperties")

GONE: Final[Mapping[str, Mapping[str, Schema]]] = {
    _META + "ObjectMeta": {"clusterName": {"type": "string"}},
    _VOLUME: {"readOnly": {"type": "boolean"}},
    _CLAIM: {
        "source": {
            "type": "object",
            "properties": {"resourceClaimName": {"type": "string"}, "resourceClaimTemplateName": {"type": "string"}},
        }
    },
}
"""Fields of older Go structs: `clusterName` until 1.23, `readOnly` from 1.19 to 1.22, and `source` from 1.26 to 1.30, which
contained two fields that are on its level today."""

_PART: Final = "(?:[0-9]+(?:[.][0-9]*)?|[.][0-9]+)"
QUANTITY_PATTERN: Final = f"^ *[+-]?{_PART}(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{{1,3}})? *$".replace("(?:", "(")
"""The syntax of apimachinery's ParseQuantity. It does not limit exponents, but a longer one takes minutes to compute."""
TIME_PATTERN: Final = (
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]+)?"
    "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)
"""RFC 3339 as in Go's time.Parse; the format `date-time` of API servers accepts more (lowercase letters, no zone)."""

_INT32: Final[Schema] = {"minimum": -(2**31), "maximum": 2**31 - 1}
"""API servers before 1.36 do not check the format. A number beyond int64 is not an integer to any of them."""
_OTHER_ZEROS: Final[Mapping[str, list[Any]]] = {
    "string": [0, False],
    "boolean": ["", 0],
    "integer": ["", False],
    "object": ["", 0, False],
    "array": ["", 0, False],
}
"""API servers of 1.20 treat an empty string, 0 and false as null, and accept them for any type that is nullable."""
_KEEP: Final[Schema] = {"nullable": True, "x-kubernetes-preserve-unknown-fields": True}
# A structural schema cannot express "number or string", so exclude all other types instead.
_QUANTITY: Final[Schema] = {
    **_KEEP,
    "pattern": QUANTITY_PATTERN,
    "maxItems": 0,
    "maxProperties": 0,
    "not": {"enum": [True, False, [], {}]},
}


def _typed(name: str) -> Schema:
    """Return the schema of this type or null.

    It rejects zero values of other types, which API servers of 1.20 treat as null.
    """
    return {"type": name, "nullable": True, "not": {"enum": _OTHER_ZEROS[name]}}


SPECIAL: Final[Mapping[str, Schema]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _QUANTITY,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "nullable": True,
        "x-kubernetes-int-or-string": True,
        "not": {"enum": [False]},
        "anyOf": [{"type": "integer"}, {"type": "string"}],  # without it 80.0000000001 is an integer
        **_INT32,
    },
    # If a string has a format, an API server also accepts any list in its place.
    _META + "Time": {
        **_typed("string"),
        "format": "date-time",
        "pattern": TIME_PATTERN,
        "maxItems": 0,
        "not": {"enum": [*_OTHER_ZEROS["string"], []]},
    },
    _META + "FieldsV1": _KEEP,
}
"""Types with their own decoder in Go. FieldsV1 accepts anything."""


def reduced(document: Mapping[str, Any]) -> Definitions:
    """Return the definitions that a pod template needs; fields have only a type."""
    definitions: Definitions = document["definitions"]
    found: Definitions = {}
    waiting = [ROOT]
    while waiting:
        name = waiting.pop()
        if name in found or name in SPECIAL:
            continue
        properties = definitions[name]["properties"]
        found[name] = {field: _types_of(schema) for field, schema in properties.items()}
        waiting += [each for schema in found[name].values() for each in _references(schema)]
    return dict(sorted(found.items()))


def _types_of(schema: Schema) -> Schema:
    """Return the schema without descriptions, limits and merge keys."""
    kept = {key: schema[key] for key in _TYPE_KEYS if key in schema}
    return {key: _types_of(value) if isinstance(value, dict) else value for key, value in kept.items()}


def _references(schema: Schema) -> Iterator[str]:
    if "$ref" in schema:
        yield _name(schema)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from _references(schema[key])


def _name(schema: Schema) -> str:
    return str(schema["$ref"].removeprefix("#/definitions/"))


def template(definitions: Definitions) -> Schema:
    """Return the structural schema of a pod template, without references."""
    return _object(definitions, ROOT)


def _object(definitions: Definitions, name: str) -> Schema:
    fields = {**definitions[name], **GONE.get(name, {})}
    return _typed("object") | _KEEP | {"properties": {key: _field(definitions, fields[key]) for key in sorted(fields)}}


def _field(definitions: Definitions, given: Schema) -> Schema:
    """Return the schema of a field of an object. It is not nullable, because an API server drops null fields."""
    found = _schema(definitions, given)
    if "type" not in found or found.get("format") == "date-time":
        return found
    return {key: value for key, value in found.items() if key not in {"nullable", "not"}}


def _schema(definitions: Definitions, given: Schema) -> Schema:
    """Return the schema of an item of a list, or of a value of a map."""
    if "$ref" in given:
        name = _name(given)
        return SPECIAL[name] if name in SPECIAL else _object(definitions, name)
    found = _typed(given["type"]) | {key: given[key] for key in ("format",) if key in given}
    if given.get("format") == "int32":
        found |= _INT32
    for key in ("items", "additionalProperties"):
        if key in given:
            found[key] = _schema(definitions, given[key])
    if "properties" in given:
        found |= _KEEP
        found["properties"] = {key: _field(definitions, value) for key, value in given["properties"].items()}
    return found


def written(schema: Schema, indent: int, width: int = 400) -> str:
    """Return the schema as lines of YAML; parts that fit into a line of that width are in flow style."""
    return "".join(f"{' ' * indent}{line}\n" for line in _lines(schema, width - indent))


def _lines(schema: Schema, width: int) -> Iterator[str]:
    for key, value in schema.items():
        line = f"{key}: {json.dumps(value, separators=(', ', ': '))}"
        if not isinstance(value, dict) or len(line) <= width:
            yield line
        else:
            yield f"{key}:"
            yield from (f"  {each}" for each in _lines(value, width - 2))


def spliced(manifest: str, begin: str, made: Callable[[int], str]) -> str:
    """Return the manifest with new indented lines between its markers. Raises ValueError without the markers."""
    before, found, rest = manifest.partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise ValueError(f"no lines {begin.strip()!r} and {END.strip()!r}")
    indent = len(before) - len(before.rstrip(" "))
    return before + begin + made(indent) + " " * indent + end + after
