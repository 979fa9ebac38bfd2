"""The life cycle of one pod on this node: `advance(pod, script, status, now, place)`. Pure.

It takes the pod in the API server, the last reported status, the time and the place. It computes a `Step`: the status to
report, when to look again, and whether to delete the pod. It has no clock, I/O or memory. The history of a pod is in its
status, so a node that was killed continues where it stopped.

`hack.kubernetes_versions` lists the differences between versions of Kubernetes.
"""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from hack.hollow_node.containers import (
    CREATING,
    INITIALIZING,
    PodContainers,
    call_unknown,
    current_run,
    end_of,
    ended_phase,
    is_done,
    last_end,
    lose,
    terminate,
    wait,
    waits_for,
)
from hack.hollow_node.moment import DISRUPTED, SANDBOX, Moment, Place, Removal, Step, condition_of, holds, set_condition
from hack.hollow_node.objects import (
    FAILED,
    SUCCEEDED,
    TERMINAL,
    ContainerState,
    ContainerStatus,
    HollowPod,
    HollowStatus,
)
from hack.hollow_node.script import SIGKILL_EXIT, STATUS_UNKNOWN, WAITS, Behaviour, Outcome, Run
from hack.kubernetes_versions import (
    CONTAINERS_END_BEFORE_PHASE,
    DEADLINE_WAITS_FOR_CONTAINERS,
    DELETION_ENDS_IN_TERMINAL_PHASE,
    DISRUPTION_TARGET,
    EVICTED_MAY_SUCCEED,
    REJECTIONS_SAY_SO,
    SANDBOX_CONDITION,
    SHUTDOWN_TELLS_THE_TRUTH,
    UNSTARTED_ARE_CALLED_UNKNOWN,
)

# When and how the containers of a pod end when it is stopped. Pure.
#
# All ordinary containers get SIGTERM at once, native sidecars when those have ended, and the rest SIGKILL at the deadline. A
# container that ends earlier keeps its own exit code. A kubelet reports nothing until the last container has ended.


class _End(NamedTuple):
    """A possible end of a container; the earliest one happens."""

    at: datetime
    exit_code: int
    reason: str
    by_itself: bool


def stop(containers: PodContainers, asked: datetime, deadline: datetime, now: datetime) -> datetime | None:
    """End all running containers. If the last one ends in the future, change nothing and return that time."""
    ends = _ends(containers, asked, deadline)
    if not ends:
        return None
    over = max(end.at for end in ends.values())
    if now < over:
        return over
    for group in (containers.inits, containers.mains):
        for index, status in enumerate(group):
            if status.name in ends:
                group[index] = _terminate_all(containers, status, ends[status.name], over, now)
    return None


def _ends(containers: PodContainers, asked: datetime, deadline: datetime) -> dict[str, _End]:
    """Return the ends of all running containers."""
    ends: dict[str, _End] = {}
    for status in containers.all():
        if status.name not in containers.sidecars:
            _add(ends, containers, status, asked, deadline)
    last = max((end.at for end in ends.values()), default=asked)
    for status in containers.inits:
        if status.name in containers.sidecars:
            _add(ends, containers, status, last, deadline)
    return ends


def _add(
    ends: dict[str, _End], containers: PodContainers, status: ContainerStatus, asked: datetime, deadline: datetime
) -> None:
    running = status.state.running
    if running is None:
        return
    run, on_stop = current_run(containers.rules.script, status), containers.rules.script.stop(status.name)
    possible = [_End(deadline, SIGKILL_EXIT, "", by_itself=False)]
    if not math.isinf(on_stop.lasts):
        stopped = asked + timedelta(seconds=on_stop.lasts)
        possible.append(_End(stopped, on_stop.exit_code, on_stop.reason, by_itself=False))
    natural = end_of(running, run)
    if natural is not None and run.outcome is Outcome.EXIT:
        possible.append(_End(natural, run.exit_code, run.reason, by_itself=True))
    ends[status.name] = min(possible)


