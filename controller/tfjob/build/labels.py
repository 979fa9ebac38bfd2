"""The labels of children, and how a service selects its pod by them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.v1 import constants as c

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.types import ReplicaSpec, TFJobSpec
    from tfjob_operator.controller.jobs.children import ReplicaKey


def deciding_type(specs: Mapping[str, ReplicaSpec]) -> str | None:
    """Return the type that decides about the job: chief or master when present, else worker; None where all types count."""
    for name in (*c.CHIEF_TYPES, c.WORKER):
        if name in specs and specs[name].replicas > 0:
            return name
    return None


def selector_of(labels: Mapping[str, str]) -> dict[str, str]:
    """How a service selects the pods that it is for, which have its labels."""
    return {name: labels[name] for name in c.SELECTING_LABELS if name in labels}


def labels_of(job: ObjectMeta, spec: TFJobSpec, key: ReplicaKey) -> dict[str, str]:
    """Our labels on a child, in both families. They win over the template's."""
    labels = labels_of_all(job)
    if not key.type:
        return labels  # the service of the whole job
    for old, name, value in (
        (c.LABEL_TF_REPLICA_TYPE, c.LABEL_REPLICA_TYPE, key.type.lower()),
        (c.LABEL_TF_REPLICA_INDEX, c.LABEL_REPLICA_INDEX, str(key.index)),
    ):
        labels[name] = labels[old] = labels[c.LABEL_PREFIX + name] = value
    if key.index == 0 and key.type == deciding_type(spec.replicas):
        labels[c.LABEL_JOB_ROLE] = labels[c.LABEL_PREFIX + c.LABEL_JOB_ROLE] = c.ROLE_MASTER
    return labels


def labels_of_all(job: ObjectMeta) -> dict[str, str]:
    """Return the labels that all children of a job have, of whatever kind."""
    return {
        c.LABEL_GROUP_NAME: c.GROUP_NAME,
        c.LABEL_JOB_NAME: job.name,
        c.LABEL_TF_JOB_NAME: job.name,
        c.LABEL_CONTROLLER_NAME: c.CONTROLLER_NAME,
        c.LABEL_OPERATOR_NAME: c.OPERATOR_NAME,
        c.LABEL_PREFIX + c.LABEL_JOB_NAME: job.name,
    }
