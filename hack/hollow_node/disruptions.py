"""What happens to a whole pod without its doing: eviction, shutdown or loss of its node, rejection, its deadline. Pure."""

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
    """What happens to the whole pod because its node shuts down or a running container's script says so, and since when."""

    outcome: Outcome
    since: datetime
    reason: str = ""


def due_fate(moment: Moment) -> Fate | None:
    """Return what has happened to the whole pod by now. A shutdown ends only pods that have begun and are not over."""
    shutdown = moment.place.shutdown
    if (
        shutdown is not None
        and moment.now >= shutdown.since
        and not moment.containers.nothing_began()
        and not moment.containers.is_over()
    ):
        return Fate(Outcome.NODE_SHUTDOWN, shutdown.since)
    for status in moment.containers.all():
        if status.state.running is not None:
            run = current_run(moment.script, status)
            end = end_of(status.state.running, run)
            if run.outcome is not Outcome.EXIT and end is not None and moment.now >= end:
                return Fate(run.outcome, end, run.reason)
    return None


def meet(moment: Moment, fate: Fate) -> Step:
    """Let the fate or the deletion decide, whichever came first; but a lost node never confirms a deletion."""
    if fate.outcome is Outcome.NODE_LOST:
        return _stay_lost(moment, fate)
    if moment.deleting and moment.asked < fate.since.replace(microsecond=0):
        return delete(moment)
    return moment.onward(_disrupt(moment, fate))


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
    """Evict for lack of memory, or shut the node down. Since 1.22 a pod whose containers then exit with 0 has Succeeded."""
    if fate.outcome is Outcome.EVICTED:
        change, reason, grace = EVICTED_MAY_SUCCEED, fate.reason or "Evicted", HARD_EVICTION_GRACE_S
        message = "The node was low on resource: memory. "
    else:
        change, grace = SHUTDOWN_TELLS_THE_TRUTH, moment.pod.spec.termination_grace_period_seconds
        if moment.place.shutdown is not None:
            grace = min(grace, moment.place.shutdown.grace_s)
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
    """Set the condition DisruptionTarget where kubelets have it: the pod's end is not its own doing."""
    if not moment.kubernetes.has(DISRUPTION_TARGET):
        return status
    conditions = set_condition(status.conditions, DISRUPTED, holds=True, now=moment.now, reason=reason, message=message)
    return replace(status, conditions=conditions)


def rejection(moment: Moment) -> str | None:
    """Return the reason for which the kubelet rejects the pod, None if it does not."""
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
    """Return when the pod will have lived for its activeDeadlineSeconds, None if it has none or has not started."""
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
