"""One pod at one moment: what `lifecycle` decides by, and how a status is put together. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from msgspec.structs import replace

from hack.hollow_node.conditions import SANDBOX, Told, holds, summarise
from hack.hollow_node.containers import CREATING, INITIALIZING, Rules, waits_for
from hack.hollow_node.objects import FAILED, HollowPod, HollowStatus, PodIP
from hack.hollow_node.pod_containers import PodContainers
from hack.hollow_node.script import Behaviour
from hack.hollow_node.timing import Timing
from hack.kubernetes_versions import POD_OBSERVED_GENERATION, SANDBOX_CONDITION, Kubernetes


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
            conditions=summarise(status.conditions, containers, Told(ended, sandbox), self.now),
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