def _terminate_all(
    containers: PodContainers, status: ContainerStatus, end: _End, over: datetime, now: datetime
) -> ContainerStatus:
    """End one container.

    The last container gets the current time as its end. The computed end is too early, because the time of the deletion is
    rounded down.
    """
    if end.reason == STATUS_UNKNOWN:
        return lose(status, containers.rules.kubernetes)
    started = status.state.running.started_at if status.state.running is not None else now
    finished = end.at if end.by_itself else now if end.at == over else max(end.at, started)
    return terminate(status, end.exit_code, finished, end.reason)


# The deletion of a pod. Pure.
#
# No container starts any more. When none runs, the kubelet confirms the deletion.


def delete(moment: Moment) -> Step:
    """Make the next step of a deletion."""
    asked, deadline = moment.asked, moment.deadline
    if moment.kubernetes.has(DELETION_ENDS_IN_TERMINAL_PHASE):
        return _delete_to_the_end(moment, asked, deadline)
    return _delete_by_policy(moment, asked, deadline)


def deleted_phase(containers: PodContainers, before: str) -> str:
    """Return the last phase of a deleted pod. Since 1.27 it is terminal; before, it depends on the restart policy."""
    if containers.rules.kubernetes.has(DELETION_ENDS_IN_TERMINAL_PHASE):
        return ended_phase(containers.mains)
    return containers.outcome() or containers.phase(before)


def _delete_by_policy(moment: Moment, asked: datetime, deadline: datetime) -> Step:
    """Delete like kubelets before 1.27: the last phase depends on the restart policy and on the ended containers."""
    if not moment.kubernetes.has(CONTAINERS_END_BEFORE_PHASE) and _lose_inits(moment):
        return Step(moment.report(moment.status.phase), moment.now)
    ran = any(c.state.running is not None for c in moment.containers.all())
    if ran and _is_news(moment):
        moment.containers.end_by_themselves(moment.now)
        if any(c.state.running is not None for c in moment.containers.all()):
            return Step(moment.report(moment.status.phase), moment.now)
    due = stop(moment.containers, asked, deadline, moment.now)
    if due is not None:
        return Step(moment.status, due)
    lags = moment.kubernetes.has(CONTAINERS_END_BEFORE_PHASE) and moment.containers.is_over()
    mains = _with_the_unstarted(moment)
    if not ran and not lags and mains == moment.containers.mains:
        return Step(moment.status, removal=Removal.FINAL)
    told = moment.report(
        deleted_phase(moment.containers, moment.status.phase), ended=moment.containers.outcome(), sandbox=False
    )
    return Step(replace(told, container_statuses=mains), removal=Removal.FINAL)


def _with_the_unstarted(moment: Moment) -> list[ContainerStatus]:
    """Return the ordinary containers as reported since 1.25: as ended if they never ran, without effect on the phase."""
    mains = moment.containers.mains
    if not moment.kubernetes.has(UNSTARTED_ARE_CALLED_UNKNOWN) or moment.containers.incomplete_inits():
        return mains
    return [call_unknown(c) if c.state.running is None and last_end(c) is None else c for c in mains]


def _lose_inits(moment: Moment) -> bool:
    """Report running init containers with an unknown end, as kubelets before 1.22 did; return whether there was one."""
    lost = False
    for index, init in enumerate(moment.containers.inits):
        if init.state.running is not None:
            end = lose(init, moment.kubernetes).last_state
            moment.containers.inits[index] = replace(init, ready=False, state=end)
            lost = True
    return lost


def _delete_to_the_end(moment: Moment, asked: datetime, deadline: datetime) -> Step:
    """Delete like kubelets since 1.27: the last phase is terminal, whatever the restart policy."""
    _give_up_waiting(moment)
    if _is_news(moment):
        moment.containers.end_by_themselves(moment.now)
        sandbox = holds(moment.status.conditions, SANDBOX)
        return Step(moment.report(moment.status.phase, ended=moment.containers.outcome(), sandbox=sandbox), moment.now)
    due = stop(moment.containers, asked, deadline, moment.now)
    if due is not None:
        return Step(moment.status, due)
    mains = moment.containers.mains
    if all(c.state.terminated is not None for c in mains):
        outcome = deleted_phase(moment.containers, moment.status.phase)
        return Step(moment.report(outcome, ended=outcome, sandbox=False), removal=Removal.FINAL)
    ended = moment.containers.outcome()
    told = moment.report(moment.status.phase, ended=ended, sandbox=False)
    if told != moment.status:
        return Step(told, moment.now)
    if not moment.containers.incomplete_inits():
        lost = [c if c.state.terminated is not None else call_unknown(c) for c in mains]
        moment.containers.mains = lost
    return Step(moment.report(FAILED, ended=ended, sandbox=False), removal=Removal.FINAL)


