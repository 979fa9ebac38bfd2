"""How a pod ends, and why it does not start, read from the pod as its kubelet shows it. Pure.

Which container terminations are final, when the pod has ended, and which ends others caused is read from its phase, containers,
conditions and deletion, and from the restart policies with which it was created.

Why it does not start becomes an event on the job: an image that cannot be pulled, a pod that cannot be scheduled. The job's
conditions do not change for it, since nothing has happened yet (B34); the text is the Go operators'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tfjob_operator.api import core
from tfjob_operator.api.core import IMAGE_REASONS, EventType
from tfjob_operator.api.v1.constants import CONTAINER_NAME, QUEUE_GATE, EventReason
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.draft import JobEvent

DISRUPTIONS: Final = frozenset(
    {"Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "Preempted"}
)
"""Reasons of a failed pod which say that the cluster took it away; the training did nothing wrong."""
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
"""The pod exceeded its own activeDeadlineSeconds, which its author chose. The kubelet may report no container then."""
REJECTED: Final = "Pod was rejected"
"""The beginning of the message with which a kubelet rejects a pod, since Kubernetes 1.26."""
UNKNOWN: Final = "ContainerStatusUnknown"
"""The reason of containers of which a kubelet knows nothing. After a restart it gives this to pods that it had rejected."""

DISRUPTION_TARGET: Final = "DisruptionTarget"
BY_KUBELET: Final = "TerminationByKubelet"
"""The reason with which a kubelet that ends a pod sets DisruptionTarget: at the pod's end, after its containers got SIGTERM.
Others (taints, the eviction API, preemption) set the condition before they delete the pod."""

RESTARTING_ALL: Final = "RestartingAllContainers"
"""A container's reason while a rule restarts all containers of its pod (Kubernetes 1.36)."""
ALL_RESTARTING: Final = "AllContainersRestarting"
"""The pod's condition while that happens."""


def is_final(pod: Pod, status: core.ContainerStatus) -> bool:
    """Whether an ordinary container has terminated and its kubelet will not start it again.

    The first rule that matches the exit code decides, else the container's own policy, else the pod's (KEP-5307). As in
    the kubelet, rules count only if the container has a policy of its own. A restart of all containers also starts those that
    have ended.
    """
    ended = status.state.terminated
    if ended is None or ended.reason == RESTARTING_ALL or _condition(pod, ALL_RESTARTING) is not None:
        return False
    return stays_ended(pod.spec, status.name, ended.exit_code)


def stays_ended(spec: core.PodSpec, container: str, exit_code: int) -> bool:
    """Return whether an ordinary container that exited with this code is not restarted, by the policies of its pod.

    A kubelet older than its API server may know fewer of these policies; where a pod has a terminal phase, the phase decides.
    """
    return not _restarts(spec, next((each for each in spec.containers if each.name == container), None), exit_code)


def has_ended(pod: Pod) -> bool:
    """Whether nothing of the pod's own work runs or will run again.

    The phase comes late: since Kubernetes 1.22 containers are reported a second or more before it. Native sidecars do not
    count, since their kubelet ends them after the others.
    """
    if pod.status.phase in core.TERMINAL:
        return True
    statuses = pod.status.container_statuses or ()
    told = {status.name for status in statuses if is_final(pod, status)}
    return len(told) == len(statuses) > 0 and all(container.name in told for container in pod.spec.containers)


def is_disrupted(pod: Pod) -> bool:
    """Return whether the cluster evicted the pod, or rejected it before anything of it ran."""
    return pod.status.reason in DISRUPTIONS or is_rejected(pod) or _condition(pod, DISRUPTION_TARGET) is not None


def was_stopped(pod: Pod, ended: core.ContainerStateTerminated | None) -> bool:
    """Return whether an exit with 0 may be a reaction to SIGTERM: a process that saves a checkpoint then is not done.

    During a node's shutdown only DisruptionTarget says so, also if somebody deletes the pod then. If the pod is being deleted,
    the process is done only if it ended before the delete. When that was is known only while the grace period is the pod's own:
    the kubelet's last delete (grace 0), and each one that shortens the grace period, moves `deletionTimestamp` (Kubernetes
    1.33). The API has whole seconds: a tie counts as stopped, so the replica runs again. A container that was between two runs
    when the pod was deleted was not done either, though the pod's phase may become Succeeded (1.27). A success that was seen in
    time is in the job's status.
    """
    meta = pod.metadata
    if meta.deletion_timestamp is None:
        return is_disrupted(pod)
    target = _condition(pod, DISRUPTION_TARGET)
    if target is not None and target.reason == BY_KUBELET:
        return True
    grace_s = meta.deletion_grace_period_seconds
    if not grace_s or grace_s != pod.spec.termination_grace_period_seconds:
        return True
    if ended is None or ended.finished_at is None or not stays_ended(pod.spec, CONTAINER_NAME, ended.exit_code):
        return True
    # As a duration: the API accepts a grace period of thousands of years, and no date lies that far back.
    return (meta.deletion_timestamp - ended.finished_at).total_seconds() <= grace_s


