"""One pod at one moment: what `lifecycle` decides by, and how a status is put together. Pure."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from msgspec.structs import replace

from hack.hollow_node.containers import CREATING, INITIALIZING, PodContainers, Rules, waits_for
from hack.hollow_node.objects import FAILED, SUCCEEDED, Condition, HollowPod, HollowStatus, PodIP
from hack.hollow_node.script import Behaviour, Timing
from hack.kubernetes_versions import POD_OBSERVED_GENERATION, READY_TELLS_FAILURE, SANDBOX_CONDITION, Kubernetes

# The conditions of a pod that a kubelet derives from its containers. Pure.
#
# Conditions of other types belong to others and are left alone.


DISRUPTED = "DisruptionTarget"
SANDBOX = "PodReadyToStartContainers"
RESTARTING = "AllContainersRestarting"

_Drawn = tuple[bool, str, str]
"""What a condition is to say: whether it holds, its reason, its message."""


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
    conditions: Sequence[Condition] | None,
    containers: PodContainers,
    now: datetime,
    *,
    ended: str | None,
    sandbox: bool | None,
) -> list[Condition]:
    """Set the conditions that a kubelet derives, with its reasons and messages.

    `ended`: the phase that the pod has, or is about to have, because it is over. `sandbox`: whether it has one; None where
    kubelets do not report that.
    """
    drawn: dict[str, _Drawn] = {"PodScheduled": (True, "", "")}
    if sandbox is not None:
        drawn[SANDBOX] = (sandbox, "", "")
    if (restarting := containers.restart_all()) is not None:
        drawn[RESTARTING] = (restarting, "RestartAllContainersStarted" if restarting else "", "")
    completed = ended == SUCCEEDED
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
    elif ended == FAILED and containers.rules.kubernetes.has(READY_TELLS_FAILURE):
        reason = "PodFailed"
    elif unready:
        reason, message = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    drawn["Ready"] = drawn["ContainersReady"] = (not unready and ended is None, reason, message)
    return _set(conditions, drawn, now)


def _set(conditions: Sequence[Condition] | None, drawn: dict[str, _Drawn], now: datetime) -> list[Condition]:
    """Return the conditions with these set: each in its place, new ones at the end."""
    known = {condition.type: condition for condition in conditions or ()}
    for kind, (is_true, reason, message) in drawn.items():
        old, status = known.get(kind), "True" if is_true else "False"
        since = old.last_transition_time if old is not None and old.status == status else now
        known[kind] = Condition(type=kind, status=status, last_transition_time=since, reason=reason, message=message)
    return [*known.values()]


class Removal(Enum):
    """Whether the node asks the API server to delete the pod."""

    NONE = "none"
    GRACEFUL = "graceful"  # what the taint manager does to the pods of a lost node
    FINAL = "final"  # the kubelet's confirmation that nothing of the pod runs any more


@dataclass(frozen=True, slots=True)
class Shutdown:
    """A node shuts down: since when, and what grace it leaves to its pods, in seconds."""

    since: datetime
    grace_s: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod runs: the node, its address and version, the pod's own address, and how long things take there.

    `shutdown`: the node's shutdown, if there is one. `up_since`: when its kubelet came back, if it was away.
    """

    node: str
    host_ip: str
    pod_ip: str
    timing: Timing
    kubernetes: Kubernetes
    shutdown: Shutdown | None = None
    up_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now: report `status` if it differs from the last one, look again at `look_at`, then `removal`."""

    status: HollowStatus
    look_at: datetime | None = None
    removal: Removal = Removal.NONE


class Moment:
    """A pod, its script, the status that was reported last, the time and the place. A step changes only `containers`."""

    def __init__(self, pod: HollowPod, script: Behaviour, status: HollowStatus, now: datetime, place: Place) -> None:
        self.pod = pod
        self.script = script
        self.status = status
        self.now = now
        self.place = place
        self.kubernetes = place.kubernetes
        self.containers = PodContainers.of(Rules(pod, script, place.timing, place.kubernetes), status)

    @property
    def deleting(self) -> bool:
        """Whether the pod is being deleted."""
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def grace(self) -> timedelta:
        """How long the pod's containers may take to stop if nobody says otherwise."""
        return timedelta(seconds=self.pod.spec.termination_grace_period_seconds)

    @property
    def asked(self) -> datetime:
        """When the kubelet was asked for the deletion: at the server's time, in whole seconds, or when it came back."""
        asked = (self.pod.metadata.deletion_timestamp or self.now) - self._deletion_grace
        return asked if self.place.up_since is None else max(asked, self.place.up_since)

    @property
    def deadline(self) -> datetime:
        """When a deletion has to be over: its grace after it was asked for."""
        return self.asked + self._deletion_grace

    @property
    def _deletion_grace(self) -> timedelta:
        grace = self.pod.metadata.deletion_grace_period_seconds
        return self.grace if grace is None else timedelta(seconds=grace)

    def onward(self, step: Step) -> Step:
        """Return the step; if the pod is being deleted, a step after which nothing is due is followed by the deletion."""
        return step if step.look_at is not None or not self.deleting else dataclasses.replace(step, look_at=self.now)

    @property
    def generation(self) -> int:
        """The pod's generation as its status reports it; 0 where kubelets do not."""
        return self.pod.metadata.generation if self.kubernetes.has(POD_OBSERVED_GENERATION) else 0

    def report(self, phase: str, *, ended: str | None = None, sandbox: bool | None = None) -> HollowStatus:
        """Put the status together from its parts. `sandbox`: whether the pod has one; None: as its containers show."""
        status, containers, place = self.status, self.containers, self.place
        # A pod gets its address with its sandbox: before the first image is pulled, after volumes are there.
        prepared = any(waits_for(c) not in {CREATING, INITIALIZING} for c in containers.all())
        pod_ip = status.pod_ip
        if not pod_ip and prepared:
            pod_ip = place.host_ip if self.pod.spec.host_network else place.pod_ip
        if not self.kubernetes.has(SANDBOX_CONDITION):
            sandbox = None
        elif sandbox is None:
            sandbox = prepared or holds(status.conditions, SANDBOX)
        return replace(
            status,
            observed_generation=self.generation,
            phase=phase,
            conditions=summarise(status.conditions, containers, self.now, ended=ended, sandbox=sandbox),
            host_ip=place.host_ip,
            pod_ip=pod_ip,
            pod_ips=[PodIP(ip=pod_ip)] if pod_ip else None,
            start_time=status.start_time or self.now,
            init_container_statuses=containers.readied(),
            container_statuses=containers.mains,
        )

    def cut_off(self, reason: str, message: str) -> HollowStatus:
        """Return a status as kubelets before 1.22 ended a pod: Failed, without conditions and containers."""
        return replace(
            self.status,
            phase=FAILED,
            reason=reason,
            message=message,
            conditions=None,
            init_container_statuses=None,
            container_statuses=None,
        )
