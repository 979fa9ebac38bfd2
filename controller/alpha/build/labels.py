"""The labels of children in the alpha dialect. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.v1 import constants as v1
from tfjob_operator.api.v1alpha1 import constants as c
from tfjob_operator.controller.alpha.children import replica_key

if TYPE_CHECKING:
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1alpha1.constants import Dialect
    from tfjob_operator.api.v1alpha1.types import AlphaSpec, Chief
    from tfjob_operator.controller.jobs.children import ReplicaKey


def selector_of(dialect: Dialect, job: ObjectMeta, runtime_id: str, key: ReplicaKey) -> dict[str, str]:
    """Return the labels that earlier operators gave too; by these a service selects the pod of its replica."""
    return {
        dialect.label: "",
        c.LABEL_JOB_TYPE: key.type,
        c.LABEL_RUNTIME_ID: runtime_id,
        c.LABEL_JOB_NAME: job.name,
        c.LABEL_TASK_INDEX: str(key.index),
    }


def labels_of(dialect: Dialect, job: ObjectMeta, runtime_id: str, key: ReplicaKey, chief: Chief) -> dict[str, str]:
    """Return all labels of a replica's children: those of earlier operators, and those by which today's tools find pods.

    `job-name` is not among them, since the API server itself gives it to the pods of a Job.
    """
    labels = selector_of(dialect, job, runtime_id, key) | labels_of_all(job)
    labels[v1.LABEL_PREFIX + v1.LABEL_REPLICA_TYPE] = key.type.lower()
    labels[v1.LABEL_PREFIX + v1.LABEL_REPLICA_INDEX] = str(key.index)
    if (key.type, key.index) == (chief.type, chief.index):
        labels[v1.LABEL_PREFIX + v1.LABEL_JOB_ROLE] = v1.ROLE_MASTER
    return labels


def labels_of_all(job: ObjectMeta) -> dict[str, str]:
    """Return the labels that all children of a job have, by which our caches select them."""
    return {v1.LABEL_OPERATOR_NAME: c.OPERATOR_NAME, v1.LABEL_PREFIX + v1.LABEL_JOB_NAME: job.name}


def labels_of_found(dialect: Dialect, job: ObjectMeta, spec: AlphaSpec, pod: ObjectMeta) -> dict[str, str]:
    """Return the labels to add to a pod that another operator made, so that it becomes one of ours."""
    said = pod.labels or {}
    kind, index = said.get(c.LABEL_JOB_TYPE, ""), said.get(c.LABEL_TASK_INDEX, "")
    if not kind or not (index.isascii() and index.isdigit()):
        return labels_of_all(job)
    return labels_of(dialect, job, spec.runtime_id, replica_key(spec.runtime_id, kind, int(index)), spec.chief)


def is_ours(pod: ObjectMeta) -> bool:
    """Return whether our watches select a pod with these labels."""
    return (pod.labels or {}).get(v1.LABEL_OPERATOR_NAME) == c.OPERATOR_NAME
