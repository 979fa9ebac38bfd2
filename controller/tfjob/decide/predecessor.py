"""Jobs that another operator began, before this one was installed: which they are, and which children to look for. Pure.

Every operator for TFJob gave the pods and services of a job the names that this one gives them. Their labels changed with
the years, and our watches select by one that came in 2022.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.tfjob.build.labels import labels_of, selector_of
from tfjob_operator.controller.tfjob.decide.identity import key_of_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.types import JobStatus, TFJob, TFJobSpec
    from tfjob_operator.controller.jobs.children import Pod, Service


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
