"""Which replica of a job a child is. Pure.

Its name says it, since nobody can edit that; where the name says nothing, labels do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.jobs.children import NO_LABELS, ReplicaKey

if TYPE_CHECKING:
    from tfjob_operator.controller.jobs.children import ChildMeta

NO_REPLICA: Final = ReplicaKey("", -1, "")
"""The key of a pod of which neither name nor labels say what it is."""

_TYPE_OF_LABEL: Final = {name.lower(): name for name in c.REPLICA_TYPES}


def key_of(job: str, child: ChildMeta) -> ReplicaKey | None:
    """Return which replica of this job an owned child is: by its name, else by its labels; None where neither says so.

    So an edit of the labels turns no pod into another replica, or into none (U9).
    """
    key = key_of_name(job, child.name)
    if key is not None or not names_no_other(job, child):
        return key
    return key_of_labels(job, child)


def key_of_name(job: str, name: str) -> ReplicaKey | None:
    """Return the replica whose pod and service bear this name, or None for any other name."""
    rest = name.removeprefix(f"{job}-")
    kind, _, index = rest.rpartition("-")
    replica_type = _TYPE_OF_LABEL.get(kind)
    if rest == name or replica_type is None or not (index.isascii() and index.isdigit()):
        return None
    key = ReplicaKey.of(job, replica_type, int(index))
    return key if name == key.name else None


def key_of_service(job: str, name: str) -> ReplicaKey | None:
    """Return whose service bears this name: a replica's, or the whole job's; None for any other name."""
    return ReplicaKey.of_all(job) if name == job else key_of_name(job, name)


def names_no_other(job: str, child: ChildMeta) -> bool:
    """Return whether no label names another job. One family of labels is enough: other operators set but one."""
    labels = child.labels or NO_LABELS
    return (labels.job_name or job) == job == (labels.prefixed_job_name or job)


def key_of_labels(job: str, meta: ChildMeta) -> ReplicaKey | None:
    """Return the replica of this job that a child's labels name, in either family, or None where they name none."""
    labels = meta.labels or NO_LABELS
    replica_type = _TYPE_OF_LABEL.get(labels.replica_type or labels.prefixed_replica_type)
    index = labels.replica_index or labels.prefixed_replica_index
    if replica_type is None or not (index.isascii() and index.isdigit()):
        return None
    return ReplicaKey.of(job, replica_type, int(index))
