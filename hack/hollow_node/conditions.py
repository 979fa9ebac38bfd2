"""The conditions of a pod that a kubelet derives from its containers. Pure.

Conditions of other types belong to others and are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from hack.hollow_node.objects import FAILED, SUCCEEDED, Condition
from hack.hollow_node.pod_containers import PodContainers
from hack.kubernetes_versions import READY_TELLS_FAILURE

DISRUPTED = "DisruptionTarget"
SANDBOX = "PodReadyToStartContainers"
RESTARTING = "AllContainersRestarting"

_Drawn = tuple[bool, str, str]
"""What a condition is to say: whether it holds, its reason, its message."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the conditions depend on besides the containers.

    `ended`: the phase that the pod has, or is about to have, because it is over. `sandbox`: whether it has one; None where
    kubelets do not report that.
    """

    ended: str | None = None
    sandbox: bool | None = None


def condition_of(conditions: Sequence[Condition] | None, kind: str) -> Condition | None:
    """Return the condition of this type, if the pod has it."""
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
    return _set(conditions, {kind: (holds, reason, message)}, now)


def summarise(
    conditions: Sequence[Condition] | None, containers: PodContainers, told: Told, now: datetime
) -> list[Condition]:
    """Set the conditions that a kubelet derives, with its reasons and messages."""
    drawn: dict[str, _Drawn] = {"PodScheduled": (True, "", "")}
    if told.sandbox is not None:
        drawn[SANDBOX] = (told.sandbox, "", "")
    if (restarting := containers.restart_all()) is not None:
        drawn[RESTARTING] = (restarting, "RestartAllContainersStarted" if restarting else "", "")
    completed = told.ended == SUCCEEDED
    if waiting := containers.incomplete_inits():
        message = f"containers with incomplete status: [{' '.join(waiting)}]"
        drawn["Initialized"] = (False, "ContainersNotInitialized", message)
    else:
        drawn["Initialized"] = (True, "PodCompleted" if completed else "", "")
    vouching = (*(c for c in containers.inits if c.name in containers.sidecars), *containers.mains)
    unready = [c.name for c in vouching if not c.ready]
    reason, message = "", ""
    if completed:
        reason = "PodCompleted"
    elif told.ended == FAILED and containers.rules.kubernetes.has(READY_TELLS_FAILURE):
        reason = "PodFailed"
    elif unready:
        reason, message = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    drawn["Ready"] = drawn["ContainersReady"] = (not unready and told.ended is None, reason, message)
    return _set(conditions, drawn, now)


def _set(conditions: Sequence[Condition] | None, drawn: dict[str, _Drawn], now: datetime) -> list[Condition]:
    """Return the conditions with these set: each in its place, new ones at the end."""
    old = {condition.type: condition for condition in conditions or ()}
    new = {kind: _condition(kind, old.get(kind), entry, now) for kind, entry in drawn.items()}
    return list((old | new).values())


def _condition(kind: str, old: Condition | None, drawn: _Drawn, now: datetime) -> Condition:
    holds, reason, message = drawn
    status = "True" if holds else "False"
    since = old.last_transition_time if old is not None and old.status == status else now
    return Condition(type=kind, status=status, last_transition_time=since, reason=reason, message=message)
