"""Names of replicas, from labels and names of pods. Pure, and importable without msgspec."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

REPLICA_TYPES: Final = ("Chief", "Master", "PS", "Worker", "Evaluator")
"""The replica types in their order (`api.v1.constants`, which imports msgspec)."""


class ReplicaName(NamedTuple):
    """A numbered replica of a job.

    `type` is the replica type of v1. For a pod that cannot be assigned, it is "" and `number` is -1.
    """

    type: str = ""
    number: int = -1


_TYPES: Final = {name.casefold(): name for name in REPLICA_TYPES}
_PREFIX: Final = "training.kubeflow.org/"
_LABELS: Final = (
    (f"{_PREFIX}replica-type", f"{_PREFIX}replica-index"),
    ("tf-replica-type", "tf-replica-index"),
    ("replica-type", "replica-index"),
    ("job_type", "task_index"),
)
"""This operator's labels; two older pairs (before 2021); those of the alpha dialect, to which this operator adds its own."""
_NAME: Final = re.compile(rf"({'|'.join(_TYPES)})(?:-[a-z0-9]{{4}})?-(\d{{1,5}})(?:-[a-z0-9]{{5}})?", re.IGNORECASE)
"""After the job's name: `worker-0`; in the alpha dialect `worker-x7ab-0-abcde`, with or without the RuntimeId."""


def type_of(name: str) -> str:
    """Return a replica type as v1 spells it; any other with a capital letter only, since labels have it in lower case."""
    return _TYPES.get(name.casefold(), name.capitalize())


def replica_of(labels: Mapping[str, str] | None, job: str, pod: str, runtime_id: str = "") -> ReplicaName:
    """Return the replica of a pod by labels or name, ReplicaName() if neither helps. Alpha names contain the RuntimeId."""
    for kind, index in _LABELS:
        label, number = (labels or {}).get(kind, ""), (labels or {}).get(index, "")
        if label and number.isascii() and number.isdigit() and len(number) < 6:
            return ReplicaName(type_of(label), int(number))
    rest = pod.removeprefix(f"{job}-")
    if runtime_id:
        rest = rest.replace(f"-{runtime_id}-", "-", 1)
    match = _NAME.fullmatch(rest) if rest != pod else None
    return ReplicaName(type_of(match[1]), int(match[2])) if match is not None else ReplicaName()


def order_of(name: ReplicaName) -> tuple[int, str, int]:
    """Return a sort key for a replica: types in the order of REPLICA_TYPES, then all others."""
    known = REPLICA_TYPES.index(name.type) if name.type in REPLICA_TYPES else len(REPLICA_TYPES)
    return known, name.type, name.number
