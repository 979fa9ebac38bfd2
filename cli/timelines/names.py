"""Which replica a pod is, by its labels, or by its name where only an event tells of it. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1.constants import LABEL_PREFIX, LABEL_REPLICA_INDEX, LABEL_REPLICA_TYPE, REPLICA_TYPES
from tfjob_operator.cli.timelines.values import ReplicaName

if TYPE_CHECKING:
    from collections.abc import Mapping

_TYPES: Final = {name.casefold(): name for name in REPLICA_TYPES}
_LABELS: Final = (
    (LABEL_PREFIX + LABEL_REPLICA_TYPE, LABEL_PREFIX + LABEL_REPLICA_INDEX),
    ("tf-replica-type", "tf-replica-index"),
    (LABEL_REPLICA_TYPE, LABEL_REPLICA_INDEX),
    ("job_type", "task_index"),
)
"""This operator's labels; two older pairs (before 2021); those of the alpha dialect, to which this operator adds its own."""
_NAME: Final = re.compile(rf"({'|'.join(_TYPES)})(?:-[a-z0-9]{{4}})?-(\d{{1,5}})(?:-[a-z0-9]{{5}})?", re.IGNORECASE)
"""After the job's name: `worker-0`; in the alpha dialect `worker-x7ab-0-abcde`, with or without the RuntimeId."""


def replica_of(labels: Mapping[str, str] | None, job: str, pod: str, runtime_id: str = "") -> ReplicaName:
    """Return which replica of a job a pod is, ReplicaName() where neither its labels nor its name tell it.

    In the alpha dialect names of pods have the job's RuntimeId in them, and not the job's name.
    """
    for kind, index in _LABELS:
        said, number = (labels or {}).get(kind, ""), (labels or {}).get(index, "")
        if said and number.isascii() and number.isdigit() and len(number) < 6:
            return ReplicaName(_TYPES.get(said.casefold(), said), int(number))
    rest = pod.removeprefix(f"{job}-")
    if runtime_id:
        rest = rest.replace(f"-{runtime_id}-", "-", 1)
    found = _NAME.fullmatch(rest) if rest != pod else None
    return ReplicaName(_TYPES[found[1].casefold()], int(found[2])) if found is not None else ReplicaName()


def order_of(name: ReplicaName) -> tuple[int, str, int]:
    """Return a sort key for a replica: types in the order of REPLICA_TYPES, then all others."""
    known = REPLICA_TYPES.index(name.type) if name.type in REPLICA_TYPES else len(REPLICA_TYPES)
    return known, name.type, name.number
