"""Random edits of a spec, generated from the CRD's schema, so new fields are edited too.

The allowed values of a field are learned as a user learns them: from the error message for another value. New items of lists
and maps are mostly copies of existing ones.
"""

import copy
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from faults.processes import ROOT
from hack.crd_schema.schema import Schema
from hack.yaml_text import document
from tfjob_operator.api.v1.constants import REPLICA_TYPES
from tfjob_operator.api.v1.types import InvalidSpec
from tfjob_operator.api.v1.validation import read_spec

Path = tuple[str, ...]
"""The path of a field; `*` stands for any key of a map and any item of a list."""
ABSENT: Final = object()
NUMBERS: Final = (0, 1, 1, 2, 2, 3, 4, 4, 4000, 20_000, -1)
WORDS: Final = ("a", "train", "x-1", "/data", "default", "", "A b", "é")
OTHERS: Final = ("1", "250m", "1Gi", "2", 8080, "http")
"""Quantities, and values that are a number or a string."""
ANY: Final = "*"
DEEPEST: Final = 7
_CHOICES: Final = re.compile('Unsupported value: supported values: ([A-Za-z", ]+)')
REPLICAS: Final = ("tfReplicaSpecs",)


def schema() -> Schema:
    crd = document((ROOT / "manifests" / "base" / "crd.yaml").read_text())
    (stored,) = (each for each in crd["spec"]["versions"] if each["storage"])
    found: Schema = stored["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


@dataclass
class Grammar:
    """Draws edits of a spec. `learned` has the values that a field accepts, by its path."""

    root: Schema
    dice: Random
    learned: dict[Path, Sequence[str]] = field(default_factory=dict)
    weights: dict[int, float] = field(default_factory=dict)
    _path: Path = ()

    def edit(self, spec: Mapping[str, Any]) -> tuple[dict[str, Any], Path]:
        """Return another spec, and the path that was changed, deleted or added."""
        edited = self._edited(copy.deepcopy(spec), self.root, ())
        return edited, self._path

    def _edited(self, value: Any, kind: Schema, path: Path) -> Any:
        self._path = path
        if path and value is not ABSENT and self.dice.random() < 0.1:
            return ABSENT
        if "properties" in kind and isinstance(value, dict):
            return self._edited_object(value, kind["properties"], path)
        if "additionalProperties" in kind and isinstance(value, dict) and value:
            return self._edited_map(value, kind["additionalProperties"], path)
        if "items" in kind and isinstance(value, list) and value:
            return self._edited_list(value, kind["items"], path)
        return self._made(kind, path)

    def _edited_object(self, value: dict[str, Any], fields: Mapping[str, Schema], path: Path) -> dict[str, Any]:
        """Edit a field, usually an existing one; fields with more content are more likely."""
        there = [name for name in sorted(fields) if name in value]
        names = there if there and self.dice.random() < 0.6 else sorted(fields)
        (name,) = self.dice.choices(names, [self._weight(fields[each]) for each in names])
        changed = self._edited(value.get(name, ABSENT), fields[name], (*path, name))
        return _with(value, name, changed)

    def _weight(self, kind: Schema) -> float:
        if id(kind) not in self.weights:
            self.weights[id(kind)] = 1 + math.log2(json.dumps(kind).count('"type"') + 1)
        return self.weights[id(kind)]

    def _edited_map(self, value: dict[str, Any], kind: Schema, path: Path) -> dict[str, Any]:
        key = self.dice.choice(sorted(value))
        if self.dice.random() < 0.3:
            names = REPLICA_TYPES if path == REPLICAS else WORDS
            new = self.dice.choice(names)
            self._path = (*path, ANY)
            return value | {new: copy.deepcopy(value[key])}
        return _with(value, key, self._edited(value[key], kind, (*path, ANY)))

    def _edited_list(self, value: list[Any], kind: Schema, path: Path) -> list[Any]:
        place = self.dice.randrange(len(value))
        if self.dice.random() < 0.2:
            new = self._edited(copy.deepcopy(value[place]), kind, (*path, ANY))
            return [*value, *([] if new is ABSENT else [new])]
        new = self._edited(value[place], kind, (*path, ANY))
        return [*value[:place], *([] if new is ABSENT else [new]), *value[place + 1 :]]

    def _made(self, kind: Schema, path: Path, deep: int = 0) -> Any:
        if deep > DEEPEST:
            return None
        match kind.get("type"):
            case "boolean":
                return self.dice.random() < 0.5
            case "integer":
                return self.dice.choice(NUMBERS)
            case "string":
                return self.dice.choice(self.words(path) or WORDS)
            case "array":
                return [self._made(kind.get("items", {}), (*path, ANY), deep + 1)]
            case "object" if "properties" in kind:
                some = self.dice.sample(sorted(kind["properties"]), min(2, len(kind["properties"])))
                return {name: self._made(kind["properties"][name], (*path, name), deep + 1) for name in some}
            case "object":
                key = self.dice.choice(WORDS[:4])
                return {key: self._made(kind.get("additionalProperties", {}), (*path, ANY), deep + 1)}
            case _:
                return self.dice.choice(OTHERS)

    def words(self, path: Path) -> Sequence[str]:
        """Return the accepted values of a field, if the operator or an API server has listed them."""
        if path not in self.learned:
            value: Any = "?"
            for step in reversed(path):
                value = {"Worker" if step == ANY else step: value}
            read = read_spec("job", json.dumps(value).encode())
            told = [_CHOICES.search(each.message) for each in read.mistakes] if isinstance(read, InvalidSpec) else []
            self.learned[path] = next((re.findall(r"\w+", each[1]) for each in told if each), [])
        return self.learned[path]


def _with(value: dict[str, Any], name: str, changed: Any) -> dict[str, Any]:
    if changed is ABSENT:
        return {key: each for key, each in value.items() if key != name}
    return value | {name: changed}


def patch(before: Any, after: Any) -> Any:
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return after
    gone = dict.fromkeys(before.keys() - after.keys())
    return gone | {
        name: patch(before.get(name), each)
        for name, each in after.items()
        if name not in before or before[name] != each
    }
