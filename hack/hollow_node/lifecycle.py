"""The life of one pod on this node, pure: `advance(pod, script, status, now, place)`.

In: the pod as the API server has it, the status that we reported last, the time, the place. Out: a `Step`: the
status to report now, when to look again, and whether the pod is to be deleted. No clock, no I/O, no memory: whatever this
node has to know of a pod's past is in the status itself, so a node that was killed goes on where it stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from msgspec.structs import replace

from hack.hollow_node.conditions import condition_of, set_condition, summarise
from hack.hollow_node.containers import (
    CREATING,
    INITIALIZING,
    Rules,
    advance_container,
    current_run,
    end_of,
    fresh,
    init_policy,
    last_end,
    restarts,
    stop_container,
)
from hack.hollow_node.objects import (
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    TERMINAL,
    ContainerStatus,
    HollowPod,
    HollowStatus,
    PodIP,
)
from hack.hollow_node.script import Outcome, Script
from hack.hollow_node.timing import Timing

EVICTED: Final = "Evicted"
NODE_LOST: Final = "NodeLost"


class Removal(Enum):
    """Whether the node asks the API server to delete the pod."""

    NONE = "none"
    GRACEFUL = "graceful"  # what the taint manager does to the pods of a lost node
    FINAL = "final"  # the kubelet's confirmation that nothing of the pod runs any more


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod runs: the node, its address, the address that is set aside for the pod, and how fast time is there."""

    node: str
    host_ip: str
    pod_ip: str
    timing: Timing


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now: report `status` if it differs from the last one, look again at `look_at`, then `removal`."""

    status: HollowStatus
    look_at: datetime | None = None
    removal: Removal = Removal.NONE


@dataclass(slots=True)
class _Containers:
    """A pod's container statuses while a step changes them, and the earliest moment to look again."""

    inits: list[ContainerStatus]
    mains: list[ContainerStatus]
    look_at: datetime | None = None

    def look(self, at: datetime | None) -> None:
        if at is not None and (self.look_at is None or at < self.look_at):
            self.look_at = at

    def all(self) -> list[ContainerStatus]:
        return [*self.inits, *self.mains]


def advance(pod: HollowPod, script: Script, status: HollowStatus, now: datetime, place: Place) -> Step:
    """Let a pod's life go on up to `now`, by at most one transition of each container."""
    deleting = pod.metadata.deletion_timestamp is not None
    if status.phase in TERMINAL:
        return Step(status, removal=Removal.FINAL if deleting else Removal.NONE)
    if status.reason == NODE_LOST:
        return _stay_lost(status, now, place, deleting=deleting)
    if deleting:
        return _stop(pod, script, status, now, place)
    containers = _containers(pod, status)
    fate = _due_fate(script, containers.all(), now)
    if fate is Outcome.EVICTED:
        return Step(_evict(status, now))
    if fate is Outcome.NODE_LOST:
        return _stay_lost(_lose(status, pod.metadata.name, now, place), now, place, deleting=False)
    _advance_containers(containers, Rules(pod.metadata.uid, script, pod.spec.restart_policy, place.timing), now)
    phase = _phase(containers, pod.spec.restart_policy)
    return Step(_report(pod, status, containers, now, place, phase=phase), containers.look_at)


def _containers(pod: HollowPod, status: HollowStatus) -> _Containers:
    """The statuses so far, in the order of the spec; a container that has none yet gets its first one."""
    known = {c.name: c for c in (*(status.init_container_statuses or ()), *(status.container_statuses or ()))}
    inits, first = pod.spec.init_containers or [], INITIALIZING if pod.spec.init_containers else CREATING
    return _Containers(
        [known.get(spec.name) or fresh(spec, INITIALIZING) for spec in inits],
        [known.get(spec.name) or fresh(spec, first) for spec in pod.spec.containers],
    )


def _advance_containers(containers: _Containers, rules: Rules, now: datetime) -> None:
    """Init containers one after the other, each until it has exited with 0; then all others at once."""
    init_rules = Rules(rules.pod_uid, rules.script, init_policy(rules.policy), rules.timing)
    for index, status in enumerate(containers.inits):
        containers.inits[index], look = advance_container(status, init_rules, now)
        containers.look(look)
        if not _done(containers.inits[index]):
            return
    for index, status in enumerate(containers.mains):
        containers.mains[index], look = advance_container(status, rules, now)
        containers.look(look)


def _done(init: ContainerStatus) -> bool:
    return init.state.terminated is not None and init.state.terminated.exit_code == 0


