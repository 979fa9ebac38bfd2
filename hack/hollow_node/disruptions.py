"""What befalls a whole pod without its doing: the kubelet or the node take it away, or do not let it in. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from hack.hollow_node.conditions import DISRUPTED, set_condition
from hack.hollow_node.containers import current_run, end_of
from hack.hollow_node.deletion import delete
from hack.hollow_node.moment import Moment, Removal, Step
from hack.hollow_node.objects import FAILED, SUCCEEDED, HollowStatus
from hack.hollow_node.pod_containers import is_done
from hack.hollow_node.script import Outcome
from hack.hollow_node.stopping import stop
from hack.kubernetes_versions import (
    DEADLINE_WAITS_FOR_CONTAINERS,
    DISRUPTION_TARGET,
    EVICTED_MAY_SUCCEED,
    REJECTIONS_SAY_SO,
    SHUTDOWN_TELLS_THE_TRUTH,
)

HARD_EVICTION_GRACE_S: Final = 1  # the grace of pods that a hard eviction threshold takes


@dataclass(frozen=True, slots=True)
class Fate:
    """What befalls the whole pod because the script of a running container says so, and since when."""

    outcome: Outcome
    since: datetime


def due_fate(moment: Moment) -> Fate | None:
    """Return what has happened to the whole pod by now."""
    for status in moment.containers.all():
        if status.state.running is not None:
            run = current_run(moment.script, status)
            end = end_of(status.state.running, run)
            if run.outcome is not Outcome.EXIT and end is not None and moment.now >= end:
                return Fate(run.outcome, end)
    return None


def meet(moment: Moment, fate: Fate) -> Step:
    """Let the first of a fate and a deletion decide; but a lost node reports no deletion as carried out."""
    if fate.outcome is Outcome.NODE_LOST:
        return _stay_lost(moment, fate)
    if moment.deleting and moment.asked < fate.since.replace(microsecond=0):
        return delete(moment)
    return _disrupt(moment, fate)


def _stay_lost(moment: Moment, fate: Fate) -> Step:
    """Do what node controller and taint manager do while the kubelet is silent; no deletion is ever confirmed."""
    lost = replace(
        moment.status, conditions=set_condition(moment.status.conditions, "Ready", holds=False, now=moment.now)
    )
    due = fate.since + timedelta(seconds=moment.place.timing.unreachable)
    if moment.deleting:
        return Step(lost)
    if moment.now < due:
        return Step(lost, due)
    message = "Taint manager: deleting due to NoExecute taint"
    return Step(_disrupted(moment, lost, "DeletionByTaintManager", message), removal=Removal.GRACEFUL)


def _disrupt(moment: Moment, fate: Fate) -> Step:
    """Evict for want of memory, or shut the node down. Since 1.22 what exits with 0 on SIGTERM has Succeeded."""
    if fate.outcome is Outcome.EVICTED:
        change, reason, grace = EVICTED_MAY_SUCCEED, "Evicted", HARD_EVICTION_GRACE_S
        message = "The node was low on resource: memory. "
    else:
        change, grace = SHUTDOWN_TELLS_THE_TRUTH, moment.pod.spec.termination_grace_period_seconds
        reason, message = "Terminated", "Pod was terminated in response to imminent node shutdown."
        if not moment.kubernetes.has(change):
            reason, message = "Shutdown", "Node is shutting, evicting pods"
    if not moment.kubernetes.has(change):
        return Step(moment.cut_off(reason, message))
    due = stop(moment.containers, fate.since, fate.since + timedelta(seconds=grace), moment.now)
    if due is not None:
        return Step(moment.status, due)
    if all(is_done(c) for c in moment.containers.mains):
        reason = message = ""
    phase = FAILED if reason else SUCCEEDED
    ended = replace(moment.report(phase, ended=phase, sandbox=False), reason=reason, message=message)
    return Step(_disrupted(moment, ended, "TerminationByKubelet", message or "Pod was stopped by the kubelet"))


def _disrupted(moment: Moment, status: HollowStatus, reason: str, message: str) -> HollowStatus:
    """Say that the pod's end is not its own doing, where that is told."""
    if not moment.kubernetes.has(DISRUPTION_TARGET):
        return status
    conditions = set_condition(status.conditions, DISRUPTED, holds=True, now=moment.now, reason=reason, message=message)
    return replace(status, conditions=conditions)


def rejection(moment: Moment) -> str | None:
    """Why the kubelet does not let the pod in, if it does not."""
    if moment.status.start_time is not None:
        return None
    runs = (moment.script.run(container.name, 0) for container in moment.containers.all())
    return next((run.reason for run in runs if run.outcome is Outcome.REJECTED), None)


def reject(moment: Moment, reason: str) -> HollowStatus:
    """Return a status with nothing but a phase and a reason: the pod is not admitted."""
    intro = "Pod was rejected:" if moment.kubernetes.has(REJECTIONS_SAY_SO) else "Pod"
    message = f"{intro} the script of the hollow node says {reason}"
    return HollowStatus(observed_generation=moment.generation, phase=FAILED, reason=reason, message=message)


def expiry(moment: Moment) -> datetime | None:
    """When the pod has lived for its activeDeadlineSeconds, if it has any."""
    seconds, since = moment.pod.spec.active_deadline_seconds, moment.status.start_time
    return None if seconds is None or since is None else since + timedelta(seconds=seconds)


def exceed_deadline(moment: Moment, expired: datetime) -> Step:
    """End a pod that has lived longer than its activeDeadlineSeconds."""
    reason, message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
    if not moment.kubernetes.has(DEADLINE_WAITS_FOR_CONTAINERS):
        statuses = [replace(c, ready=False) for c in moment.containers.mains]
        cut = moment.cut_off(reason, message)
        inits = moment.status.init_container_statuses
        return Step(replace(cut, container_statuses=statuses, init_container_statuses=inits))
    due = stop(moment.containers, expired, expired + moment.grace, moment.now)
    if due is not None:
        return Step(moment.report(moment.status.phase, ended=FAILED), due)
    failed = moment.report(FAILED, ended=FAILED, sandbox=False)
    return Step(replace(failed, reason=reason, message=message))
