"""Reads the project's YAML files."""

from functools import cache
from pathlib import Path
from typing import Any

from hack.crd_schema.__main__ import CRD
from hack.yaml_text import document, documents


def read_documents(path: Path) -> list[Any]:
    """Return all documents of a file."""
    return documents(path.read_text())


@cache
def crd() -> dict[str, Any]:
    """Return the CRD of kubeflow.org; do not modify it. It is parsed once on demand, which takes a second."""
    found: dict[str, Any] = read_document(CRD)
    return found


def is_crd(path: Path) -> bool:
    """Return True if the text of a file is a CRD."""
    return "\nkind: CustomResourceDefinition\n" in path.read_text()


def read_document(path: Path) -> Any:
    """Return the only document of a file. Raises ValueError if there are several."""
    return document(path.read_text())
