"""The conditions of a pod: PodScheduled, Initialized, ContainersReady, Ready. Pure.

Conditions of other types belong to others and are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hack.hollow_node.objects import FAILED, SUCCEEDED, TERMINAL, Condition, ContainerStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


def condition_of(conditions: Sequence[Condition] | None, kind: str) -> Condition | None:
    """The condition of this type, if the pod has it."""
    return next((condition for condition in conditions or () if condition.type == kind), None)


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
    conditions: Sequence[Condition] | None,
    inits: Sequence[ContainerStatus],
    mains: Sequence[ContainerStatus],
    phase: str,
    now: datetime,
) -> list[Condition]:
    """Draw all four conditions from the containers, in the kubelet's words."""
    result = set_condition(conditions, "PodScheduled", holds=True, now=now)
    completed, failed = phase == SUCCEEDED, phase == FAILED
    waiting = [c.name for c in inits if c.state.terminated is None or c.state.terminated.exit_code != 0]
    result = set_condition(
        result,
        "Initialized",
        holds=not waiting,
        now=now,
        reason="ContainersNotInitialized" if waiting else "PodCompleted" if completed else "",
        message=f"containers with incomplete status: [{' '.join(waiting)}]" if waiting else "",
    )
    unready = [c.name for c in mains if not c.ready]
    reason = "PodCompleted" if completed else "PodFailed" if failed else "ContainersNotReady" if unready else ""
    message = f"containers with unready status: [{' '.join(unready)}]" if unready and phase not in TERMINAL else ""
    for kind in ("Ready", "ContainersReady"):
        result = set_condition(result, kind, holds=not unready, now=now, reason=reason, message=message)
    return result
