"""The place of a child in its job, read from its labels apart from the code under test."""

from __future__ import annotations

from typing import Any, Final

REPLICA_TYPES: Final = {name.lower(): name for name in ("Chief", "Master", "PS", "Worker", "Evaluator")}

Slot = tuple[str, int]
"""Replica type and index."""


def slot_of(meta: dict[str, Any]) -> Slot:
    """The place of a pod or a service that the operator made."""
    labels = meta["labels"]
    return REPLICA_TYPES[labels["replica-type"]], int(labels["replica-index"])