def _is_news(moment: Moment) -> bool:
    """Whether the last reported status lacks a change that happened before the pod was stopped."""
    ended, sandbox = moment.containers.outcome(), holds(moment.status.conditions, SANDBOX)
    return moment.report(moment.status.phase, ended=ended, sandbox=sandbox) != moment.status


def _give_up_waiting(moment: Moment) -> None:
    """End containers that wait for a restart; those that never ran are reported as being created."""
    for group in (moment.containers.inits, moment.containers.mains):
        for index, container in enumerate(group):
            if not waits_for(container):
                continue
            end = last_end(container)
            if end is not None:
                group[index] = replace(container, state=ContainerState(terminated=end))
            elif waits_for(container) != INITIALIZING:
                group[index] = wait(container, CREATING, "", None)


# Disruptions of a whole pod: eviction, shutdown or loss of its node, rejection, its deadline. Pure.


HARD_EVICTION_GRACE_S: Final = 1  # the grace period of a hard eviction


@dataclass(frozen=True, slots=True)
class Fate:
    """A disruption of the whole pod by a node shutdown or the script of a running container, and its time."""

    outcome: Outcome
    since: datetime
    reason: str = ""


def due_fate(moment: Moment) -> Fate | None:
    """Return the disruption, if any, that has hit the pod by now.

    A shutdown affects only pods that have started and not ended.
    """
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
    """Apply the disruption or the deletion, whichever came first; a lost node never confirms a deletion."""
    if fate.outcome is Outcome.NODE_LOST:
        return _stay_lost(moment, fate)
    if moment.deleting and moment.asked < fate.since.replace(microsecond=0):
        return delete(moment)
    return moment.onward(_disrupt(moment, fate))


def _stay_lost(moment: Moment, fate: Fate) -> Step:
    """Simulate node controller and taint manager while the kubelet is silent; no deletion is confirmed."""
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
    """Evict the pod for lack of memory, or stop it at a node shutdown.

    Since 1.22 a pod whose containers then exit with 0 is Succeeded.
    """
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
    """Set the condition DisruptionTarget if the kubelet's version has it."""
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
    """Return a status with only a phase and a reason: the pod is not admitted."""
    intro = "Pod was rejected:" if moment.kubernetes.has(REJECTIONS_SAY_SO) else "Pod"
    message = f"{intro} the script of the hollow node says {reason}"
    return HollowStatus(observed_generation=moment.generation, phase=FAILED, reason=reason, message=message)


def expiry(moment: Moment) -> datetime | None:
    """Return when activeDeadlineSeconds expires, None if the pod has none. A pod that has not started starts now."""
    seconds, since = moment.pod.spec.active_deadline_seconds, moment.status.start_time or moment.now
    return None if seconds is None else since + timedelta(seconds=seconds)


def exceed_deadline(moment: Moment, expired: datetime) -> Step:
    """End a pod whose activeDeadlineSeconds expired."""
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


_NEVER_RUN: Final = frozenset({Outcome.NEVER_START, Outcome.REJECTED, *WAITS})
"""With these outcomes the first container never runs. A pod that is being deleted is not rejected."""


def advance(pod: HollowPod, script: Behaviour, status: HollowStatus, now: datetime, place: Place) -> Step:
    """Advance the pod to `now`, by at most one transition of each container."""
    moment = Moment(pod, script, status, now, place)
    if status.phase in TERMINAL:
        return _rest(moment)
    if (fate := due_fate(moment)) is not None:
        return meet(moment, fate)
    if moment.deleting and not _is_starting(moment):
        return delete(moment)
    if (reason := rejection(moment)) is not None:
        return Step(reject(moment, reason))
    return moment.onward(_go_on(moment))


