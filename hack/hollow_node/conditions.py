"""The conditions of a pod that a kubelet draws from its containers. Pure.

Conditions of other types belong to others and are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hack.hollow_node.objects import FAILED, SUCCEEDED, Condition
from hack.kubernetes_versions import READY_TELLS_FAILURE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from hack.hollow_node.pod_containers import PodContainers

DISRUPTION_TARGET = "DisruptionTarget"
SANDBOX = "PodReadyToStartContainers"
RESTARTING = "AllContainersRestarting"


@dataclass(frozen=True, slots=True)
class Told:
    """What the conditions say besides what the containers show.

    `ended`: the phase that the pod has, or is about to have, because it is over. `sandbox`: whether it has one; None where
    kubelets do not tell.
    """

    ended: str | None = None
    sandbox: bool | None = None


def condition_of(conditions: Sequence[Condition] | None, kind: str) -> Condition | None:
    """The condition of this type, if the pod has it."""
    return next((condition for condition in conditions or () if condition.type == kind), None)


def holds(conditions: Sequence[Condition] | None, kind: str) -> bool:
    """Whether the pod has this condition and it is true."""
    condition = condition_of(conditions, kind)
    return condition is not None and condition.status == "True"


def set_condition(
    conditions: Sequence[Condition] | None,
    kind: str,
    *,
    holds: bool,
    now: datetime,
    reason: str = "",
    message: str = "",
) -> list[Condition]:
    """Set a condition; the time of its transition moves only when its status does."""
    old, status = condition_of(conditions, kind), str(holds)
    since = old.last_transition_time if old is not None and old.status == status else now
    new = Condition(type=kind, status=status, last_transition_time=since, reason=reason, message=message)
    if old is None:
        return [*(conditions or ()), new]
    return [new if condition is old else condition for condition in conditions or ()]


def summarise(
    conditions: Sequence[Condition] | None, containers: PodContainers, told: Told, now: datetime
) -> list[Condition]:
    """Draw the kubelet's conditions, in its words."""
    result = set_condition(conditions, "PodScheduled", holds=True, now=now)
    if told.sandbox is not None:
        result = set_condition(result, SANDBOX, holds=told.sandbox, now=now)
    if (restarting := containers.restart_all()) is not None:
        reason = "RestartAllContainersStarted" if restarting else ""
        result = set_condition(result, RESTARTING, holds=restarting, now=now, reason=reason)
    waiting = containers.incomplete_inits()
    completed = told.ended == SUCCEEDED
    result = set_condition(
        result,
        "Initialized",
        holds=not waiting,
        now=now,
        reason="ContainersNotInitialized" if waiting else "PodCompleted" if completed else "",
        message=f"containers with incomplete status: [{' '.join(waiting)}]" if waiting else "",
    )
    vouching = (*(c for c in containers.inits if c.name in containers.sidecars), *containers.mains)
    unready = [c.name for c in vouching if not c.ready]
    reason, message = "", ""
    if completed:
        reason = "PodCompleted"
    elif told.ended == FAILED and containers.rules.kubernetes.has(READY_TELLS_FAILURE):
        reason = "PodFailed"
    elif unready:
        reason, message = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    ready = not unready and told.ended is None
    for kind in ("Ready", "ContainersReady"):
        result = set_condition(result, kind, holds=ready, now=now, reason=reason, message=message)
    return result
