"""What to do about a job that is suspended. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType
from tfjob_operator.controller.tfjob.decide.actions import Plan, PodDeletion
from tfjob_operator.controller.tfjob.decide.announcements import announce
from tfjob_operator.controller.tfjob.decide.facts import begun, finished_indices

if TYPE_CHECKING:
    from tfjob_operator.api.v1.types import TFJobSpec
    from tfjob_operator.controller.tfjob.decide.observe import Observed
    from tfjob_operator.controller.tfjob.decide.status_draft import StatusDraft


def suspend(draft: StatusDraft, spec: TFJobSpec, seen: Observed) -> Plan:
    """Plan for a job that is suspended; finished replicas and restarts are kept."""
    draft.create()
    draft.record(seen.replicas, finished_indices(draft.job.status, spec.sizes, seen.replicas))
    draft.begun = begun(draft.job, spec, has_pods=seen.has_pods, makes_pods=False)
    announce(draft, spec)
    return take_all(draft, seen)


def take_all(draft: StatusDraft, seen: Observed) -> Plan:
    """Set Suspended, and delete all pods and services, whatever the clean-up policy."""
    message = f"TFJob {draft.job.metadata.name} is suspended."
    if not conditions.is_true(draft.job.status, ConditionType.SUSPENDED):
        draft.emit(EventType.NORMAL, ConditionReason.SUSPENDED, message)
    draft.set_true(ConditionType.SUSPENDED, ConditionReason.SUSPENDED, message)
    return Plan(
        status=draft.freeze(),
        events=tuple(draft.events),
        delete_pods=tuple(
            PodDeletion(replica.pod) for replica in (*seen.replicas, *seen.surplus) if not replica.terminating
        ),
        delete_services=seen.services_except(()),
    )
