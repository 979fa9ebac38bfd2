"""One pod at one moment: what `lifecycle` decides by, and how a status is put together. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hack.hollow_node.conditions import SANDBOX, Told, holds, summarise
from hack.hollow_node.containers import CREATING, INITIALIZING, Rules, waits_for
from hack.hollow_node.objects import FAILED, HollowPod, HollowStatus, PodIP
from hack.hollow_node.pod_containers import PodContainers
from hack.kubernetes_versions import POD_GENERATION, SANDBOX_CONDITION

if TYPE_CHECKING:
    from hack.hollow_node.script import Script
    from hack.hollow_node.timing import Timing
    from hack.kubernetes_versions import Kubernetes


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


class Moment:
    """A pod, its script, the status that was reported last, the time and the place. A step changes `containers` and no more."""

    def __init__(self, pod: HollowPod, script: Script, status: HollowStatus, now: datetime, place: Place) -> None:
        self.pod = pod
        self.script = script
        self.status = status
        self.now = now
        self.place = place
        self.kubernetes = place.kubernetes
        self.containers = PodContainers.of(Rules(pod, script, place.timing, place.kubernetes), status)

    @property
    def deleting(self) -> bool:
        """Whether the pod is to go."""
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def grace(self) -> timedelta:
        """How long the pod's containers may take to stop if nobody says otherwise."""
        return timedelta(seconds=self.pod.spec.termination_grace_period_seconds)

    @property
    def asked(self) -> datetime:
        """When the deletion was asked for, in whole seconds as the server has it."""
        grace = self.pod.metadata.deletion_grace_period_seconds
        seconds = self.pod.spec.termination_grace_period_seconds if grace is None else grace
        return (self.pod.metadata.deletion_timestamp or self.now) - timedelta(seconds=seconds)

    @property
    def generation(self) -> int:
        """The generation of the pod that its status speaks of, where kubelets tell."""
        return self.pod.metadata.generation if self.kubernetes.has(POD_GENERATION) else 0

    def report(self, phase: str, *, ended: str | None = None, sandbox: bool | None = None) -> HollowStatus:
        """Put the status together from its parts. `sandbox`: None is what the containers tell."""
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
        """How kubelets before 1.22 ended a pod: nothing is left of its status."""
        return replace(
            self.status,
            phase=FAILED,
            reason=reason,
            message=message,
            conditions=None,
            init_container_statuses=None,
            container_statuses=None,
        )
