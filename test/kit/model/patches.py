"""The three types of patches. Pure: each returns a new object and does not change the given ones."""

from typing import Any, Final

from kit.model.refusals import Refusal, bad_request

MERGE_KEYS: Final = {
    "ownerReferences": "uid",
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "containerPorts": "containerPort",
    "env": "name",
    "volumes": "name",
}
"""Lists whose elements a strategic merge matches by a key; `finalizers` is a set; other lists are replaced."""


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def strategic_merge_patch(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Merge like a merge patch, but lists with a merge key element by element; `$patch: delete` removes an element."""
    result = dict(target)
    for name, value in patch.items():
        if name.startswith(("$setElementOrder/", "$retainKeys")):
            continue
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            if value.get("$patch") == "replace":
                result[name] = {key: inner for key, inner in value.items() if key != "$patch"}
            else:
                result[name] = strategic_merge_patch(result.get(name) or {}, value)
        elif name == "finalizers":
            present = result.get(name) or []
            result[name] = [*present, *(item for item in value if item not in present)]
        elif isinstance(value, list) and name in MERGE_KEYS:
            result[name] = _merge_list(result.get(name) or [], value, MERGE_KEYS[name])
        else:
            result[name] = value
    return result


def _merge_list(target: list[dict[str, Any]], patch: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Merge two lists like sorted ones, in the order of `target`; new elements precede old ones."""
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    places = {item[key]: place for place, item in enumerate(target)}
    named = {item[key] for item in patch}
    old = [item for item in target if item[key] not in named]
    result: list[dict[str, Any]] = []
    for item in patch:
        if item.get("$patch") == "delete":
            continue
        place = places.get(item[key])
        while place is not None and old and places[old[0][key]] < place:
            result.append(old.pop(0))
        result.append(item if place is None else strategic_merge_patch(target[place], item))
    return result + old


def json_patch(target: dict[str, Any], operations: list[dict[str, Any]]) -> Any:
    """RFC 6902 without move and copy. Raises Refusal like the server: 422 if an operation does not apply.

    As on the server, `replace` also accepts a missing key.
    """
    document: Any = target
    for operation in operations:
        path = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        document = _apply(document, operation["op"], path, operation)
    return document


def _apply(document: Any, op: str, path: list[str], operation: dict[str, Any]) -> Any:
    """Return `document` after one operation; only objects on the path are copied."""
    if not path:
        if op == "test" and document != operation["value"]:
            raise _does_not_apply()
        return document if op == "test" else operation["value"]
    name, rest = path[0], path[1:]
    if isinstance(document, list):
        return _apply_to_list(document, op, name, rest, operation)
    if not isinstance(document, dict):
        raise _does_not_apply()
    result = dict(document)
    if rest:
        if name not in result:
            raise _does_not_apply()
        result[name] = _apply(result[name], op, rest, operation)
    elif op == "remove":
        if name not in result:
            raise _does_not_apply()
        del result[name]
    elif op == "test":
        if result.get(name) != operation.get("value"):
            raise _does_not_apply()
    elif op in {"add", "replace"}:
        result[name] = operation["value"]
    else:
        raise bad_request(f"Unexpected kind: {op}")
    return result


def _apply_to_list(document: list[Any], op: str, name: str, rest: list[str], operation: dict[str, Any]) -> list[Any]:
    result = [*document]
    if name == "-" and op == "add" and not rest:
        return [*result, operation["value"]]
    if not name.isdecimal() or int(name) >= len(result) + (op == "add" and not rest):
        raise _does_not_apply()
    index = int(name)
    if rest or op == "test":
        result[index] = _apply(result[index], op, rest, operation)
    elif op == "add":
        result.insert(index, operation["value"])
    elif op == "remove":
        del result[index]
    else:
        result[index] = operation["value"]
    return result


def _does_not_apply() -> Refusal:
    return Refusal(422, "Invalid", "the server rejected our request due to an error in our request", {})
