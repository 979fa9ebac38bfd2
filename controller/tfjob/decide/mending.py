"""What users have edited of a job's children, and what is to be set right again. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.children import NO_LABELS, ChildLabels
from tfjob_operator.controller.tfjob.build.pod import selector_of
from tfjob_operator.controller.tfjob.decide.actions import Mending, Slot
from tfjob_operator.controller.tfjob.decide.observe import place_of_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfjob_operator.api.v1.children import Pod, Service
    from tfjob_operator.controller.tfjob.decide.observe import Replica


def relabellings(job: str, replicas: Iterable[Replica], services: Iterable[Service]) -> Iterator[Mending]:
    """The children whose labels are not those of the replica that their names say they are (U9).

    What has another name has no more than its labels to say what it is: those are left as they are.
    """
    yield from (found for replica in replicas for found in _relabelled(job, replica.pod))
    yield from (found for service in services for found in _relabelled(job, service))


def reselections(job: str, services: Iterable[Service]) -> Iterator[Mending]:
    """The services that select something else than the pod of their replica (U17)."""
    for service in services:
        slot = _slot_of(job, service)
        if slot is None or service.spec is None:
            continue
        if service.spec.selector != selector_of(msgspec.to_builtins(labels_wanted(job, slot))):
            yield Mending(service, slot)


def labels_wanted(job: str, slot: Slot) -> ChildLabels:
    """The labels by which a child of this place is found."""
    kind, index = slot.type.lower(), str(slot.index)
    return ChildLabels(
        group_name=c.GROUP_NAME,
        job_name=job,
        replica_type=kind,
        replica_index=index,
        operator_name=c.OPERATOR_NAME,
        prefixed_job_name=job,
        prefixed_replica_type=kind,
        prefixed_replica_index=index,
    )


def _relabelled(job: str, child: Pod | Service) -> Iterator[Mending]:
    slot = _slot_of(job, child)
    if slot is None:
        return
    labels = child.metadata.labels or NO_LABELS
    if labels != msgspec.structs.replace(
        labels_wanted(job, slot), restart_policy=labels.restart_policy, cluster_spec=labels.cluster_spec
    ):
        yield Mending(child, slot)


def _slot_of(job: str, child: Pod | Service) -> Slot | None:
    """The place that the name of a child says, unless it is about to go."""
    if child.metadata.deletion_timestamp is not None:
        return None
    place = place_of_name(job, child.metadata.name)
    return None if place is None else Slot(*place, child.metadata.name)
