"""The replica of a child, parsed from its name without the code under test."""

from datetime import datetime
from typing import Any, Final

REPLICA_TYPES: Final = {name.lower(): name for name in ("Chief", "Master", "PS", "Worker", "Evaluator")}

Slot = tuple[str, int]
"""Replica type and index."""


def slot_of(meta: dict[str, Any]) -> Slot:
    """Return the replica of a pod or service: by its name or its Job's name, else by its labels."""
    owners = meta.get("ownerReferences") or [{}]
    if owners[0].get("kind") == "Job":
        return replica_of(owners[0]["name"])[0]
    kind, _, index = meta["name"].removeprefix(f"{owners[0].get('name')}-").rpartition("-")
    if kind in REPLICA_TYPES and index.isdigit():
        return REPLICA_TYPES[kind], int(index)
    labels = meta["labels"]
    return REPLICA_TYPES[labels["replica-type"]], int(labels["replica-index"])


def attempt_of_pod(pod: dict[str, Any]) -> int:
    return int((pod["metadata"].get("labels") or {}).get("training.kubeflow.org/restart-attempt") or 0)


def replica_of(name: str) -> tuple[Slot, str]:
    """Return the replica of an alpha job's child, and its RuntimeId: `worker-76no-1` is the second worker of 76no."""
    kind, _, rest = name.partition("-")
    runtime_id, _, index = rest.rpartition("-")
    return (REPLICA_TYPES[kind], int(index)), runtime_id


def selector_of(job: str, slot: Slot) -> dict[str, str]:
    return {
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/job-name": job,
        "training.kubeflow.org/replica-type": slot[0].lower(),
        "training.kubeflow.org/replica-index": str(slot[1]),
    }


def labels_of(job: str, slot: Slot) -> dict[str, str]:
    """Return the labels that identify a child's replica and job."""
    short = {
        "group-name": "kubeflow.org",
        "job-name": job,
        "replica-type": slot[0].lower(),
        "replica-index": str(slot[1]),
    }
    return short | selector_of(job, slot)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
