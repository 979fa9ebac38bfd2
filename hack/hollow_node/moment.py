"""One pod at one time: the inputs of `lifecycle`, and how a status is built. Pure."""

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

# The conditions that a kubelet derives from a pod's containers. Other conditions are not changed. Pure.


DISRUPTED = "DisruptionTarget"
SANDBOX = "PodReadyToStartContainers"
RESTARTING = "AllContainersRestarting"

_Drawn = tuple[bool, str, str]
"""The content of a condition: its status, reason and message."""


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
    """Set a condition; its transition time changes only with its status."""
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

    `ended`: the terminal phase that the pod has or is about to get. `sandbox`: whether the pod has a sandbox; None if the
    kubelet's version does not report that.
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
    """Return the conditions with the given ones: replaced in place if they exist, else added at the end."""
    known = {condition.type: condition for condition in conditions or ()}
    for kind, (is_true, reason, message) in drawn.items():
        old, status = known.get(kind), "True" if is_true else "False"
        since = old.last_transition_time if old is not None and old.status == status else now
        known[kind] = Condition(type=kind, status=status, last_transition_time=since, reason=reason, message=message)
    return [*known.values()]


class Removal(Enum):
    """Whether the node asks the API server to delete the pod."""

    NONE = "none"
    GRACEFUL = "graceful"  # by the taint manager, for pods of a lost node
    FINAL = "final"  # by the kubelet, when nothing of the pod is running


@dataclass(frozen=True, slots=True)
class Shutdown:
    """A node shutdown: its time, and the grace period of pods in seconds."""

    since: datetime
    grace_s: int


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a pod: the node, its address and version, the pod's address, and the node's delays.

    `shutdown`: the node's shutdown, if there is one. `up_since`: when its kubelet returned, if it was away.
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
    """What to do now: report `status` if it changed, do the `removal`, and look again at `look_at`."""

    status: HollowStatus
    look_at: datetime | None = None
    removal: Removal = Removal.NONE


class Moment:
    """A pod, its script, the last reported status, the time and the place. A step changes only `containers`."""

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
        """The default grace period of the pod's containers."""
        return timedelta(seconds=self.pod.spec.termination_grace_period_seconds)

    @property
    def asked(self) -> datetime:
        """When the kubelet learned of the deletion: the server's time in whole seconds, or the kubelet's return if later."""
        asked = (self.pod.metadata.deletion_timestamp or self.now) - self._deletion_grace
        return asked if self.place.up_since is None else max(asked, self.place.up_since)

    @property
    def deadline(self) -> datetime:
        """The deadline of the deletion: its start plus its grace period."""
        return self.asked + self._deletion_grace

    @property
    def _deletion_grace(self) -> timedelta:
        grace = self.pod.metadata.deletion_grace_period_seconds
        return self.grace if grace is None else timedelta(seconds=grace)

    def onward(self, step: Step) -> Step:
        """Return the step. If nothing is due afterwards and the pod is being deleted, the removal follows."""
        return step if step.look_at is not None or not self.deleting else dataclasses.replace(step, look_at=self.now)

    @property
    def generation(self) -> int:
        """The pod's observed generation in its status; 0 if the kubelet's version does not report it."""
        return self.pod.metadata.generation if self.kubernetes.has(POD_OBSERVED_GENERATION) else 0

    def report(self, phase: str, *, ended: str | None = None, sandbox: bool | None = None) -> HollowStatus:
        """Build the status. `sandbox`: whether the pod has one; None: derived from its containers."""
        status, containers, place = self.status, self.containers, self.place
        # A pod gets its address with its sandbox: after its volumes are mounted, before the first image is pulled.
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
        """Return the status with which kubelets before 1.22 ended a pod: Failed, without conditions and containers."""
        return replace(
            self.status,
            phase=FAILED,
            reason=reason,
            message=message,
            conditions=None,
            init_container_statuses=None,
            container_statuses=None,
        )
