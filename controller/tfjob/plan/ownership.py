"""Which children are a job's: orphans to adopt, children of an earlier operator, and edits to undo. Pure.

Orphans are adopted as by client-go's ControllerRefManager, except that nothing is released. For everything else only the
controller reference counts; labels only say which reference should be there. A child that another object controls is never
touched (RM-01).

Every operator for TFJob gave the pods and services of a job the names that this one gives them. Their labels changed with
the years, and our watches select by one that came in 2022; so the children of a job that another operator began are looked for
by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import JobStatus, TFJob, TFJobSpec
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.controller.jobs.children import NO_LABELS, ChildLabels, Pod, ReplicaKey, Service
from tfjob_operator.controller.jobs.pod_end import has_ended
from tfjob_operator.controller.tfjob.build.children import labels_of, selector_of
from tfjob_operator.controller.tfjob.plan.actions import Mending
from tfjob_operator.controller.tfjob.plan.replicas import (
    Replica,
    key_of,
    key_of_labels,
    key_of_name,
    key_of_service,
    names_no_other,
)

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


def is_of_predecessor(status: JobStatus) -> bool:
    """Return whether another operator has written this status and this one never has: it says of which generation it is."""
    return bool(status.conditions) and status.begun is None and not status.observed_generation


def may_have_hidden_children(job: TFJob) -> bool:
    """Return whether there may be children of this job that our watches do not show, and that matter to what is planned.

    Of a job that has ended they are left as they are.
    """
    status = job.status
    lives = job.metadata.deletion_timestamp is None and not conditions.is_finished(status)
    return lives and is_of_predecessor(status)


def unseen(job: TFJob, spec: TFJobSpec, children: Iterable[Pod] | Iterable[Service]) -> Iterator[ReplicaKey]:
    """Yield the replicas that have none of these children, which are all that is known of one kind.

    Beside those of the specification these are the replicas that the status counts: it may have been scaled down while no
    operator ran. A status counts as many replicas as a job may have and no more, whatever was written into it.
    """
    name = job.metadata.name
    seen = {key_of_name(name, child.metadata.name) for child in children}
    for kind in c.REPLICA_TYPES:
        told = job.status.replica_statuses.get(kind)
        counted = min(told.active + told.succeeded + told.failed, MAX_REPLICAS) if told is not None else 0
        for index in range(max(spec.sizes.get(kind, 0), counted)):
            key = ReplicaKey.of(name, kind, index)
            if key not in seen:
                yield key


def labelling(
    job: ObjectMeta, spec: TFJobSpec, key: ReplicaKey, uid: str, selector: Mapping[str, str]
) -> dict[str, object]:
    """Return the merge patch that makes a child one of ours: our labels, beside what it has.

    `selector` is that of a service, which then selects by ours; it is empty for a pod. A child of another UID is not touched.
    """
    labels = labels_of(job, spec, key)
    body: dict[str, object] = {"metadata": {"uid": uid, "labels": labels}}
    if selector:
        body["spec"] = {"selector": {**dict.fromkeys(selector), **selector_of(labels)}}
    return body


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
