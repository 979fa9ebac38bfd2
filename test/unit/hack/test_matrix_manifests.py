"""Fields that the manifests must set so that `kubectl apply` works client-side and server-side, on every API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.manifests import is_crd, read_documents

MANIFESTS = Path(__file__).parents[3] / "manifests"
FILES = sorted(
    path
    for folder in ("base", "cluster-wide", "overlays", "addons")
    for path in (MANIFESTS / folder).rglob("*.yaml")
    if not is_crd(path)  # it describes such fields in a schema, and has none itself
)


def parts_of(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a document, at any depth."""
    if isinstance(value, dict):
        yield value
    for inside in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts_of(inside)


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(MANIFESTS)))
def test_no_field_is_left_to_a_default_over_which_two_ways_to_apply_would_fall_out(file: Path) -> None:
    """M5: a fieldRef is owned as a whole, default included: `apply`, then `apply --server-side`, conflict on 1.36.

    A port's protocol is part of the merge key of its list, and 1.20 refuses `apply --server-side` of a port without one.
    """
    for document in read_documents(file):
        for part in parts_of(document):
            if "fieldRef" in part:
                assert part["fieldRef"].get("apiVersion") == "v1", part
            if part.keys() & {"containerPort", "targetPort"}:
                assert "protocol" in part, part
