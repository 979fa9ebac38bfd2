"""The server's validation of the metadata of a new object, with its messages. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

from kit.model.kinds import Kind
from kit.model.refusals import Mistake, wrong
from kit.model.versions import (
    LABELS_ARE_MEASURED_IN_BYTES,
    REFUSALS_ARE_REWORDED,
    SERVICE_NAMES_ARE_RELAXED,
    VALUES_ARE_PRINTED_AS_JSON,
)

NAME_LENGTH: Final = 253
LABEL_LENGTH: Final = 63
ANNOTATIONS_SIZE: Final = 256 * 1024
GENERATED_BASE: Final = 58
"""How many characters of a generateName are used, so that the name is a DNS label."""

_SUBDOMAIN: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'example.com', regex used for validation is '{regex}')"
)
_LABEL: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{regex}')"
)
_OLD_LABEL: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end "
    "with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '{regex}')"
)
_KEY: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{regex}')"
)
_VALUE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{regex}')"
)
_PATTERNS: Final = {
    _SUBDOMAIN: r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    _LABEL: r"[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    _OLD_LABEL: r"[a-z]([-a-z0-9]*[a-z0-9])?",
    _KEY: r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
    _VALUE: r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
}


def mistakes_in(kind: Kind, meta: Mapping[str, Any], kubernetes: int) -> list[Mistake]:
    mistakes = []
    if "generateName" in meta:
        mistakes += _in_name(kind, "metadata.generateName", meta["generateName"].rstrip("-"), kubernetes)
    if not meta.get("name"):
        text = "Required value: name or generateName is required"
        mistakes.append(Mistake("metadata.name", "FieldValueRequired", text))
    elif "generateName" not in meta:
        mistakes += _in_name(kind, "metadata.name", meta["name"], kubernetes)
    for key, value in (meta.get("labels") or {}).items():
        mistakes += _in_label(key, value, kubernetes)
    annotations: dict[str, str] = meta.get("annotations") or {}
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > ANNOTATIONS_SIZE:
        limit = "may not be more than" if REFUSALS_ARE_REWORDED.is_in(kubernetes) else "must have at most"
        text = f"Too long: {limit} {ANNOTATIONS_SIZE} bytes"
        mistakes.append(Mistake("metadata.annotations", "FieldValueTooLong", text))
    if any(not owner.get("uid") for owner in meta.get("ownerReferences") or []):
        text = "must not be empty" if VALUES_ARE_PRINTED_AS_JSON.is_in(kubernetes) else "uid must not be empty"
        mistakes.append(wrong("metadata.ownerReferences.uid", "", text))
    return mistakes


def _in_name(kind: Kind, field: str, name: str, kubernetes: int) -> list[Mistake]:
    length, text = NAME_LENGTH, _SUBDOMAIN
    if kind.resource.plural == "services":
        length, text = LABEL_LENGTH, _LABEL if SERVICE_NAMES_ARE_RELAXED.is_in(kubernetes) else _OLD_LABEL
    return [wrong(field, name, each) for each in (*_too_long(name, length), *_unlike(name, text))]


def _in_label(key: str, value: str, kubernetes: int) -> list[Mistake]:
    unit = "bytes" if LABELS_ARE_MEASURED_IN_BYTES.is_in(kubernetes) else "characters"
    field = "metadata.labels"
    return [
        *(wrong(field, key, each) for each in _unlike(key.rpartition("/")[2], _KEY)),
        *(wrong(field, value, each) for each in (*_too_long(value, LABEL_LENGTH, unit), *_unlike(value, _VALUE))),
    ]


def _too_long(text: str, length: int, unit: str = "characters") -> list[str]:
    return [f"must be no more than {length} {unit}"] if len(text) > length else []


def _unlike(text: str, explanation: str) -> list[str]:
    pattern = _PATTERNS[explanation]
    return [] if re.fullmatch(pattern, text) else [explanation.replace("{regex}", pattern)]
