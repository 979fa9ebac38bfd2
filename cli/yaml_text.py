"""Formats objects as YAML, like kubectl."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import yaml

from tfjob_operator.cli.printing import is_printable


def yaml_text(document: Any, *, sort_keys: bool) -> str:
    """Format a document as YAML: blocks for multiline text, quotes if needed, escapes for invisible characters."""

    def dump(*, allow_unicode: bool) -> str:
        return yaml.dump(document, Dumper=_Dumper, sort_keys=sort_keys, allow_unicode=allow_unicode, width=10_000)

    text = dump(allow_unicode=True)
    return text if is_printable(text) else dump(allow_unicode=False)


class _Dumper(yaml.SafeDumper):
    """Writes strings in the usual style, without anchors and aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True, so that repeated objects are written repeatedly."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    tag = "tag:yaml.org,2002:str"
    if "\n" in text:
        return dumper.represent_scalar(tag, text, style="|")
    is_text = dumper.resolve(yaml.ScalarNode, text, (True, False)) == tag  # type: ignore[no-untyped-call]
    return dumper.represent_scalar(tag, text, style=None if is_text else '"')


def _member(dumper: yaml.SafeDumper, member: StrEnum) -> yaml.Node:
    return _text(dumper, str(member))


_Dumper.add_representer(str, _text)
_Dumper.add_multi_representer(StrEnum, _member)
