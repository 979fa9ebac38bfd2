"""How a pod ends, and why it does not start, derived from the pod as reported by its kubelet. Pure.

The phase, containers, conditions and deletion of a pod, and the restart policies with which it was created, determine which
container terminations are final, when the pod has ended, and whether the end was caused externally.

Why a pod does not start is reported as an event on the job: for example an image that cannot be pulled, or an unschedulable
pod. The conditions of the job do not change, since nothing has happened yet. The event text is the same as in the Go
operators.
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
"""Reasons of a failed pod that indicate a disruption, not a failure of the training."""
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
"""The pod exceeded its own activeDeadlineSeconds, set by its author. The kubelet may report no container status then."""
REJECTED: Final = "Pod was rejected"
"""The prefix of a kubelet's message when it rejects a pod, since Kubernetes 1.26."""
UNKNOWN: Final = "ContainerStatusUnknown"
"""The reason of containers unknown to the kubelet. After a restart, a kubelet sets it on pods that it had rejected."""

DISRUPTION_TARGET: Final = "DisruptionTarget"
BY_KUBELET: Final = "TerminationByKubelet"
"""The reason of DisruptionTarget if the kubelet ends the pod; set at the pod's end, after its containers received SIGTERM.
Other components (taints, the eviction API, preemption) set the condition before they delete the pod."""

RESTARTING_ALL: Final = "RestartingAllContainers"
"""A container's reason while a rule restarts all containers of its pod (Kubernetes 1.36)."""
ALL_RESTARTING: Final = "AllContainersRestarting"
"""The pod's condition during that."""


def is_final(pod: Pod, status: core.ContainerStatus) -> bool:
    """Return True if an ordinary container has terminated and will not be restarted.

    The first rule that matches the exit code decides, else the container's own policy, else the pod's (KEP-5307). As in the
    kubelet, rules apply only if the container has its own policy. The action RestartAllContainers also restarts terminated
    containers.
    """
    ended = status.state.terminated
    if ended is None or ended.reason == RESTARTING_ALL or _condition(pod, ALL_RESTARTING) is not None:
        return False
    return is_not_restarted(pod.spec, status.name, ended.exit_code)


def is_not_restarted(spec: core.PodSpec, container: str, exit_code: int) -> bool:
    """Return True if the policies of the pod do not restart an ordinary container that exited with this code.

    A kubelet older than its API server may not support all policies; if a pod has a terminal phase, the phase decides.
    """
    return not _restarts(spec, next((each for each in spec.containers if each.name == container), None), exit_code)


def has_ended(pod: Pod) -> bool:
    """Return True if all containers except native sidecars have terminated and will not be restarted.

    The phase is not sufficient: since Kubernetes 1.22 it is reported a second or more after the container statuses. Native
    sidecars are ignored, since the kubelet terminates them last.
    """
    if pod.status.phase in core.TERMINAL:
        return True
    statuses = pod.status.container_statuses or ()
    final = {status.name for status in statuses if is_final(pod, status)}
    return len(final) == len(statuses) > 0 and all(container.name in final for container in pod.spec.containers)


def is_disrupted(pod: Pod) -> bool:
    """Return True if the cluster evicted the pod, or rejected it before any container ran."""
    return pod.status.reason in DISRUPTIONS or is_rejected(pod) or _condition(pod, DISRUPTION_TARGET) is not None


def was_stopped(pod: Pod, ended: core.ContainerStateTerminated | None) -> bool:
    """Return True if exit code 0 may be a reaction to SIGTERM: a process may save a checkpoint and exit unfinished.

    During a node shutdown, only DisruptionTarget indicates that the process was stopped, even if the pod is also deleted. If
    the pod is being deleted, the process has finished only if it exited before the delete. The time of the delete is known only
    while the grace period equals the one in the pod's spec. The kubelet's last delete (grace 0) changes `deletionTimestamp`,
    and so does any other delete that shortens the grace period (Kubernetes 1.33). API times are whole seconds: if both are
    equal, the process counts as stopped, so the replica runs again. If a container was between two runs when the pod was
    deleted, it has not finished either, even if the phase becomes Succeeded (Kubernetes 1.27). A success observed earlier is in
    the job's status.

    The exit is timed by the node's clock, and the delete by the API server's. If the node is ahead, the replica may run again,
    which is harmless. If it is behind, an exit on SIGTERM may count as a success, and work is lost. So the part of the
    difference that the pod itself proves is added: no kubelet starts a pod before it was created.
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
    if ended is None or ended.finished_at is None or not is_not_restarted(pod.spec, CONTAINER_NAME, ended.exit_code):
        return True
    created, started = meta.creation_timestamp, pod.started
    behind_s = (created - started).total_seconds() if created is not None and started is not None else 0.0
    # Compared as a duration: the API accepts a grace period of thousands of years, which no datetime can represent.
    return (meta.deletion_timestamp - ended.finished_at).total_seconds() - max(0.0, behind_s) <= grace_s


def deletion_grace_exceeds_spec(pod: Pod) -> bool:
    """Return True if the pod is deleted with a longer grace period than its own; a later reduction would hide this."""
    return (pod.metadata.deletion_grace_period_seconds or 0) > pod.spec.termination_grace_period_seconds


def native_sidecars(spec: core.PodSpec) -> frozenset[str]:
    """Return the names of the init containers that run alongside the others (Kubernetes 1.29)."""
    return frozenset(
        container.name
        for container in spec.init_containers or ()
        if container.restart_policy == core.PodRestartPolicy.ALWAYS
    )


def container_policy_forbids_restart(pod: Pod, container: str, exit_code: int) -> bool:
    """Return True if a container failed and its own policy and rules, which override the pod's, do not restart it."""
    own = next((each.restart_policy for each in pod.spec.containers if each.name == container), "")
    return bool(own) and exit_code != 0 and is_not_restarted(pod.spec, container, exit_code)


