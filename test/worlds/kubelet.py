"""What API servers and kubelets make of a pod from its start to its end, by their version. Pure functions on pods.

Without a version (None) the end of a pod is one step: the kubelet of a world that is not about pods.

The moments stand as whole seconds since `EPOCH`, each a constant: all that matters is their order. The first request to go
comes at 0, whenever that is.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

from hack.kubernetes_versions import (
    CONTAINER_RESTART_RULES,
    CONTAINERS_END_BEFORE_PHASE,
    DELETION_ENDS_IN_TERMINAL_PHASE,
    DELETION_TIMESTAMP_MOVES,
    DISRUPTION_TARGET,
    SHUTDOWN_TELLS_THE_TRUTH,
)
from tfjob_operator.api import core
from tfjob_operator.api.core import PodPhase, PodRestartPolicy

if TYPE_CHECKING:
    from hack.kubernetes_versions import Kubernetes
    from worlds.values import Child

BEFORE: Final = -5
"""A process ended by itself, seconds before anybody asked it to go."""
SAME_SECOND: Final = 0
"""It ended in the second of the request."""
AFTER: Final = 5
"""It answered the request."""
AFTER_SECOND: Final = 45
"""It still ran when it was asked again."""
LAST: Final = 90
"""The kubelet is done with the pod, and deletes it with grace 0."""

OWN_GRACE: Final = 30
"""What the API server gives a pod that names no grace of its own."""
LESS: Final = 10
MORE: Final = 60

RESTART: Final = "Restart"
RESTART_ALL: Final = "RestartAllContainers"


def stored_spec(spec: bytes, kubernetes: Kubernetes | None) -> bytes:
    """What the API server keeps of a pod's specification: fields that it does not know are dropped without a word."""
    read = msgspec.json.decode(spec, type=core.PodSpec)
    if kubernetes is not None and not kubernetes.has(CONTAINER_RESTART_RULES):
        plain = tuple(core.Container(name=each.name) for each in read.containers)
        read = msgspec.structs.replace(read, containers=plain)
    return msgspec.json.encode(read)


@cache
def spec_of_pod(spec: bytes) -> core.PodSpec:
    """The specification of a pod as it is stored."""
    return msgspec.json.decode(spec, type=core.PodSpec)


def has_sidecar(pod: Child) -> bool:
    """Whether it has another container, which runs until somebody stops it."""
    return len(spec_of_pod(pod.spec).containers) > 1


def next_after(pod: Child, code: int) -> str:
    """What the kubelet does when `tensorflow` ends with this code: RESTART, RESTART_ALL, or nothing: that is its end."""
    spec = spec_of_pod(pod.spec)
    mine = spec.containers[0]
    for rule in mine.restart_policy_rules or ():
        codes = rule.exit_codes
        if codes is not None and (code in codes.values) == (codes.operator == "In"):
            return rule.action
    policy = mine.restart_policy or spec.restart_policy
    return RESTART if policy == PodRestartPolicy.ALWAYS or (policy == PodRestartPolicy.ON_FAILURE and code) else ""


def is_over(pod: Child) -> bool:
    """Whether `tensorflow` runs no more and will not again. The phase may not say so yet."""
    if pod.phase in {PodPhase.SUCCEEDED, PodPhase.FAILED}:
        return True
    if pod.exit_code is None:
        return False
    return pod.terminating or not next_after(pod, pod.exit_code)


def has_ended(pod: Child) -> bool:
    """Whether nothing of the pod runs and nothing will."""
    return is_over(pod) and not (has_sidecar(pod) and pod.phase == PodPhase.RUNNING)


def did_its_work(pod: Child) -> bool:
    """Whether anybody who looks at the pod sees that it has succeeded, and that nobody had asked it to go before."""
    if pod.exit_code != 0 or next_after(pod, 0) or pod.targeted or pod.reason:
        return False
    if pod.grace is None:
        return True
    return pod.asked == pod.grace == OWN_GRACE and pod.ended < pod.leaves - pod.grace


