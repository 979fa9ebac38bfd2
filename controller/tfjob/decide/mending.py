"""What users have edited of a job's children, and must be restored. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.jobs.children import NO_LABELS, ChildLabels, ReplicaKey
from tfjob_operator.controller.tfjob.build.labels import selector_of
from tfjob_operator.controller.tfjob.decide.actions import Mending

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfjob_operator.controller.jobs.children import Pod, ReplicaKey, Service
    from tfjob_operator.controller.tfjob.decide.replicas import Replica


def relabellings(
    job: str, replicas: Iterable[Replica], services: Iterable[tuple[ReplicaKey, Service]]
) -> Iterator[Mending]:
    """Yield the children whose labels are not those of the replica that their names say they are (U9).

    For a child with any other name the labels alone say what it is; it is left as it is.
    """
    for replica in replicas:
        yield from _relabelled(job, replica.key, replica.pod)
    for key, service in services:
        yield from _relabelled(job, key, service)


def reselections(job: str, services: Iterable[tuple[ReplicaKey, Service]]) -> Iterator[Mending]:
    """Yield the services that do not select the pod of their replica (U17)."""
    for key, service in services:
        if service.spec is None or service.metadata.deletion_timestamp is not None:
            continue
        if service.spec.selector != selector_of(msgspec.to_builtins(labels_wanted(job, key))):
            yield Mending(service, key)


def labels_wanted(job: str, key: ReplicaKey, *, beside: ChildLabels = NO_LABELS) -> ChildLabels:
    """Return the labels that select a child of this replica, or the service of all, with the other labels of `beside`."""
    if not key.type:
        return msgspec.structs.replace(
            beside, group_name=c.GROUP_NAME, job_name=job, operator_name=c.OPERATOR_NAME, prefixed_job_name=job
        )
    kind, index = key.type.lower(), str(key.index)
    return ChildLabels(
        group_name=c.GROUP_NAME,
        job_name=job,
        replica_type=kind,
        replica_index=index,
        operator_name=c.OPERATOR_NAME,
        prefixed_job_name=job,
        prefixed_replica_type=kind,
        prefixed_replica_index=index,
        cluster_spec=beside.cluster_spec,
        restart_policy=beside.restart_policy,
    )


def _relabelled(job: str, key: ReplicaKey, child: Pod | Service) -> Iterator[Mending]:
    """Yield a child of this replica if its labels say something else than its name, unless it is about to go."""
    meta = child.metadata
    if meta.deletion_timestamp is not None or meta.name != key.name:
        return
    labels = meta.labels or NO_LABELS
    wanted = labels_wanted(job, key, beside=labels)
    if labels != wanted and labels != _of_newer_family(wanted):
        yield Mending(child, key)


def _of_newer_family(labels: ChildLabels) -> ChildLabels:
    """Return the labels that training-operator has set since 1.6. Nobody has edited those, and they say all there is to say."""
    return msgspec.structs.replace(labels, group_name="", job_name="", replica_type="", replica_index="")
