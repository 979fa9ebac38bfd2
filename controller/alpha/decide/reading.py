"""The specification that a job of the alpha dialect follows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType
from tfjob_operator.api.v1.types import InvalidSpec, Mistake

if TYPE_CHECKING:
    from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaSpec


def refused(spec: AlphaSpec | InvalidSpec, words: str) -> InvalidSpec:
    """Return the specification as invalid, because the API server has refused a child of it, in these words."""
    policy = spec.clean_pod_policy if isinstance(spec, InvalidSpec) else spec.cleanup_policy
    return InvalidSpec(
        (Mistake("", words),), managed_by=spec.managed_by, clean_pod_policy=policy, reason=ConditionReason.REFUSED
    )


def in_force(job: AlphaJob, spec: AlphaSpec | InvalidSpec) -> AlphaSpec | InvalidSpec:
    """Return the specification to follow: as invalid if the API server has refused it, until it is edited."""
    held = conditions.find(job.status.conditions or (), ConditionType.HELD)
    if isinstance(spec, InvalidSpec) or held is None or held.status != conditions.TRUE:
        return spec
    if held.reason != ConditionReason.REFUSED or job.status.observed_generation != job.metadata.generation:
        return spec
    return refused(spec, held.message)
