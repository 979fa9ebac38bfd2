"""How a job is named where something points at it: its children, and events. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfjob_operator.api.core import ObjectReference
from tfjob_operator.api.v1.constants import TFJOBS

if TYPE_CHECKING:
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.types import TFJob


def reference_to(job: TFJob) -> ObjectReference:
    """The reference by which an event finds its job."""
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
    """The controller reference that makes a child ours, and lets the garbage collector take it with the job (RM-04)."""
    return {
        "apiVersion": TFJOBS.api_version,
        "kind": TFJOBS.kind,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
