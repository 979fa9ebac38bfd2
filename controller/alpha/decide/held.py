"""What to do about a job of the alpha dialect whose specification is invalid, or is refused by the API server. Pure.

As in v1: a job that has not begun fails, and one that has is held until the specification is corrected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionReason
from tfjob_operator.controller.alpha.decide.actions import Plan
from tfjob_operator.controller.alpha.decide.ending import fail
from tfjob_operator.controller.alpha.decide.observe import replicas_of
from tfjob_operator.controller.alpha.decide.problems import problems_of

if TYPE_CHECKING:
    from tfjob_operator.api.v1.types import InvalidSpec
    from tfjob_operator.controller.alpha.children import Children
    from tfjob_operator.controller.alpha.decide.status_draft import StatusDraft


def hold(draft: StatusDraft, spec: InvalidSpec, children: Children) -> Plan:
    """Hold a job that has begun; any other fails. One that was refused without an edit would never have run."""
    begun = draft.job.status.begun
    edited = begun is not None and draft.job.metadata.generation > begun.generation
    if begun is None or (spec.reason == ConditionReason.REFUSED and not edited):
        return fail(draft, ConditionReason.INVALID, f"invalid job spec: {spec.text}")
    if draft.set_held(conditions.TRUE, spec.reason, spec.text):
        text = "is held: what runs runs on, and nothing is made, deleted or judged until the spec is mended"
        message = f"TFJob {draft.job.metadata.name} {text}; invalid job spec: {spec.text}"
        draft.emit(EventType.WARNING, spec.reason, message)
    problems = problems_of(replicas_of(children).values())
    return Plan(status=draft.freeze(), events=tuple(draft.events), problems=problems)
