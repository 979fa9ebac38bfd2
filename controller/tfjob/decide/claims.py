"""Which orphans a job adopts. Pure.

As client-go's ControllerRefManager does it, but that nothing is released. Only the controller reference counts for everything
else; labels say no more than which reference should be there. A child that another object controls is never touched (RM-01).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.tfjob.children import NO_LABELS, Pod, Service
from tfjob_operator.controller.tfjob.decide.identity import key_of, key_of_labels, key_of_name, names_no_other
from tfjob_operator.controller.tfjob.decide.pod_end import has_ended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.controller.tfjob.children import ReplicaKey

C = TypeVar("C", Pod, Service)


def is_adoptable(job: str, child: Pod | Service) -> bool:
    """Whether an orphan that stays is by all its labels a replica, or a replica's service, of the job of this name.

    A pod that has ended is none: it is the outcome of another job (D15). A service is of use under its replica's name alone.
    """
    meta = child.metadata
    labels = meta.labels or NO_LABELS
    key, by_name = key_of_labels(job, meta), key_of_name(job, meta.name)
    return (
        meta.deletion_timestamp is None
        and labels.group_name == c.GROUP_NAME
        and labels.operator_name == c.OPERATOR_NAME
        and labels.job_name == job
        and names_no_other(job, meta)
        and key is not None
        and (by_name == key or (by_name is None and isinstance(child, Pod)))
        and not (isinstance(child, Pod) and has_ended(child))
    )


def claims(job: str, owned: Sequence[C], orphans: Sequence[C]) -> tuple[C, ...]:
    """Return the orphans of one kind that a job that lives adopts (RM-01).

    `owned` are the children that it controls, `orphans` those of `ORPHAN_INDEX`. Of several orphans for one replica one is
    adopted, that with the replica's name if there is one; none if the replica has its child already. What a job controls it
    never lets go: whatever its labels say, it goes with the job (U9).
    """
    if not orphans:
        return ()
    held = {key_of(job, child.metadata) for child in owned}
    adopt: dict[ReplicaKey, C] = {}
    for child in orphans:
        key = key_of_labels(job, child.metadata)
        if key is None or key in held or not is_adoptable(job, child):
            continue
        if key not in adopt or child.metadata.name == key.name:
            adopt[key] = child
    return tuple(adopt.values())
