"""Former, wrong evaluations of the end of a pod on newer kubelets, which every model must find (M1, M2, M3)."""

from collections.abc import Iterable
from datetime import timedelta

from tfjob_operator.api.core import ContainerStateTerminated, ContainerStatus, PodPhase
from tfjob_operator.api.v1.constants import CleanPodPolicy, RestartPolicy
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.pods import is_disrupted
from tfjob_operator.controller.tfjob.plan.replicas import Replica


def to_clean_up(policy: str, replicas: Iterable[Replica]) -> list[Replica]:
    """M1: only a terminal phase counts as an end. Replaces `cleanup.pods_to_clean_up`."""
    if policy == CleanPodPolicy.NONE:
        return []
    ended = {PodPhase.SUCCEEDED, PodPhase.FAILED}
    return [replica for replica in replicas if policy == CleanPodPolicy.ALL or replica.pod.status.phase not in ended]


def was_stopped(pod: Pod, ended: ContainerStateTerminated | None) -> bool:
    """M2, M10: `deletionTimestamp` never changes, and Succeeded is always a pod's own end. Replaces `pods.was_stopped`."""
    leaves_at = pod.metadata.deletion_timestamp
    if leaves_at is None:
        return pod.status.phase == PodPhase.FAILED and is_disrupted(pod)
    if ended is None or ended.finished_at is None:
        return False
    return ended.finished_at >= leaves_at - timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)


def is_final(pod: Pod, status: ContainerStatus) -> bool:
    """M3: the pod's policy decides, never a container's. Replaces `pods.is_final`."""
    ended, policy = status.state.terminated, pod.spec.restart_policy
    return (
        ended is not None
        and policy != RestartPolicy.ALWAYS
        and (ended.exit_code == 0 or policy != RestartPolicy.ON_FAILURE)
    )