def deletion_grace_exceeds_spec(pod: Pod) -> bool:
    """Whether the pod is deleted with a longer grace period than its own; if that is shortened, the pod does not show it."""
    return (pod.metadata.deletion_grace_period_seconds or 0) > pod.spec.termination_grace_period_seconds


def native_sidecars(spec: core.PodSpec) -> frozenset[str]:
    """Return the names of the init containers that run beside the others (Kubernetes 1.29)."""
    return frozenset(
        each.name for each in spec.init_containers or () if each.restart_policy == core.PodRestartPolicy.ALWAYS
    )


def container_policy_forbids_restart(pod: Pod, container: str, exit_code: int) -> bool:
    """Whether a container failed that its own policy and rules do not restart; these override the pod's policy."""
    own = next((each.restart_policy for each in pod.spec.containers if each.name == container), "")
    return bool(own) and exit_code != 0 and stays_ended(pod.spec, container, exit_code)


def _condition(pod: Pod, kind: str) -> core.Condition | None:
    """Return this condition of the pod, if it is True."""
    return next((each for each in pod.status.conditions or () if each.type == kind and each.status == "True"), None)


def is_rejected(pod: Pod) -> bool:
    """Whether a kubelet rejected the pod, for whatever reason: each version of Kubernetes adds new ones."""
    status = pod.status
    if status.phase != core.PodPhase.FAILED:
        return False
    nothing_ran = all(_never_ran(each) for each in status.container_statuses or ())
    return (nothing_ran and status.reason not in {"", DEADLINE_EXCEEDED}) or status.message.startswith(REJECTED)


def _never_ran(status: core.ContainerStatus) -> bool:
    ended = status.state.terminated
    if ended is not None:
        return ended.reason == UNKNOWN
    return status.state.waiting is not None and status.restart_count == 0


def _restarts(spec: core.PodSpec, container: core.Container | None, exit_code: int) -> bool:
    """Whether the kubelet restarts a container that terminated like this."""
    policy = spec.restart_policy
    if container is not None and container.restart_policy:
        rules = container.restart_policy_rules or ()
        first = next((rule for rule in rules if _names(rule, exit_code)), None)
        if first is not None and first.action in {"Restart", "RestartAllContainers"}:
            return True
        policy = container.restart_policy
    return policy == core.PodRestartPolicy.ALWAYS or (policy == core.PodRestartPolicy.ON_FAILURE and exit_code != 0)


def _names(rule: core.ContainerRestartRule, exit_code: int) -> bool:
    codes = rule.exit_codes
    if codes is None or codes.operator not in {"In", "NotIn"}:
        return False
    return (exit_code in codes.values) is (codes.operator == "In")


WAITING_REASONS: Final = IMAGE_REASONS | {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
"""The kubelet's reasons that a person must act upon; PodInitializing and ContainerCreating pass by themselves, and
CrashLoopBackOff is reported with the restarts."""
ProblemKey = tuple[str, str, str]
"""UID of a pod or "" for the job, name of its container or "", reason: the same for as long as it is the same problem."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a pod does not start, and the event about it. It is reported once, not at every sync."""

    key: ProblemKey
    event: JobEvent


def problems_of_pod(pod: Pod) -> Iterator[Problem]:
    """Yield what keeps a pod from starting; the pod must not have started, and not be deleted."""
    name, uid = pod.metadata.name, pod.metadata.uid
    if any(gate.name == QUEUE_GATE for gate in pod.spec.scheduling_gates or ()):
        yield queued_separately(f"pod {name} has the scheduling gate {QUEUE_GATE}")
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            yield _trouble(uid, "", condition.reason, f"Error pod {name} condition message: {condition.message}")
    for container in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())):
        waiting = container.state.waiting
        if waiting is not None and waiting.reason in WAITING_REASONS:
            message = f"Error pod {name} container {container.name} waiting message: {waiting.message}"
            yield _trouble(uid, container.name, waiting.reason, message)


def queued_separately(proof: str) -> Problem:
    """Return the problem, one for the whole job, that Kueue queues its pods or batch Jobs one by one."""
    text = f"Kueue queues the replicas of this job one by one, so some may run while others wait: {proof}. Kueue must have the "
    text += "kind of the job in its integrations.frameworks or integrations.externalFrameworks"
    return problem_of_job(EventReason.QUEUED_SEPARATELY, text)


def problem_of_job(reason: str, message: str) -> Problem:
    """Return a problem of the job itself, which is reported once whatever the number of its pods."""
    return _trouble("", "", reason, message)


def _trouble(uid: str, container: str, reason: str, message: str) -> Problem:
    return Problem((uid, container, reason), JobEvent(EventType.WARNING, reason, message))
