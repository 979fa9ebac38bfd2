"""Parse YAML with libyaml if PyYAML has it; PyYAML's own parser takes ten seconds for the CRD."""

from typing import Any, Final

import yaml

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def documents(text: str) -> list[Any]:
    """Return all documents of a text."""
    return list(yaml.load_all(text, Loader=_LOADER))


def document(text: str) -> Any:
    """Return the only document of a text. Raises ValueError if there is not exactly one."""
    (found,) = documents(text)
    return found
