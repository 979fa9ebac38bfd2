"""Which orphans a job adopts. Pure.

As client-go's ControllerRefManager does it, except that nothing is released. For everything else only the controller
reference counts; labels only say which reference should be there. A child that another object controls is never touched
(RM-01).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.jobs.children import NO_LABELS, Pod, ReplicaKey, Service
from tfjob_operator.controller.jobs.pod_end import has_ended
from tfjob_operator.controller.tfjob.decide.identity import (
    key_of,
    key_of_labels,
    key_of_name,
    key_of_service,
    names_no_other,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.controller.jobs.children import ReplicaKey

C = TypeVar("C", Pod, Service)


def is_adoptable(job: str, child: Pod | Service) -> bool:
    """Whether all labels of an orphan make it a replica, or a replica's service, of the job of this name.

    A pod that has ended is not adoptable: it is the outcome of another job (D15). A service is adoptable under its
    replica's name only.
    """
    meta = child.metadata
    labels = meta.labels or NO_LABELS
    key = _key_of(job, child)
    by_name = key_of_service(job, meta.name) if isinstance(child, Service) else key_of_name(job, meta.name)
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
        key = _key_of(job, child)
        if key is None or key in held or not is_adoptable(job, child):
            continue
        if key not in adopt or child.metadata.name == key.name:
            adopt[key] = child
    return tuple(adopt.values())


def _key_of(job: str, orphan: Pod | Service) -> ReplicaKey | None:
    """Return which child of this job an orphan would be: its labels say so, and of the service of all replicas its name."""
    key = key_of_labels(job, orphan.metadata)
    if key is None and isinstance(orphan, Service) and orphan.metadata.name == job:
        return ReplicaKey.of_all(job)
    return key
