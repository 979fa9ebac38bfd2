"""What is reported once about a specification: its warnings, and whether it is followed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType, EventReason
from tfjob_operator.api.v1.types import InvalidSpec

if TYPE_CHECKING:
    from tfjob_operator.api.v1.types import TFJobSpec
    from tfjob_operator.controller.tfjob.decide.status_draft import StatusDraft

_HELD: Final = "is held: what runs runs on, and nothing is made, deleted or judged until the spec is mended"
_WORDS: Final = {
    ConditionReason.INVALID: f"{_HELD}; the spec is invalid",
    ConditionReason.REFUSED: f"{_HELD}; the API server takes it no more",
    ConditionReason.TOO_LARGE: "keeps its number of replicas, and is otherwise looked after; "
    "what the spec asks for is too much",
}


def announce(draft: StatusDraft, spec: TFJobSpec | InvalidSpec) -> None:
    """Report what is new about a specification. The draft must have its Created condition."""
    if isinstance(spec, InvalidSpec):
        _say_that_it_is_held(draft, spec.reason, spec.text)
        return
    _warn(draft, spec)
    if spec.too_large is not None:
        _say_that_it_is_held(draft, ConditionReason.TOO_LARGE, str(spec.too_large))
    elif conditions.is_true(draft, ConditionType.HELD):
        text = f"TFJob {draft.job.metadata.name} goes on: its spec is mended."
        draft.set_held(conditions.FALSE, ConditionReason.MENDED, text)
        draft.emit(EventType.NORMAL, ConditionReason.MENDED, text)


def _say_that_it_is_held(draft: StatusDraft, reason: ConditionReason, mistakes: str) -> None:
    """Report once for the same mistakes that the job is held."""
    if draft.set_held(conditions.TRUE, reason, mistakes):
        draft.emit(EventType.WARNING, reason, f"TFJob {draft.job.metadata.name} {_WORDS[reason]}: {mistakes}")


def _warn(draft: StatusDraft, spec: TFJobSpec) -> None:
    """Report a specification's warnings when it is first seen, those of templates with the Created condition (B56)."""
    job = draft.job
    if job.status.observed_generation != job.metadata.generation:
        for reason, message in spec.warnings:
            draft.emit(EventType.WARNING, reason, message)
    is_new = conditions.find(job.status.conditions, ConditionType.CREATED) is None
    if is_new and any(replica.overrides_template_policy for replica in spec.replicas.values()):
        text = "Restart policy in pod template will be overwritten by restart policy in replica spec"
        draft.emit(EventType.WARNING, EventReason.RESTART_POLICY_OVERWRITTEN, text)
