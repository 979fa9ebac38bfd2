"""What the page keeps of the cluster: slices of jobs, pods and events, and which job each belongs to. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from tfjob_operator.api.meta import Struct, object_key
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import TFJob, tfjob_with_unreadable_status
from tfjob_operator.cli.diagnosis.objects import Event, LifeMeta, Pod

if TYPE_CHECKING:
    from collections.abc import Sequence

POD_SELECTOR: Final = c.LABEL_OPERATOR_NAME
"""Pods of jobs, of both dialects: all of them bear this label, whatever its value."""
ALPHA_JOB_LABEL: Final = "tf_job_name"
_OF_REPLICA: Final = re.compile(rf"(.+)-(?:{'|'.join(c.REPLICA_TYPES)})-\d+", re.IGNORECASE)


class Job(TFJob, frozen=True, tag_field="kind", tag=c.TFJOBS.kind):
    """A TFJob with the time of its creation, which the operator does not need."""

    metadata: LifeMeta


class _Head(Struct, frozen=True):
    metadata: LifeMeta


def job_with_unreadable_status(raw: bytes, error: Exception) -> Job:
    """Return a job whose status does not decode, with its conditions if they do. Raises msgspec.ValidationError."""
    readable = tfjob_with_unreadable_status(raw, error)
    head = msgspec.json.decode(raw, type=_Head)
    return Job(metadata=head.metadata, spec=readable.spec, status=readable.status)


def job_key_of_pod(pod: Pod) -> str:
    """Return the key of the job that a pod was made for, "" for none."""
    labels = pod.metadata.labels or {}
    name = labels.get(c.LABEL_PREFIX + c.LABEL_JOB_NAME) or labels.get(ALPHA_JOB_LABEL, "")
    return object_key(pod.metadata.namespace, name) if name else ""


def job_key_of_event(event: Event) -> str:
    """Return the key of the job that an event is about: the job itself, or a replica's pod that may be gone by now."""
    about = event.involved_object
    if about.kind == c.TFJOBS.kind:
        return object_key(event.metadata.namespace, about.name)
    found = _OF_REPLICA.fullmatch(about.name) if about.kind == "Pod" else None
    return object_key(event.metadata.namespace, found[1]) if found is not None else ""


def by_job_of_pod(pod: Pod) -> Sequence[str]:
    """Index pods by their job."""
    return (job_key_of_pod(pod),)


def by_job_of_event(event: Event) -> Sequence[str]:
    """Index events by their job."""
    return (job_key_of_event(event),)
