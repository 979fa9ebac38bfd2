"""The project's YAML, read by libyaml where PyYAML has it: for the CRD that takes a tenth of the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_documents(path: Path) -> list[Any]:
    """All documents of a file."""
    return list(yaml.load_all(path.read_text(), Loader=_LOADER))


def read_document(path: Path) -> Any:
    """The only document of a file. Raises ValueError if there are others."""
    (found,) = read_documents(path)
    return found
