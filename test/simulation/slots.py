"""The place of a child in its job, read from its name apart from the code under test."""

from __future__ import annotations

from typing import Any, Final

REPLICA_TYPES: Final = {name.lower(): name for name in ("Chief", "Master", "PS", "Worker", "Evaluator")}

Slot = tuple[str, int]
"""Replica type and index."""


def slot_of(meta: dict[str, Any]) -> Slot:
    """The place of a pod or a service: its name says it, if the operator made it; else its labels."""
    owners = meta.get("ownerReferences") or [{}]
    kind, _, index = meta["name"].removeprefix(f"{owners[0].get('name')}-").rpartition("-")
    if kind in REPLICA_TYPES and index.isdigit():
        return REPLICA_TYPES[kind], int(index)
    labels = meta["labels"]
    return REPLICA_TYPES[labels["replica-type"]], int(labels["replica-index"])


def selector_of(job: str, slot: Slot) -> dict[str, str]:
    """How the service of a replica finds its pod."""
    return {
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/job-name": job,
        "training.kubeflow.org/replica-type": slot[0].lower(),
        "training.kubeflow.org/replica-index": str(slot[1]),
    }


def labels_of(job: str, slot: Slot) -> dict[str, str]:
    """The labels that say which replica of which job a child is."""
    short = {
        "group-name": "kubeflow.org",
        "job-name": job,
        "replica-type": slot[0].lower(),
        "replica-index": str(slot[1]),
    }
    return short | selector_of(job, slot)
