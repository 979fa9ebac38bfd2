"""How a job is named where something points at it: its children, and events. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfjob_operator.api.core import ObjectReference
from tfjob_operator.api.v1.constants import TFJOBS

if TYPE_CHECKING:
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.types import TFJob


def reference_to(job: TFJob) -> ObjectReference:
    """Return the reference to a job for its events."""
    meta = job.metadata
    return ObjectReference(
        api_version=TFJOBS.api_version,
        kind=TFJOBS.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def owner_reference(job: ObjectMeta) -> dict[str, Any]:
    """Return the controller reference to the job, by which the garbage collector deletes the child with it (RM-04)."""
    return {
        "apiVersion": TFJOBS.api_version,
        "kind": TFJOBS.kind,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
