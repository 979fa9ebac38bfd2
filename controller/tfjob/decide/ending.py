"""How a job ends: by its replicas, or by a limit of its own. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType
from tfjob_operator.controller.tfjob.decide.actions import Plan
from tfjob_operator.controller.tfjob.decide.clean_up import policy_after, to_clean_up, without_active

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.controller.tfjob.decide.replicas import Replica
    from tfjob_operator.controller.tfjob.decide.status_draft import StatusDraft


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ends: the condition that says so."""

    condition: ConditionType
    reason: ConditionReason
    message: str


_EVENT_OF: Final = {ConditionType.SUCCEEDED: ConditionReason.SUCCEEDED, ConditionType.FAILED: ConditionReason.FAILED}


def until_deadline(draft: StatusDraft, deadline_s: int | None) -> float | None:
    """Return the seconds that are left of `activeDeadlineSeconds`; None where there is none, or the job has not started."""
    if deadline_s is None or draft.start_time is None:
        return None
    return deadline_s - (draft.now - draft.start_time).total_seconds()


def past_deadline(draft: StatusDraft, deadline_s: int | None) -> Ending | None:
    """Return the end of a job that has been active for longer than it may, None for any other."""
    left = until_deadline(draft, deadline_s)
    if left is None or left > 0:
        return None
    message = f"Job {draft.job.metadata.name} has failed because it was active longer than specified deadline"
    return Ending(ConditionType.FAILED, ConditionReason.LIMIT, message)


def conclude(draft: StatusDraft, ending: Ending, clean_pod_policy: str, replicas: Sequence[Replica]) -> Plan:
    """Return a plan that writes the end and does nothing else: clean-up is for later plans, once the end is written."""
    draft.end(ending.condition, ending.reason, ending.message)
    leaving = to_clean_up(policy_after(draft.conditions, clean_pod_policy), replicas)
    draft.replica_statuses = without_active(draft.replica_statuses, replicas, leaving)
    draft.emit(EventType.NORMAL, _EVENT_OF[ending.condition], ending.message)
    return Plan(status=draft.freeze(), events=tuple(draft.events))
