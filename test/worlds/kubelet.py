"""The behavior of API servers and kubelets for a pod from start to end, by version. Pure functions on pods.

The hollow node's model defines what follows an exit, and the phase; this module defines the order of reports. Without a version
(None) the end of a pod is one step, for settings that are not about pods.

Times are whole seconds since `EPOCH`. Each is a constant, because only their order matters, plus those that have leapt by
(`since`). The first request to delete a pod has the time 0 of its leap.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

from hack.hollow_node.containers import PodContainers, Rules, ended_phase
from hack.hollow_node.lifecycle import deleted_phase
from hack.hollow_node.objects import (
    ContainerState,
    ContainerStatus,
    HollowMeta,
    HollowPod,
    HollowSpec,
    HollowStatus,
    Terminated,
)
from hack.hollow_node.script import Script, Timing
from hack.kubernetes_versions import (
    CONTAINER_RESTART_RULES,
    CONTAINERS_END_BEFORE_PHASE,
    DELETION_TIMESTAMP_MOVES,
    DISRUPTION_TARGET,
    NEWEST,
    SHUTDOWN_TELLS_THE_TRUTH,
    Kubernetes,
)
from tfjob_operator.api import core
from tfjob_operator.api.core import PodPhase

if TYPE_CHECKING:  # it imports this module
    from worlds.values import Child

BEFORE: Final = -5
"""A process ended by itself, seconds before its pod was deleted."""
SAME_SECOND: Final = 0
"""It ended in the same second as the delete request."""
AFTER: Final = 5
"""It ended on SIGTERM, after the request."""
AFTER_SECOND: Final = 45
"""It still ran at the second request, and ended after that."""
LAST: Final = 90
"""The kubelet is done with the pod, and deletes it with grace 0."""

OWN_GRACE: Final = 30
"""The grace period that the API server gives a pod without one of its own."""
LESS: Final = 10
MORE: Final = 60


def stored_spec(spec: bytes, kubernetes: Kubernetes | None) -> bytes:
    """What the API server keeps of a pod's specification: unknown fields are dropped silently."""
    read = msgspec.json.decode(spec, type=core.PodSpec)
    if kubernetes is not None and not kubernetes.has(CONTAINER_RESTART_RULES):
        plain = tuple(core.Container(name=each.name) for each in read.containers)
        read = msgspec.structs.replace(read, containers=plain)
    return msgspec.json.encode(read)


@cache
def spec_of_pod(spec: bytes) -> core.PodSpec:
    return msgspec.json.decode(spec, type=core.PodSpec)


def has_sidecar(pod: Child) -> bool:
    """Whether it has another container, which runs until somebody stops it."""
    return len(spec_of_pod(pod.spec).containers) > 1


def starts_again(pod: Child, code: int) -> bool:
    """Whether the kubelet starts a container again when `tensorflow` ends with this code; otherwise it has ended for good."""
    return not _is_left(_stopped(pod.spec, code, NEWEST))


@cache
def _stopped(spec: bytes, code: int, kubernetes: Kubernetes) -> PodContainers:
    """The containers of a pod when all have ended, `tensorflow` with this code."""
    read = msgspec.json.decode(spec, type=HollowSpec)
    rules = Rules(HollowPod(metadata=HollowMeta(), spec=read), Script({}), Timing(), kubernetes)
    codes = (code, *(0 for _ in read.containers[1:]))
    ends = [ContainerState(terminated=Terminated(exit_code=each)) for each in codes]
    shown = [ContainerStatus(name=each.name, state=end) for each, end in zip(read.containers, ends, strict=True)]
    return PodContainers.of(rules, HollowStatus(container_statuses=shown))


def _is_left(stopped: PodContainers) -> bool:
    return stopped.rules.is_final(stopped.mains[0])


# The kubelet.


def ends(pod: Child, code: int, at: int, kubernetes: Kubernetes | None) -> Child:
    """The pod as the kubelet first reports it after the end of `tensorflow`."""
    stopped = _stopped(pod.spec, code, kubernetes or NEWEST)
    pod = pod._replace(exit_code=code, ended=at, left=_is_left(stopped))
    if pod.terminating:
        return pod if has_sidecar(pod) else pod._replace(phase=deleted_phase(stopped, pod.phase))
    if not pod.left:
        return _restarted(pod) if kubernetes is None else pod._replace(restarting=bool(stopped.restart_all()))
    lags = kubernetes is not None and kubernetes.has(CONTAINERS_END_BEFORE_PHASE)
    return pod if lags or has_sidecar(pod) else pod._replace(phase=ended_phase(stopped.mains))


def later(pod: Child, kubernetes: Kubernetes | None) -> Child | None:
    """What the kubelet reports next by itself about a pod whose `tensorflow` has ended; None if there is nothing more."""
    if kubernetes is None or pod.exit_code is None or pod.phase != PodPhase.RUNNING:
        return None
    stopped = _stopped(pod.spec, pod.exit_code, kubernetes)
    if pod.terminating:
        phase = deleted_phase(stopped, pod.phase)
        return None if phase == pod.phase else pod._replace(phase=phase)
    if pod.restarting:  # the phase may go back: init containers run again
        return _restarted(pod)._replace(phase=PodPhase.PENDING)
    if not pod.left:
        return _restarted(pod)
    return None if has_sidecar(pod) else pod._replace(phase=ended_phase(stopped.mains))


def shut_down(pod: Child, code: int, kubernetes: Kubernetes) -> Child:
    """The node shuts down, and the process exits with this code on SIGTERM. Nobody deletes the pod."""
    if not kubernetes.has(SHUTDOWN_TELLS_THE_TRUTH):
        return pod._replace(phase=PodPhase.FAILED, reason="Shutdown")
    stopped = _stopped(pod.spec, code, kubernetes)
    told = pod._replace(exit_code=code, ended=AFTER, left=_is_left(stopped), phase=ended_phase(stopped.mains))
    return told._replace(targeted=kubernetes.has(DISRUPTION_TARGET), reason="Terminated" if code else "")


def _restarted(pod: Child) -> Child:
    return pod._replace(exit_code=None, ended=0, left=False, restarting=False, restarts=pod.restarts + 1)


# Deletions.


def asked_to_go(pod: Child, grace: int, kubernetes: Kubernetes | None, since: int) -> Child | None:
    """A running pod after a delete with this grace, in seconds; None if that changes nothing.

    A grace can only be shortened. The second request comes when two thirds of the first grace have passed.
    """
    if pod.grace is None:
        return pod._replace(asked=grace, grace=grace, leaves=since + grace)
    if kubernetes is None or grace >= pod.grace:
        return None
    return _shortened(pod, grace, since + pod.grace * 2 // 3, kubernetes)


def last_delete(pod: Child, kubernetes: Kubernetes, since: int) -> Child:
    """A pod that has ended, after a delete with grace 0 by the kubelet or anybody else, which removes the object."""
    if pod.grace is None:
        return pod._replace(asked=0, grace=0, leaves=since + LAST)
    return _shortened(pod, 0, since + LAST, kubernetes)


def _shortened(pod: Child, grace: int, now: int, kubernetes: Kubernetes) -> Child:
    assert pod.grace is not None
    leaves = pod.leaves - pod.grace + grace
    if kubernetes.has(DELETION_TIMESTAMP_MOVES):
        leaves = max(leaves, now)
    return pod._replace(grace=grace, leaves=leaves)