def _condition(pod: Pod, kind: str) -> core.Condition | None:
    """Return this condition of the pod if it is True."""
    return next(
        (
            condition
            for condition in pod.status.conditions or ()
            if condition.type == kind and condition.status == "True"
        ),
        None,
    )


def is_rejected(pod: Pod) -> bool:
    """Return True if a kubelet rejected the pod, whatever the reason: new versions of Kubernetes add reasons."""
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
    """Return True if the kubelet restarts a container that exited with this code."""
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
"""The kubelet's reasons that require user action; PodInitializing and ContainerCreating resolve themselves, and
CrashLoopBackOff is reported with the restarts."""
_INITIALIZING: Final = "PodInitializing"
"""The reason of containers that wait for init containers."""
ProblemKey = tuple[str, str, str]
"""UID of the pod, or "" for the job; name of the container, or ""; reason. Identifies a problem while it persists."""


@dataclass(frozen=True, slots=True)
class StartProblem:
    """Why a pod does not start, and its event. It is reported once, not at every sync. `words` do not name the pod."""

    key: ProblemKey
    event: JobEvent
    words: str = ""


def problems_of_pod(pod: Pod) -> Iterator[StartProblem]:
    """Yield what keeps a pod from starting; the pod must neither have started nor be terminating."""
    name, uid = pod.metadata.name, pod.metadata.uid
    if any(gate.name == QUEUE_GATE for gate in pod.spec.scheduling_gates or ()):
        yield queued_separately(f"pod {name} has the scheduling gate {QUEUE_GATE}")
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            message = f"Error pod {name} condition message: {condition.message}"
            yield _problem(uid, "", condition.reason, message, f"{condition.reason}: {condition.message}")
    for container in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())):
        waiting = container.state.waiting
        if waiting is not None and waiting.reason in WAITING_REASONS:
            said = waiting.message or waiting.reason
            message = f"Error pod {name} container {container.name} waiting message: {said}"
            yield _problem(uid, container.name, waiting.reason, message, f"container {container.name}: {said}")


def pending_state(pod: Pod) -> str:
    """Return the state of a pod that is not running and has no problem: what it waits for, as far as its status shows."""
    if pod.spec.scheduling_gates:
        return f"it has scheduling gates: {', '.join(gate.name for gate in pod.spec.scheduling_gates)}"
    if not pod.node:
        for condition in pod.status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                return f"not scheduled: {_in_words(condition.reason, condition.message)}"
        return "not scheduled yet"
    if not (pod.status.init_container_statuses or pod.status.container_statuses):
        return f"the kubelet of node {pod.node} reported no container status"
    return _pending_container(pod)


def _pending_container(pod: Pod) -> str:
    """Return the first container that the others of a pod wait for, and its state."""
    native, started = native_sidecars(pod.spec), ""
    for status in pod.status.init_container_statuses or ():
        waiting = status.state.waiting
        if waiting is not None and waiting.reason != _INITIALIZING:
            return f"init container {status.name} is waiting: {_in_words(waiting.reason, waiting.message)}"
        if waiting is None and status.state.terminated is None:
            if status.name not in native:
                return f"init container {status.name} is running"
            started = status.name
    waits = [
        (status.name, status.state.waiting) for status in pod.status.container_statuses or () if status.state.waiting
    ]
    if not waits:
        return f"its phase is {pod.status.phase}"
    name, waiting = next((wait for wait in waits if wait[1].reason != _INITIALIZING), waits[0])
    # The next container starts after the startup probe of a native sidecar.
    if started and waiting.reason == _INITIALIZING:
        return f"init container {started} has not started"
    return f"container {name} is waiting: {_in_words(waiting.reason, waiting.message)}"


def _in_words(reason: str, message: str) -> str:
    return ": ".join(filter(None, (reason, message))) or "no reason given"


def queued_separately(proof: str) -> StartProblem:
    """Return one problem for the whole job: Kueue admits its pods or batch Jobs individually."""
    text = f"Kueue queues the replicas of this job one by one, so some may run while others wait: {proof}. Kueue must have the "
    text += "kind of the job in its integrations.frameworks or integrations.externalFrameworks"
    return problem_of_job(EventReason.QUEUED_SEPARATELY, text)


def problem_of_job(reason: str, message: str) -> StartProblem:
    """Return a problem of the whole job, which is reported once."""
    return _problem("", "", reason, message)


def _problem(uid: str, container: str, reason: str, message: str, words: str = "") -> StartProblem:
    return StartProblem((uid, container, reason), JobEvent(EventType.WARNING, reason, message), words)
