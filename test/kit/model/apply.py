"""Server-side apply: who owns which fields, conflicts, and the merge. Pure.

A field is a path such as `("f:spec", "f:containers", 'k:{"name":"main"}', "f:image")`, with the segments of `fieldsV1`.

A simplification: an object has `managedFields` from its first apply on. The fields that it has before belong to the manager
`before-first-apply`, as on servers for objects without `managedFields`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kit.model.kinds import Kind
from kit.model.refusals import Refusal
from kit.model.storage import Body

Path = tuple[str, ...]


FIRST: Final = "before-first-apply"
APPLY: Final = "Apply"
UPDATE: Final = "Update"
LIST_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""The keys of lists of built-in types by name, besides `ports`. Other lists are atomic."""
_OWNERS: Final = ("f:metadata", "f:ownerReferences")
_FINALIZERS: Final = ("f:metadata", "f:finalizers")
_WITHOUT_OWNER: Final = {
    *("name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion", "selfLink", "managedFields"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
}


class Merger:
    """Merges the lists of one kind."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def fields(self, body: Body, subresource: str) -> set[Path]:
        """Return the fields of an object that have owners: without identity, and the status only for its subresource."""
        meta = {name: value for name, value in body.get("metadata", {}).items() if name not in _WITHOUT_OWNER}
        rest = {name: value for name, value in body.items() if name not in {"apiVersion", "kind", "metadata"}}
        if subresource:
            rest = {name: value for name, value in rest.items() if name == subresource}
        else:
            rest |= {"metadata": meta} if meta else {}
            if self._kind.status:
                rest.pop("status", None)
        return {path for path in self._fields(rest, ()) if path}

    def merged(self, old: Any, new: Any, at: Path = ()) -> Any:
        """Return `old` with the fields of `new`."""
        if isinstance(old, dict) and isinstance(new, dict):
            result = dict(old)
            for name, value in new.items():
                result[name] = self.merged(old[name], value, (*at, f"f:{name}")) if name in old else value
            return result
        if isinstance(old, list) and isinstance(new, list) and self._is_merged(at):
            wanted = {self._item(at, item): item for item in new}
            kept = [
                self.merged(item, wanted.pop(key), (*at, key)) if (key := self._item(at, item)) in wanted else item
                for item in old
            ]
            return [*kept, *wanted.values()]
        return new

    def value(self, body: Any, path: Path) -> Any:
        """Return the value of a field, None if it is missing, and only that it exists for an item of a list."""
        for depth, segment in enumerate(path):
            if segment.startswith("f:"):
                body = body.get(segment[2:]) if isinstance(body, dict) else None
            else:
                items = body if isinstance(body, list) else []
                body = next((each for each in items if self._item(path[:depth], each) == segment), None)
        return body if path[-1].startswith("f:") else body is not None

    def without(self, body: Any, paths: Collection[Path], at: Path = ()) -> Any:
        """Return an object without these fields, and without what is empty then; None if that is all of it."""
        inside = {path[len(at)] for path in paths if path[: len(at)] == at and len(path) > len(at)}
        if not inside:
            return body
        if isinstance(body, dict):
            parts = [(name, value, (*at, f"f:{name}")) for name, value in body.items()]
            left = {
                name: value if path[-1] not in inside else self.without(value, paths, path)
                for name, value, path in parts
                if path not in paths
            }
            return {name: value for name, value in left.items() if value is not None or body[name] is None} or None
        if isinstance(body, list):
            items = [(item, (*at, self._item(at, item))) for item in body]
            return [self.without(item, paths, path) for item, path in items if path not in paths] or None
        return body

    def _fields(self, value: Any, at: Path) -> Iterable[Path]:
        if isinstance(value, dict) and value:
            for name, inner in value.items():
                yield from self._fields(inner, (*at, f"f:{name}"))
        elif isinstance(value, list) and self._is_merged(at):
            for item in value:
                path = (*at, self._item(at, item))
                yield path
                if isinstance(item, dict):
                    yield from self._fields(item, path)
        else:
            yield at

    def _is_merged(self, at: Path) -> bool:
        return bool(self._keys(at)) or at == _FINALIZERS

    def _keys(self, at: Path) -> tuple[str, ...]:
        if at == _OWNERS:
            return ("uid",)
        name = at[-1].removeprefix("f:") if at else ""
        if self._kind.custom:
            return self._kind.list_keys.get(name, ())
        if name == "ports":
            return ("port" if self._kind.resource.plural == "services" else "containerPort", "protocol")
        return LIST_KEYS.get(name, ())

    def _item(self, at: Path, item: Any) -> str:
        """Return the segment of an item of a merged list."""
        if at == _FINALIZERS:
            return f"v:{json.dumps(item)}"
        keys = {key: item.get(key, "TCP" if key == "protocol" else None) for key in self._keys(at)}
        return f"k:{json.dumps(keys, separators=(',', ':'), sort_keys=True)}"


class Managers:
    """The owners of an object's fields: `managedFields`."""

    def __init__(self, merger: Merger, old: Body | None) -> None:
        self._merger = merger
        self._entries: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._sets: dict[tuple[str, str, str], set[Path]] = {}
        for entry in (old or {}).get("metadata", {}).get("managedFields") or ():
            key = (entry["manager"], entry["operation"], entry.get("subresource", ""))
            self._entries[key] = entry
            self._sets[key] = {*_decoded(entry["fieldsV1"])}
        if old is not None and not self._entries:
            for subresource in ("", "status"):
                self._sets[FIRST, UPDATE, subresource] = merger.fields(old, subresource)

    def apply(self, old: Body, new: Body, manager: str, subresource: str, *, force: bool) -> Body:
        """Merge what a manager applies, and return the object. Raises Refusal if that changes fields of others."""
        key = (manager, APPLY, subresource)
        wanted = self._merger.fields(new, subresource)
        merged: Body = self._merger.merged(old, new)
        conflicts = defaultdict(set)
        for path in wanted:
            before = self._merger.value(old, path)
            if before is not None and before != self._merger.value(merged, path):
                for other, owned in self._sets.items():
                    if other != key and path in owned:
                        conflicts[other].add(path)
        if conflicts and not force:
            raise self._conflict(old["apiVersion"], conflicts)
        for other, paths in conflicts.items():
            self._sets[other] -= paths
        others = set().union(*(owned for other, owned in self._sets.items() if other != key))
        prefixes = {path[:length] for path in others for length in range(1, len(path) + 1)}
        dropped = {path for path in self._sets.get(key, ()) if path not in wanted and path not in prefixes}
        self._sets[key] = wanted
        return self._merger.without(merged, dropped) or {}

    def update(self, old: Body, new: Body, manager: str, subresource: str) -> None:
        """Give the fields that a write without apply changes to its manager."""
        before, after = (self._merger.fields(body, subresource) for body in (old, new))
        changed = {path for path in after if self._merger.value(old, path) != self._merger.value(new, path)}
        for owned in self._sets.values():
            owned.difference_update(changed, before - after)
        self._sets.setdefault((manager, UPDATE, subresource), set()).update(changed)

    def written(self, api_version: str, now: str) -> list[dict[str, Any]]:
        """Return `managedFields`. An entry whose fields did not change keeps its time."""
        entries = []
        for key, paths in self._sets.items():
            fields, (manager, operation, subresource) = _encoded(paths), key
            before = self._entries.get(key)
            if before is not None and before["fieldsV1"] == fields:
                entries.append(before)
            elif paths:
                entry: dict[str, Any] = {
                    "manager": manager,
                    "operation": operation,
                    "apiVersion": api_version,
                    "time": now,
                }
                entry |= {"fieldsType": "FieldsV1", "fieldsV1": fields}
                entries.append(entry | ({"subresource": subresource} if subresource else {}))
        return entries

    def _conflict(self, api_version: str, conflicts: Mapping[tuple[str, str, str], Collection[Path]]) -> Refusal:
        """409, with a cause for each field."""
        named = []
        for (manager, operation, subresource), paths in sorted(conflicts.items()):
            name = f'"{manager}"' + (f' with subresource "{subresource}"' if subresource else "")
            name += f" using {api_version}" if operation == UPDATE else ""
            named.append((name, sorted(map(_printed, paths))))
        causes = [
            {"reason": "FieldManagerConflict", "message": f"conflict with {name}", "field": path}
            for name, paths in named
            for path in paths
        ]
        if len(causes) == 1:
            text = f"1 conflict: conflict with {named[0][0]}: {named[0][1][0]}"
        else:
            lists = [f"conflicts with {name}:\n" + "\n".join(f"- {path}" for path in paths) for name, paths in named]
            text = f"{len(causes)} conflicts: " + "\n".join(lists)
        return Refusal(409, "Conflict", f"Apply failed with {text}", {"causes": causes})


def _printed(path: Path) -> str:
    """Return a path as conflicts name it: `.spec.containers[name="main"].image`."""
    text = ""
    for segment in path:
        kind, _, rest = segment.partition(":")
        match kind:
            case "f":
                text += f".{rest}"
            case "v":
                text += f"[={rest}]"
            case _:
                text += f"[{','.join(f'{key}={json.dumps(value)}' for key, value in json.loads(rest).items())}]"
    return text


def _encoded(paths: Iterable[Path]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for segment in path:
            node = node.setdefault(segment, {})
        if not path[-1].startswith("f:"):
            node["."] = {}
    return tree


def _decoded(tree: Mapping[str, Any], at: Path = ()) -> Iterable[Path]:
    for segment, inner in tree.items():
        if segment == ".":
            yield at
        elif inner:
            yield from _decoded(inner, (*at, segment))
        else:
            yield (*at, segment)
