"""The life of one pod on this node, pure: `advance(pod, script, status, now, place)`.

In: the pod as the API server has it, the status that we reported last, the time, the place. Out: a `Step`: the
status to report now, when to look again, and whether the pod is to be deleted. No clock, no I/O, no memory: whatever this
node has to know of a pod's past is in the status itself, so a node that was killed goes on where it stopped.

What differs between the versions of Kubernetes is listed in `hack.kubernetes_versions`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from hack.hollow_node.conditions import SANDBOX, condition_of
from hack.hollow_node.containers import CREATING, INITIALIZING, call_unknown, last_end, waits_for
from hack.hollow_node.deletion import delete
from hack.hollow_node.disruptions import due_fate, exceed_deadline, expiry, meet, reject, rejection
from hack.hollow_node.moment import Moment, Place, Removal, Step
from hack.hollow_node.objects import TERMINAL, HollowPod, HollowStatus
from hack.hollow_node.script import WAITS, Behaviour, Outcome, Run
from hack.hollow_node.stopping import stop
from hack.kubernetes_versions import CONTAINERS_END_BEFORE_PHASE, SANDBOX_CONDITION

_NEVER_RUN: Final = frozenset({Outcome.NEVER_START, Outcome.REJECTED, *WAITS})
"""With these outcomes the first container never runs. A pod that is already being deleted is not rejected any more."""


def advance(pod: HollowPod, script: Behaviour, status: HollowStatus, now: datetime, place: Place) -> Step:
    """Let a pod's life go on up to `now`, by at most one transition of each container."""
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
    """Let the pod do what it does by itself."""
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
    """Settle what is open in a pod that has ended: containers that will not be started again after all."""
    if moment.deleting or not _leaves_riddles(moment):
        return Step(moment.status, removal=Removal.FINAL if moment.deleting else Removal.NONE)
    for index, container in enumerate(moment.containers.inits):
        if waits_for(container) and last_end(container) is not None:
            moment.containers.inits[index] = call_unknown(container)
    return Step(moment.report(moment.status.phase, ended=moment.status.phase, sandbox=False))


def _leaves_riddles(moment: Moment) -> bool:
    """Whether, in a pod that has ended, a native sidecar still waits for a restart, which will never come."""
    return bool(moment.containers.sidecars) and any(waits_for(c) and last_end(c) for c in moment.containers.inits)


def _is_starting(moment: Moment) -> bool:
    """Whether the kubelet is about to run the first container. Since 1.22 it does so before it stops a pod."""
    return (
        moment.place.timing.start > 0
        and moment.status.start_time is not None
        and moment.kubernetes.has(CONTAINERS_END_BEFORE_PHASE)
        and moment.containers.nothing_began()
        and not _waits_after_start(moment)
        and _first_run(moment).outcome not in _NEVER_RUN
    )


def _starting(moment: Moment) -> Step | None:
    """Pass the stages before the first container: the pod is admitted, then it has its sandbox."""
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
    """End a pod whose ordinary containers have ended for good: first the native sidecars, then the phase, since 1.22 later."""
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
