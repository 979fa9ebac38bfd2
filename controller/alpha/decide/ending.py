"""How a job of the alpha dialect ends, and which of its children are deleted then. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import CleanPodPolicy, ConditionReason, ConditionType
from tfjob_operator.api.v1.types import InvalidSpec
from tfjob_operator.api.v1alpha1.constants import Phase
from tfjob_operator.controller.alpha.decide.actions import Plan
from tfjob_operator.controller.alpha.decide.observe import replicas_of

if TYPE_CHECKING:
    from tfjob_operator.api.v1alpha1.types import AlphaSpec, AlphaStatus
    from tfjob_operator.controller.alpha.children import Children
    from tfjob_operator.controller.alpha.decide.actions import Child
    from tfjob_operator.controller.alpha.decide.status_draft import StatusDraft

_OVER: Final = frozenset({Phase.CLEAN_UP, Phase.FAILED, Phase.DONE})


def is_over(status: AlphaStatus) -> bool:
    """Whether the job has ended. Earlier operators, which had no conditions, said so only by the phase."""
    return status.phase in _OVER or any(
        each.type in {ConditionType.SUCCEEDED, ConditionType.FAILED} and each.status == conditions.TRUE
        for each in status.conditions or ()
    )


def conclude(draft: StatusDraft, spec: AlphaSpec, children: Children, why_failed: str) -> Plan:
    """Return a plan that writes the end and does nothing else: clean-up is for later plans, once the end is written."""
    meta = draft.job.metadata
    if why_failed:
        chief = f"{spec.chief.type} {spec.chief.index}"
        text = f"TFJob {meta.namespace}/{meta.name} has failed because its chief, {chief}, has failed. {why_failed}"
        draft.end(ConditionType.FAILED, ConditionReason.FAILED, text)
        draft.emit(EventType.NORMAL, ConditionReason.FAILED, text)
    else:
        text = f"TFJob {meta.namespace}/{meta.name} successfully completed."
        draft.end(ConditionType.SUCCEEDED, ConditionReason.SUCCEEDED, text)
        draft.emit(EventType.NORMAL, ConditionReason.SUCCEEDED, text)
    draft.phase = Phase.CLEAN_UP if to_clean_up(spec.cleanup_policy, children) else Phase.DONE
    return Plan(status=draft.freeze(), events=tuple(draft.events))


def fail(draft: StatusDraft, reason: ConditionReason, message: str) -> Plan:
    """Return a plan that ends a job which has not begun."""
    draft.end(ConditionType.FAILED, reason, message)
    draft.phase = Phase.FAILED
    draft.emit(EventType.WARNING, reason, message)
    return Plan(status=draft.freeze(), events=tuple(draft.events))


def clean_up(draft: StatusDraft, spec: AlphaSpec | InvalidSpec, children: Children) -> Plan:
    """Clean up after the end; the phase is Done when nothing is left to do."""
    if draft.phase == Phase.FAILED:
        policy = CleanPodPolicy.RUNNING  # of a job that never began there is nothing to look at
    else:
        policy = spec.clean_pod_policy if isinstance(spec, InvalidSpec) else spec.cleanup_policy
    leaving = to_clean_up(policy, children)
    if draft.phase != Phase.FAILED:
        draft.phase = Phase.CLEAN_UP if leaving else Phase.DONE
    return Plan(status=draft.freeze(), delete=leaving)


def to_clean_up(policy: str, children: Children) -> tuple[Child, ...]:
    """Return what is deleted after the end: nothing for None, everything for All, for Running what has not ended by itself.

    A Job takes its pods with it, and a service goes with the Job of its name. The Jobs come first.
    """
    if policy == CleanPodPolicy.NONE:
        return ()
    found = replicas_of(children)
    staying = set()
    if policy != CleanPodPolicy.ALL:
        staying = {name for name, replica in found.items() if replica.has_ended}
    jobs = [each for each in children.jobs if each.metadata.name not in staying]
    services = [each for each in children.services if each.metadata.name not in staying]
    bare = [each for name, pods in children.bare.items() if name not in staying for each in pods]
    every: list[Child] = [*jobs, *bare, *services, *children.config_maps]
    return tuple(each for each in every if each.metadata.deletion_timestamp is None)