def _go_on(moment: Moment) -> Step:
    """Advance a pod that is not disrupted or deleted."""
    outcome = moment.containers.outcome()
    over = outcome is not None and not moment.containers.running_sidecars()
    expires = expiry(moment)
    if outcome is None and expires is not None:
        if moment.now >= expires:
            return exceed_deadline(moment, expires)
        moment.containers.look(expires)
    starting = _starting(moment)
    if starting is not None:
        return starting
    if outcome is None:
        moment.containers.advance(moment.now)
        outcome = moment.containers.outcome()
    if outcome is None:
        return Step(moment.report(moment.containers.phase(moment.status.phase)), moment.containers.look_at)
    return _end(moment, outcome, was_over=over)


def _rest(moment: Moment) -> Step:
    """Complete the status of an ended pod: report native sidecars that still wait for a restart as terminated."""
    if moment.deleting or not _leaves_riddles(moment):
        return Step(moment.status, removal=Removal.FINAL if moment.deleting else Removal.NONE)
    for index, container in enumerate(moment.containers.inits):
        if waits_for(container) and last_end(container) is not None:
            moment.containers.inits[index] = call_unknown(container)
    return Step(moment.report(moment.status.phase, ended=moment.status.phase, sandbox=False))


def _leaves_riddles(moment: Moment) -> bool:
    """Whether a native sidecar of an ended pod still waits for a restart, which will not happen."""
    return bool(moment.containers.sidecars) and any(waits_for(c) and last_end(c) for c in moment.containers.inits)


def _is_starting(moment: Moment) -> bool:
    """Whether the kubelet is about to run the first container. Since 1.22 it runs that container before it stops a pod."""
    return (
        moment.place.timing.start > 0
        and moment.status.start_time is not None
        and moment.kubernetes.has(CONTAINERS_END_BEFORE_PHASE)
        and moment.containers.nothing_began()
        and not _waits_after_start(moment)
        and _first_run(moment).outcome not in _NEVER_RUN
    )


def _starting(moment: Moment) -> Step | None:
    """Go through the stages before the first container: the pod is admitted, then it gets its sandbox."""
    start = timedelta(seconds=moment.place.timing.start)
    if not start or not moment.containers.nothing_began() or _waits_after_start(moment):
        return None
    tells = moment.kubernetes.has(SANDBOX_CONDITION)
    since = moment.status.start_time
    if since is None:
        return Step(moment.report(moment.status.phase, sandbox=False), moment.now + start)
    if _first_run(moment).outcome is Outcome.NEVER_START:
        return None
    if tells:
        sandbox = condition_of(moment.status.conditions, SANDBOX)
        if sandbox is None or sandbox.status != "True":
            due = since + start
            return (
                Step(moment.status, due)
                if moment.now < due
                else Step(moment.report(moment.status.phase, sandbox=True), moment.now + start)
            )
        since = sandbox.last_transition_time or since
    return Step(moment.status, since + start) if moment.now < since + start else None


def _waits_after_start(moment: Moment) -> bool:
    return any(waits_for(c) not in {CREATING, INITIALIZING, ""} for c in moment.containers.all())


def _first_run(moment: Moment) -> Run:
    first = (moment.pod.spec.init_containers or moment.pod.spec.containers)[0]
    return moment.script.run(first.name, 0)


def _end(moment: Moment, outcome: str, *, was_over: bool) -> Step:
    """End a pod after its ordinary containers: stop the native sidecars, then set the phase (since 1.22 with a delay)."""
    last = moment.containers.last_finish() or moment.now
    if moment.containers.running_sidecars():
        due = stop(moment.containers, last, last + moment.grace, moment.now)
        if due is not None:
            return Step(moment.report(moment.status.phase), due)
        told = moment.report(moment.status.phase, ended=outcome, sandbox=False)
        return Step(told, moment.now + timedelta(seconds=moment.place.timing.phase_lag))
    if moment.kubernetes.has(CONTAINERS_END_BEFORE_PHASE):
        due = last + timedelta(seconds=moment.place.timing.phase_lag)
        if not was_over or moment.now < due:
            return Step(moment.report(moment.status.phase, ended=outcome), max(due, moment.now))
    ended = moment.report(outcome, ended=outcome, sandbox=False)
    return Step(ended, moment.now if _leaves_riddles(moment) else None)
