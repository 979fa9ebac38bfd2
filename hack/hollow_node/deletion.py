"""What a kubelet does with a pod that is to be deleted. Pure.

No container starts any more; once none runs, the kubelet confirms the deletion.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from hack.hollow_node.conditions import SANDBOX, holds
from hack.hollow_node.containers import CREATING, INITIALIZING, call_unknown, last_end, lose, wait, waits_for
from hack.hollow_node.moment import Moment, Removal, Step
from hack.hollow_node.objects import FAILED, ContainerState, ContainerStatus
from hack.hollow_node.pod_containers import PodContainers, ended_phase
from hack.hollow_node.stopping import stop
from hack.kubernetes_versions import (
    CONTAINERS_END_BEFORE_PHASE,
    DELETION_ENDS_IN_TERMINAL_PHASE,
    UNSTARTED_ARE_CALLED_UNKNOWN,
)


def delete(moment: Moment) -> Step:
    """Make the next step of a deletion."""
    asked, deadline = moment.asked, moment.deadline
    if moment.kubernetes.has(DELETION_ENDS_IN_TERMINAL_PHASE):
        return _delete_to_the_end(moment, asked, deadline)
    return _delete_by_policy(moment, asked, deadline)


def deleted_phase(containers: PodContainers, before: str) -> str:
    """Return the last phase of a deleted pod whose containers were stopped: terminal since 1.27, before that by its policy."""
    if containers.rules.kubernetes.has(DELETION_ENDS_IN_TERMINAL_PHASE):
        return ended_phase(containers.mains)
    return containers.outcome() or containers.phase(before)


def _delete_by_policy(moment: Moment, asked: datetime, deadline: datetime) -> Step:
    """Delete as kubelets before 1.27 did: the last phase follows from the restart policy and from what has ended."""
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
    """Return the ordinary containers as kubelets since 1.25 leave them: what never ran has ended; the phase ignores that."""
    mains = moment.containers.mains
    if not moment.kubernetes.has(UNSTARTED_ARE_CALLED_UNKNOWN) or moment.containers.incomplete_inits():
        return mains
    return [call_unknown(c) if c.state.running is None and last_end(c) is None else c for c in mains]


def _lose_inits(moment: Moment) -> bool:
    """Lose sight of running init containers, as kubelets before 1.22 did at once; return whether there was one."""
    lost = False
    for index, init in enumerate(moment.containers.inits):
        if init.state.running is not None:
            end = lose(init, moment.kubernetes).last_state
            moment.containers.inits[index] = replace(init, ready=False, state=end)
            lost = True
    return lost


def _delete_to_the_end(moment: Moment, asked: datetime, deadline: datetime) -> Step:
    """Delete as kubelets since 1.27 do: the last phase is terminal, whatever the restart policy."""
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
    """Whether something changed before the pod was stopped that its status does not show yet."""
    ended, sandbox = moment.containers.outcome(), holds(moment.status.conditions, SANDBOX)
    return moment.report(moment.status.phase, ended=ended, sandbox=sandbox) != moment.status


def _give_up_waiting(moment: Moment) -> None:
    """End containers that wait for a restart; those that never ran are from now on about to be created."""
    for group in (moment.containers.inits, moment.containers.mains):
        for index, container in enumerate(group):
            if not waits_for(container):
                continue
            end = last_end(container)
            if end is not None:
                group[index] = replace(container, state=ContainerState(terminated=end))
            elif waits_for(container) != INITIALIZING:
                group[index] = wait(container, CREATING, "", None)