def _phase(containers: _Containers, policy: str) -> str:
    """The phase as the kubelet's getPhase draws it from the containers."""
    for init in containers.inits:
        if not _done(init):
            end = last_end(init)
            return FAILED if end is not None and not restarts(policy, end) else PENDING
    ends = [last_end(status) for status in containers.mains]
    running = [status.state.running is not None for status in containers.mains]
    if any(end is None and not runs for end, runs in zip(ends, running, strict=True)):
        return PENDING
    finished = [end for end in ends if end is not None]
    if any(running) or any(restarts(policy, end) for end in finished):
        return RUNNING
    return FAILED if any(end.exit_code for end in finished) else SUCCEEDED


def _due_fate(script: Script, statuses: list[ContainerStatus], now: datetime) -> Outcome | None:
    """What befalls the whole pod now because the script of a running container says so."""
    for status in statuses:
        if status.state.running is not None:
            run = current_run(script, status)
            end = end_of(status.state.running, run)
            if run.outcome is not Outcome.EXIT and end is not None and now >= end:
                return run.outcome
    return None


def _evict(status: HollowStatus, now: datetime) -> HollowStatus:
    """What the eviction manager reports: the containers are gone, and their statuses with them."""
    conditions = set_condition(status.conditions, "Ready", holds=False, now=now, reason="PodFailed")
    return replace(
        status,
        phase=FAILED,
        reason=EVICTED,
        message="The node was low on resource: memory. ",
        conditions=set_condition(conditions, "ContainersReady", holds=False, now=now, reason="PodFailed"),
        container_statuses=None,
        init_container_statuses=None,
    )


def _lose(status: HollowStatus, name: str, now: datetime, place: Place) -> HollowStatus:
    """What the node controller writes when a kubelet has fallen silent: the rest of the status stays as it was."""
    return replace(
        status,
        reason=NODE_LOST,
        message=f"Node {place.node} which was running pod {name} is unresponsive",
        conditions=set_condition(status.conditions, "Ready", holds=False, now=now, reason=NODE_LOST),
    )


def _stay_lost(status: HollowStatus, now: datetime, place: Place, *, deleting: bool) -> Step:
    """Never confirm anything; the taint manager deletes the pod in time, and it stays Terminating until it is forced."""
    if deleting:
        return Step(status)
    ready = condition_of(status.conditions, "Ready")
    since = ready.last_transition_time if ready is not None else None
    due = (since or now) + timedelta(seconds=place.timing.unreachable)
    return Step(status, removal=Removal.GRACEFUL) if now >= due else Step(status, look_at=due)


def _stop(pod: HollowPod, script: Script, status: HollowStatus, now: datetime, place: Place) -> Step:
    """Stop a pod in deletion: nothing starts any more; once nothing runs the pod is terminal and may go."""
    containers = _containers(pod, status)
    deadline = pod.metadata.deletion_timestamp or now
    grace = pod.metadata.deletion_grace_period_seconds
    seconds = pod.spec.termination_grace_period_seconds if grace is None else grace
    asked = deadline - timedelta(seconds=seconds)
    for group in (containers.inits, containers.mains):
        for index, container in enumerate(group):
            group[index], look = stop_container(container, script, asked, deadline, now)
            containers.look(look)
    if containers.look_at is not None:
        return Step(_report(pod, status, containers, now, place, phase=status.phase), containers.look_at)
    if not any(last_end(container) for container in containers.all()):
        return Step(status, removal=Removal.FINAL)  # nothing ever ran: there is nothing to report
    ends = [last_end(container) for container in containers.mains]
    phase = SUCCEEDED if all(end is not None and end.exit_code == 0 for end in ends) else FAILED
    return Step(_report(pod, status, containers, now, place, phase=phase), removal=Removal.FINAL)


def _report(
    pod: HollowPod, status: HollowStatus, containers: _Containers, now: datetime, place: Place, *, phase: str
) -> HollowStatus:
    """Put the status together from its parts."""
    # A pod gets its address with its sandbox: before the first image is pulled, after volumes are there.
    waits = [c.state.waiting.reason if c.state.waiting else "" for c in containers.all()]
    pod_ip = status.pod_ip
    if not pod_ip and any(reason not in {CREATING, INITIALIZING} for reason in waits):
        pod_ip = place.host_ip if pod.spec.host_network else place.pod_ip
    return replace(
        status,
        phase=phase,
        conditions=summarise(status.conditions, containers.inits, containers.mains, phase, now),
        host_ip=place.host_ip,
        pod_ip=pod_ip,
        pod_ips=[PodIP(ip=pod_ip)] if pod_ip else None,
        start_time=status.start_time or now,
        # Of an init container, ready means that it is done.
        init_container_statuses=[replace(init, ready=_done(init)) for init in containers.inits] or None,
        container_statuses=containers.mains,
    )
