"""TFJobs in files of YAML or JSON, with the line of every field."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from tfjob_operator.api.text import quoted
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW, TENSORFLOW
from tfjob_operator.cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfjob_operator.api.v1alpha1.constants import Dialect

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
VERSIONS: Final = ("v1", "v1beta2", "v1beta1", "v1alpha2", "v1alpha1")
"""The versions of kubeflow.org that the CRD serves; tensorflow.org has only v1alpha1."""
_DEEPEST: Final = 100
"""Levels of nesting that are followed; the readers of specifications refuse deeper ones anyway."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One job of a file. `lines` are those of its fields, by their paths; `line` is where it begins."""

    file: str
    line: int
    group: str
    version: str
    body: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The job's name; if it has only a `generateName`, that with as many characters as the server adds."""
        meta = self.body.get("metadata")
        named: Mapping[str, Any] = meta if isinstance(meta, dict) else {}
        prefix = named.get("generateName")
        return str(named.get("name") or (f"{prefix}xxxxx" if prefix else ""))

    @property
    def alpha(self) -> Dialect:
        """The alpha dialect of its group, in which it may be written."""
        return TENSORFLOW if self.group == TENSORFLOW.resource.group else KUBEFLOW

    def line_of(self, path: str) -> int:
        """Return the line of a field, or of the nearest one around it that is there."""
        while path:
            found = self.lines.get(path.casefold())
            if found is not None:
                return found
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.line


def read(name: str) -> Iterator[Manifest]:
    """Yield the TFJobs of a file, `-` for standard input. Other objects are skipped, Lists are opened.

    Raises CliError for a file that cannot be read or is no YAML, and for a TFJob in an unknown version.
    """
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{name} can not be read: {getattr(error, 'strerror', None) or 'it is no UTF-8'}") from error
    file = "standard input" if name == "-" else name
    try:
        for node in yaml.compose_all(text, Loader=_LOADER):
            if node is not None:
                yield from _jobs(file, node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise CliError(f"{file}:{line}: this is no YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise CliError(f"{file}: this is no YAML that can be read") from error


def _jobs(file: str, node: yaml.Node) -> Iterator[Manifest]:
    body = _value(node)
    if not isinstance(body, dict):
        return
    if body.get("kind") == "List" and isinstance(node, yaml.MappingNode):
        for key, items in node.value:
            if key.value == "items" and isinstance(items, yaml.SequenceNode):
                for item in items.value:
                    yield from _jobs(file, item)
        return
    group, _, version = str(body.get("apiVersion", "")).partition("/")
    kinds = {TFJOBS.group: TFJOBS.kind, TENSORFLOW.resource.group: TENSORFLOW.resource.kind}
    if kinds.get(group) != body.get("kind"):
        return
    line = node.start_mark.line + 1
    served = VERSIONS if group == TFJOBS.group else (TENSORFLOW.resource.version,)
    if version not in served:
        raise CliError(f"{file}:{line}: {group} has no version {quoted(version)}: it has {', '.join(served)}")
    lines = {path.casefold(): place for path, place in _lines(node, "")}
    yield Manifest(file, line, group, version, body, lines)


def _value(node: yaml.Node) -> Any:
    """Return what a node says. Dates stay text, as they are in JSON."""
    loader = _LOADER("")
    try:
        return _plain(loader.construct_document(node))
    finally:
        loader.dispose()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key).lower(): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _lines(node: yaml.Node, path: str, depth: int = 0) -> Iterator[tuple[str, int]]:
    if depth > _DEEPEST:
        return
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = f"{path}.{quoted(str(key.value))}" if path else str(key.value)
            yield here, key.start_mark.line + 1
            yield from _lines(value, here, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            here = f"{path}[{index}]"
            yield here, value.start_mark.line + 1
            yield from _lines(value, here, depth + 1)
