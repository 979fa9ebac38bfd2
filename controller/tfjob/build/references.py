"""How a job is named where something points at it: its children, and events. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfjob_operator.api.core import object_reference
from tfjob_operator.api.owners import controller_reference
from tfjob_operator.api.v1.constants import TFJOBS

if TYPE_CHECKING:
    from tfjob_operator.api.core import ObjectReference
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.types import TFJob


def reference_to(job: TFJob) -> ObjectReference:
    """Return the reference to a job for its events."""
    return object_reference(TFJOBS, job.metadata)


def owner_reference(job: ObjectMeta) -> dict[str, Any]:
    """Return the controller reference to the job, by which the garbage collector deletes the child with it (RM-04)."""
    return controller_reference(TFJOBS, job)
