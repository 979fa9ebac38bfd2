"""The life of one pod on this node, pure: `advance(pod, script, status, now, place)`.

In: the pod as the API server has it, the status that we reported last, the time, the place. Out: a `Step`: the
status to report now, when to look again, and whether the pod is to be deleted. No clock, no I/O, no memory: whatever this
node has to know of a pod's past is in the status itself, so a node that was killed goes on where it stopped.

What is done differently from one version of Kubernetes to another is asked of `hack.kubernetes_versions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from hack.hollow_node.conditions import DISRUPTION_TARGET, SANDBOX, Told, condition_of, holds, set_condition, summarise
from hack.hollow_node.containers import (
    CREATING,
    INITIALIZING,
    Rules,
    current_run,
    end_of,
    last_end,
    lose,
    wait,
    waits_for,
)
from hack.hollow_node.objects import (
    FAILED,
    SUCCEEDED,
    TERMINAL,
    ContainerState,
    HollowPod,
    HollowStatus,
    PodIP,
)
from hack.hollow_node.pod_containers import PodContainers, is_done
from hack.hollow_node.script import WAITS, Outcome, Run, Script
from hack.hollow_node.stopping import stop
from hack.kubernetes_versions import (
    CONTAINERS_END_BEFORE_PHASE,
    DEADLINE_WAITS_FOR_CONTAINERS,
    DELETION_ENDS_IN_TERMINAL_PHASE,
    POD_GENERATION,
    SANDBOX_CONDITION,
    SHUTDOWN_TELLS_THE_TRUTH,
)
from hack.kubernetes_versions import (
    DISRUPTION_TARGET as DISRUPTIONS_ARE_TOLD,
)

if TYPE_CHECKING:
    from hack.hollow_node.timing import Timing
    from hack.kubernetes_versions import Kubernetes

HARD_EVICTION_GRACE_S: Final = 1  # the grace of pods that a hard eviction threshold takes


class Removal(Enum):
    """Whether the node asks the API server to delete the pod."""

    NONE = "none"
    GRACEFUL = "graceful"  # what the taint manager does to the pods of a lost node
    FINAL = "final"  # the kubelet's confirmation that nothing of the pod runs any more


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod runs: the node, its address and version, the pod's own address, and how fast time is there."""

    node: str
    host_ip: str
    pod_ip: str
    timing: Timing
    kubernetes: Kubernetes


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now: report `status` if it differs from the last one, look again at `look_at`, then `removal`."""

    status: HollowStatus
    look_at: datetime | None = None
    removal: Removal = Removal.NONE


@dataclass(frozen=True, slots=True)
class _Fate:
    """What befalls the whole pod because the script of a running container says so, and since when."""

    outcome: Outcome
    since: datetime


def advance(pod: HollowPod, script: Script, status: HollowStatus, now: datetime, place: Place) -> Step:
    """Let a pod's life go on up to `now`, by at most one transition of each container."""
    return _Life(pod, script, status, now, place).advance()


