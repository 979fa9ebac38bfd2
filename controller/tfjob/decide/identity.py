"""Which replica of a job a child is. Pure.

Its name says it, since nobody can edit that; where the name says nothing, labels do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.tfjob.children import NO_LABELS, child_name

if TYPE_CHECKING:
    from tfjob_operator.controller.tfjob.children import ChildMeta

Place = tuple[str, int]
"""A replica's type and index."""

NOWHERE: Final[Place] = ("", -1)
"""The place of a pod of which neither name nor labels say what it is."""

_TYPE_OF_LABEL: Final = {name.lower(): name for name in c.REPLICA_TYPES}


def place_of(job: str, child: ChildMeta) -> Place | None:
    """The replica of this job that an owned child is, by its name, or else by its labels; None where neither says so.

    An edit of the labels so makes no other replica of a pod, and none the less (U9).
    """
    place = place_of_name(job, child.name)
    if place is not None or not names_no_other(job, child):
        return place
    return place_of_labels(child)


def place_of_name(job: str, name: str) -> Place | None:
    """The replica whose pod and service bear this name, or None for any other name."""
    rest = name.removeprefix(f"{job}-")
    kind, _, index = rest.rpartition("-")
    replica_type = _TYPE_OF_LABEL.get(kind)
    if rest == name or replica_type is None or not (index.isascii() and index.isdigit()):
        return None
    place = replica_type, int(index)
    return place if name == child_name(job, *place) else None


def names_no_other(job: str, child: ChildMeta) -> bool:
    """Whether no label names another job. One family of labels is enough: other operators set but one."""
    labels = child.labels or NO_LABELS
    return (labels.job_name or job) == job == (labels.prefixed_job_name or job)


def place_of_labels(meta: ChildMeta) -> Place | None:
    """Replica type and index that a child's labels name, in either family, or None where they name none."""
    labels = meta.labels or NO_LABELS
    replica_type = _TYPE_OF_LABEL.get(labels.replica_type or labels.prefixed_replica_type)
    index = labels.replica_index or labels.prefixed_replica_index
    if replica_type is None or not (index.isascii() and index.isdigit()):
        return None
    return replica_type, int(index)
