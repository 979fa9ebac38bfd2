"""Reads the project's YAML files."""

from functools import cache
from pathlib import Path
from typing import Any

from hack.crd_schema.__main__ import CRD
from hack.yaml_text import document, documents


def read_documents(path: Path) -> list[Any]:
    """All documents of a file."""
    return documents(path.read_text())


@cache
def crd() -> dict[str, Any]:
    """The CRD of kubeflow.org, which must not be changed. It is read once, and when it is needed: that takes a second."""
    found: dict[str, Any] = read_document(CRD)
    return found


def is_crd(path: Path) -> bool:
    """Whether a file is a CRD, by its text."""
    return "\nkind: CustomResourceDefinition\n" in path.read_text()


def read_document(path: Path) -> Any:
    """The only document of a file. Raises ValueError if there are others."""
    return document(path.read_text())
