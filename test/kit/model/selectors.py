"""Selectors as in the API server. Independent of `informers.listers`, which is code under test."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from kit.model.kinds import Kind
from kit.model.refusals import bad_request
from kit.model.storage import Version

_FIELDS = {
    "pods": {"spec.nodeName", "status.phase", "spec.restartPolicy"},
    "events": {"involvedObject.name", "involvedObject.uid", "involvedObject.kind", "reason", "type"},
    "namespaces": {"status.phase"},
}
"""The selectable fields besides name and namespace."""


def matcher(kind: Kind, query: Mapping[str, str]) -> Callable[[Version], bool] | None:
    """Return a predicate for the selectors of a query; None if everything matches. Raises Refusal."""
    labels = [_label_test(part) for part in _split(query.get("labelSelector", ""))]
    fields = [_field_test(kind, part) for part in query.get("fieldSelector", "").split(",") if part]
    if not labels and not fields:
        return None
    return lambda version: all(test(version.labels) for test in labels) and all(test(version.body) for test in fields)


def _split(text: str) -> list[str]:
    return [part.strip() for part in re.findall(r"[^,(]+(?:\([^)]*\))?", text)]


def _label_test(part: str) -> Callable[[Mapping[str, str]], bool]:
    if found := re.fullmatch(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)", part):
        key, operator, inside = found.groups()
        values = {value.strip() for value in inside.split(",")}
        return lambda labels: (labels.get(key) in values) == (operator == "in")
    if found := re.fullmatch(r"([^\s=!]+)\s*(==|=|!=)\s*(\S*)", part):
        key, operator, value = found.groups()
        return lambda labels: (labels.get(key) == value) != (operator == "!=")
    if found := re.fullmatch(r"(!?)([^\s=!()]+)", part):
        negated, key = found.groups()
        return lambda labels: (key in labels) != bool(negated)
    raise bad_request(f"unable to parse requirement: {part}")


def _field_test(kind: Kind, part: str) -> Callable[[Mapping[str, Any]], bool]:
    found = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", part)
    if found is None:
        raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
    path, operator, value = found.groups()
    if path not in {"metadata.name", "metadata.namespace"} | _FIELDS.get(kind.resource.plural, set()):
        raise bad_request(f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"')

    def test(body: Mapping[str, Any]) -> bool:
        here: Any = body
        for name in path.split("."):
            here = (here or {}).get(name)
        return ((here or "") == value) != (operator == "!=")

    return test