# The kubelet.


def ends(pod: Child, code: int, at: int, kubernetes: Kubernetes | None) -> Child:
    """The first that is told of the end of `tensorflow`."""
    pod = pod._replace(exit_code=code, ended=at)
    following = "" if pod.terminating else next_after(pod, code)
    if kubernetes is None:
        return _restarted(pod) if following else _in_terminal_phase(pod)
    if following:
        return pod._replace(restarting=following == RESTART_ALL)
    early = kubernetes.has(CONTAINERS_END_BEFORE_PHASE)
    at_once = _tells_phase(pod, kubernetes) if pod.terminating else not early
    return _in_terminal_phase(pod) if at_once and not has_sidecar(pod) else pod


def later(pod: Child, kubernetes: Kubernetes | None) -> Child | None:
    """What the kubelet tells next of a pod whose `tensorflow` has ended, without anybody's doing. None is nothing (more)."""
    if kubernetes is None or pod.exit_code is None or pod.phase != PodPhase.RUNNING:
        return None
    if pod.terminating:
        return _in_terminal_phase(pod) if _tells_phase(pod, kubernetes) else None
    following = next_after(pod, pod.exit_code)
    if following == RESTART_ALL:  # the phase may go back: init containers run again
        return _restarted(pod)._replace(phase=PodPhase.PENDING)
    if following:
        return _restarted(pod)
    return None if has_sidecar(pod) else _in_terminal_phase(pod)


def shut_down(pod: Child, code: int, kubernetes: Kubernetes) -> Child:
    """The node shuts down, and the process answers with this code. Nobody deletes the pod."""
    if not kubernetes.has(SHUTDOWN_TELLS_THE_TRUTH):
        return pod._replace(phase=PodPhase.FAILED, reason="Shutdown")
    gone = _in_terminal_phase(pod._replace(exit_code=code, ended=AFTER, targeted=kubernetes.has(DISRUPTION_TARGET)))
    return gone._replace(reason="Terminated") if code else gone


def _restarted(pod: Child) -> Child:
    return pod._replace(exit_code=None, ended=0, restarting=False, restarts=pod.restarts + 1)


def _in_terminal_phase(pod: Child) -> Child:
    return pod._replace(phase=PodPhase.FAILED if pod.exit_code else PodPhase.SUCCEEDED)


def _tells_phase(pod: Child, kubernetes: Kubernetes) -> bool:
    """Whether a pod that is deleted gets a terminal phase before it goes: always since 1.27, before under Never alone."""
    if kubernetes.has(DELETION_ENDS_IN_TERMINAL_PHASE):
        return True
    return spec_of_pod(pod.spec).restart_policy == PodRestartPolicy.NEVER


# Deletions.


def asked_to_go(pod: Child, grace: int, kubernetes: Kubernetes | None) -> Child | None:
    """A pod that runs after a delete with this grace, in seconds; None if that changes nothing.

    A grace can only be shortened. The second request comes when two thirds of the first grace have passed.
    """
    if pod.grace is None:
        return pod._replace(asked=grace, grace=grace, leaves=grace)
    if kubernetes is None or grace >= pod.grace:
        return None
    return _shortened(pod, grace, pod.grace * 2 // 3, kubernetes)


def last_delete(pod: Child, kubernetes: Kubernetes) -> Child:
    """A pod that has ended after the delete with grace 0, of the kubelet or of anybody else: the object goes with it."""
    if pod.grace is None:
        return pod._replace(asked=0, grace=0, leaves=LAST)
    return _shortened(pod, 0, LAST, kubernetes)


def _shortened(pod: Child, grace: int, now: int, kubernetes: Kubernetes) -> Child:
    assert pod.grace is not None
    leaves = pod.leaves - pod.grace + grace
    if kubernetes.has(DELETION_TIMESTAMP_MOVES):
        leaves = max(leaves, now)
    return pod._replace(grace=grace, leaves=leaves)
