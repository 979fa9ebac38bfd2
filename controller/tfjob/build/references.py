"""How a job is named where something points at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.core import ObjectReference
from tfjob_operator.api.v1.constants import TFJOBS

if TYPE_CHECKING:
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