class _Life:
    """One pod at one moment."""

    def __init__(self, pod: HollowPod, script: Script, status: HollowStatus, now: datetime, place: Place) -> None:
        self._pod = pod
        self._script = script
        self._status = status
        self._now = now
        self._place = place
        self._kubernetes = place.kubernetes
        self._containers = PodContainers.of(Rules(pod, script, place.timing, place.kubernetes), status)

    def advance(self) -> Step:
        deleting = self._pod.metadata.deletion_timestamp is not None
        if self._status.phase in TERMINAL:
            return self._rest(deleting=deleting)
        if (fate := self._due_fate()) is not None:
            return self._meet(fate, deleting=deleting)
        if deleting and not self._is_starting():
            return self._delete()
        if (reason := self._rejection()) is not None:
            return Step(self._reject(reason))
        return self._go_on()

    def _go_on(self) -> Step:
        """What a pod does by itself."""
        over, outcome = self._containers.is_over(), self._containers.outcome()
        expires = self._expiry()
        if outcome is None and expires is not None:
            if self._now >= expires:
                return self._exceed_deadline(expires)
            self._containers.look(expires)
        starting = self._starting()
        if starting is not None:
            return starting
        if outcome is None:
            self._containers.advance(self._now)
            outcome = self._containers.outcome()
        if outcome is None:
            return Step(self._report(self._containers.phase(self._status.phase)), self._containers.look_at)
        return self._end(outcome, was_over=over)

    def _rest(self, *, deleting: bool) -> Step:
        """A pod that has ended only has its last riddles solved: containers that will not be started again after all."""
        if deleting or not self._leaves_riddles():
            return Step(self._status, removal=Removal.FINAL if deleting else Removal.NONE)
        for index, container in enumerate(self._containers.inits):
            if waits_for(container) and last_end(container) is not None:
                self._containers.inits[index] = lose(container, self._kubernetes)
        return Step(self._report(self._status.phase, ended=self._status.phase, sandbox=False))

    def _leaves_riddles(self) -> bool:
        """Whether a container of a pod that has ended waits for a restart that will never be: a native sidecar."""
        return bool(self._containers.sidecars) and any(waits_for(c) and last_end(c) for c in self._containers.inits)

    def _is_starting(self) -> bool:
        """Whether the kubelet is about to run the first container. Since 1.22 it does so before it stops a pod."""
        return (
            self._place.timing.start > 0
            and self._status.start_time is not None
            and self._kubernetes.has(CONTAINERS_END_BEFORE_PHASE)
            and self._containers.nothing_began()
            and not self._waits_after_start()
            and self._first_run().outcome not in {Outcome.NEVER_START, *WAITS}
        )

    def _starting(self) -> Step | None:
        """The stages before the first container: the pod is let in, then it has its sandbox."""
        start = timedelta(seconds=self._place.timing.start)
        if not start or not self._containers.nothing_began() or self._waits_after_start():
            return None
        tells = self._kubernetes.has(SANDBOX_CONDITION)
        since = self._status.start_time
        if since is None:
            return Step(self._report(self._status.phase, sandbox=False), self._now + start)
        if self._first_run().outcome is Outcome.NEVER_START:
            return None
        if tells:
            sandbox = condition_of(self._status.conditions, SANDBOX)
            if sandbox is None or sandbox.status != "True":
                due = since + start
                return (
                    Step(self._status, due)
                    if self._now < due
                    else Step(self._report(self._status.phase, sandbox=True), self._now + start)
                )
            since = sandbox.last_transition_time or since
        return Step(self._status, since + start) if self._now < since + start else None

    def _waits_after_start(self) -> bool:
        return any(waits_for(c) not in {CREATING, INITIALIZING, ""} for c in self._containers.all())

    def _first_run(self) -> Run:
        first = (self._pod.spec.init_containers or self._pod.spec.containers)[0]
        return self._script.run(first.name, 0)

    def _end(self, outcome: str, *, was_over: bool) -> Step:
        """All ordinary containers have ended for good: now the native sidecars, then the phase, which lags since 1.22."""
        last = self._containers.last_finish() or self._now
        if self._containers.running_sidecars():
            grace = timedelta(seconds=self._pod.spec.termination_grace_period_seconds)
            due = stop(self._containers, last, last + grace, self._now)
            if due is not None:
                return Step(self._report(self._status.phase), due)
            told = self._report(self._status.phase, ended=outcome, sandbox=False)
            return Step(told, self._now + timedelta(seconds=self._place.timing.phase_lag))
        if self._kubernetes.has(CONTAINERS_END_BEFORE_PHASE):
            due = last + timedelta(seconds=self._place.timing.phase_lag)
            if not was_over or self._now < due:
                return Step(self._report(self._status.phase, ended=outcome), max(due, self._now))
        ended = self._report(outcome, ended=outcome, sandbox=False)
        return Step(ended, self._now if self._leaves_riddles() else None)

    def _rejection(self) -> str | None:
        """Why the kubelet does not let the pod in, if it does not."""
        if self._status.start_time is not None:
            return None
        runs = (self._script.run(container.name, 0) for container in self._containers.all())
        return next((run.reason for run in runs if run.outcome is Outcome.REJECTED), None)

    def _reject(self, reason: str) -> HollowStatus:
        """A pod that is not let in has nothing but a phase and a reason."""
        intro = "Pod was rejected:" if self._kubernetes.has(CONTAINERS_END_BEFORE_PHASE) else "Pod"
        message = f"{intro} the script of the hollow node says {reason}"
        return HollowStatus(observed_generation=self._generation(), phase=FAILED, reason=reason, message=message)

    def _due_fate(self) -> _Fate | None:
        """What befalls the whole pod by now."""
        for status in self._containers.all():
            if status.state.running is not None:
                run = current_run(self._script, status)
                end = end_of(status.state.running, run)
                if run.outcome is not Outcome.EXIT and end is not None and self._now >= end:
                    return _Fate(run.outcome, end)
        return None

    def _stay_lost(self, fate: _Fate, *, deleting: bool) -> Step:
        """What the node controller and the taint manager do while the kubelet is silent. Nobody ever confirms a deletion."""
        lost = replace(
            self._status, conditions=set_condition(self._status.conditions, "Ready", holds=False, now=self._now)
        )
        due = fate.since + timedelta(seconds=self._place.timing.unreachable)
        if deleting:
            return Step(lost)
        if self._now < due:
            return Step(lost, due)
        message = "Taint manager: deleting due to NoExecute taint"
        return Step(self._disrupted(lost, "DeletionByTaintManager", message), removal=Removal.GRACEFUL)

    def _disrupted(self, status: HollowStatus, reason: str, message: str) -> HollowStatus:
        """Say that the pod's end is not its own doing, where that is told."""
        if not self._kubernetes.has(DISRUPTIONS_ARE_TOLD):
            return status
        conditions = set_condition(
            status.conditions, DISRUPTION_TARGET, holds=True, now=self._now, reason=reason, message=message
        )
        return replace(status, conditions=conditions)

    def _meet(self, fate: _Fate, *, deleting: bool) -> Step:
        """The first of a fate and a deletion decides; but of a lost node nobody hears that a deletion was carried out."""
        if fate.outcome is Outcome.NODE_LOST:
            return self._stay_lost(fate, deleting=deleting)
        if deleting and self._asked() < fate.since.replace(microsecond=0):
            return self._delete()
        return self._disrupt(fate)

    def _disrupt(self, fate: _Fate) -> Step:
        """An eviction for want of memory, or a shutdown of the node. Since 1.22 what exits with 0 on SIGTERM has Succeeded."""
        if fate.outcome is Outcome.EVICTED:
            change, reason, grace = CONTAINERS_END_BEFORE_PHASE, "Evicted", HARD_EVICTION_GRACE_S
            message = "The node was low on resource: memory. "
        else:
            change, grace = SHUTDOWN_TELLS_THE_TRUTH, self._pod.spec.termination_grace_period_seconds
            reason, message = "Terminated", "Pod was terminated in response to imminent node shutdown."
            if not self._kubernetes.has(change):
                reason, message = "Shutdown", "Node is shutting, evicting pods"
        if not self._kubernetes.has(change):
            return Step(self._cut_off(reason, message))
        due = stop(self._containers, fate.since, fate.since + timedelta(seconds=grace), self._now)
        if due is not None:
            return Step(self._status, due)
        if all(is_done(c) for c in self._containers.mains):
            reason = message = ""
        phase = FAILED if reason else SUCCEEDED
        ended = replace(self._report(phase, ended=phase, sandbox=False), reason=reason, message=message)
        return Step(self._disrupted(ended, "TerminationByKubelet", message or "Pod was stopped by the kubelet"))

    def _cut_off(self, reason: str, message: str) -> HollowStatus:
        """How kubelets before 1.22 ended a pod: nothing is left of its status."""
        return replace(
            self._status,
            phase=FAILED,
            reason=reason,
            message=message,
            conditions=None,
            init_container_statuses=None,
            container_statuses=None,
        )

    def _expiry(self) -> datetime | None:
        seconds, since = self._pod.spec.active_deadline_seconds, self._status.start_time
        return None if seconds is None or since is None else since + timedelta(seconds=seconds)

    def _exceed_deadline(self, expired: datetime) -> Step:
        """The pod has lived longer than its activeDeadlineSeconds."""
        reason, message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
        if not self._kubernetes.has(DEADLINE_WAITS_FOR_CONTAINERS):
            statuses = [replace(c, ready=False) for c in self._containers.mains]
            cut = self._cut_off(reason, message)
            inits = self._status.init_container_statuses
            return Step(replace(cut, container_statuses=statuses, init_container_statuses=inits))
        grace = timedelta(seconds=self._pod.spec.termination_grace_period_seconds)
        due = stop(self._containers, expired, expired + grace, self._now)
        if due is not None:
            return Step(self._report(self._status.phase, ended=FAILED), due)
        failed = self._report(FAILED, ended=FAILED, sandbox=False)
        return Step(replace(failed, reason=reason, message=message))

    def _asked(self) -> datetime:
        """When the deletion was asked for, in whole seconds as the server has it."""
        grace = self._pod.metadata.deletion_grace_period_seconds
        seconds = self._pod.spec.termination_grace_period_seconds if grace is None else grace
        return (self._pod.metadata.deletion_timestamp or self._now) - timedelta(seconds=seconds)

    def _delete(self) -> Step:
        """Stop a pod in deletion: nothing starts any more; once nothing runs the pod may go."""
        asked, deadline = self._asked(), self._pod.metadata.deletion_timestamp or self._now
        if self._kubernetes.has(DELETION_ENDS_IN_TERMINAL_PHASE):
            return self._delete_to_the_end(asked, deadline)
        return self._delete_by_policy(asked, deadline)

    def _delete_by_policy(self, asked: datetime, deadline: datetime) -> Step:
        """How kubelets before 1.27 left deleted pods: in the phase that the policy makes of what has ended."""
        if not self._kubernetes.has(CONTAINERS_END_BEFORE_PHASE) and self._lose_inits():
            return Step(self._report(self._status.phase), self._now)
        ran = any(c.state.running is not None for c in self._containers.all())
        if ran and self._is_news():
            self._containers.end_by_themselves(self._now)
            if any(c.state.running is not None for c in self._containers.all()):
                return Step(self._report(self._status.phase), self._now)
        due = stop(self._containers, asked, deadline, self._now)
        if due is not None:
            return Step(self._status, due)
        lags = self._kubernetes.has(CONTAINERS_END_BEFORE_PHASE) and self._containers.is_over()
        if not ran and not lags:
            return Step(self._status, removal=Removal.FINAL)
        outcome = self._containers.outcome()
        phase = outcome or self._containers.phase(self._status.phase)
        return Step(self._report(phase, ended=outcome, sandbox=False), removal=Removal.FINAL)

    def _lose_inits(self) -> bool:
        """Kubelets before 1.22 lost sight of an init container at once. Whether there was one."""
        lost = False
        for index, init in enumerate(self._containers.inits):
            if init.state.running is not None:
                end = lose(init, self._kubernetes).last_state
                self._containers.inits[index] = replace(init, ready=False, state=end)
                lost = True
        return lost

    def _delete_to_the_end(self, asked: datetime, deadline: datetime) -> Step:
        """How kubelets since 1.27 end deleted pods: in a terminal phase, whatever the policy."""
        self._give_up_waiting()
        if self._is_news():
            self._containers.end_by_themselves(self._now)
            sandbox = holds(self._status.conditions, SANDBOX)
            return Step(self._report(self._status.phase, ended=self._containers.outcome(), sandbox=sandbox), self._now)
        due = stop(self._containers, asked, deadline, self._now)
        if due is not None:
            return Step(self._status, due)
        mains = self._containers.mains
        if all(c.state.terminated is not None for c in mains):
            outcome = SUCCEEDED if all(map(is_done, mains)) else FAILED
            return Step(self._report(outcome, ended=outcome, sandbox=False), removal=Removal.FINAL)
        told = self._report(self._status.phase, sandbox=False)
        if told != self._status:
            return Step(told, self._now)
        ended = None if self._containers.nothing_began() else self._containers.outcome()
        if not self._containers.incomplete_inits():
            lost = [c if c.state.terminated is not None else lose(c, self._kubernetes) for c in mains]
            self._containers.mains = lost
        return Step(self._report(FAILED, ended=ended, sandbox=False), removal=Removal.FINAL)

    def _is_news(self) -> bool:
        """Whether the status does not show yet how things stand before the pod is stopped."""
        ended, sandbox = self._containers.outcome(), holds(self._status.conditions, SANDBOX)
        return self._report(self._status.phase, ended=ended, sandbox=sandbox) != self._status

    def _give_up_waiting(self) -> None:
        """What waited to be started again has ended; what has never run is about to be created for ever."""
        for group in (self._containers.inits, self._containers.mains):
            for index, container in enumerate(group):
                if not waits_for(container):
                    continue
                end = last_end(container)
                if end is not None:
                    group[index] = replace(container, state=ContainerState(terminated=end))
                elif waits_for(container) != INITIALIZING:
                    group[index] = wait(container, CREATING, "", None)

    def _generation(self) -> int:
        return self._pod.metadata.generation if self._kubernetes.has(POD_GENERATION) else 0

    def _report(self, phase: str, *, ended: str | None = None, sandbox: bool | None = None) -> HollowStatus:
        """Put the status together from its parts. `sandbox`: None is what the containers tell."""
        status, containers, place = self._status, self._containers, self._place
        # A pod gets its address with its sandbox: before the first image is pulled, after volumes are there.
        prepared = any(waits_for(c) not in {CREATING, INITIALIZING} for c in containers.all())
        pod_ip = status.pod_ip
        if not pod_ip and prepared:
            pod_ip = place.host_ip if self._pod.spec.host_network else place.pod_ip
        if not self._kubernetes.has(SANDBOX_CONDITION):
            sandbox = None
        elif sandbox is None:
            sandbox = prepared or holds(status.conditions, SANDBOX)
        return replace(
            status,
            observed_generation=self._generation(),
            phase=phase,
            conditions=summarise(status.conditions, containers, Told(ended, sandbox), self._now),
            host_ip=place.host_ip,
            pod_ip=pod_ip,
            pod_ips=[PodIP(ip=pod_ip)] if pod_ip else None,
            start_time=status.start_time or self._now,
            init_container_statuses=containers.readied(),
            container_statuses=containers.mains,
        )
