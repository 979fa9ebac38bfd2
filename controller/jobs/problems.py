"""Why pods do not start, as events on the job: an image that cannot be pulled, a pod that cannot be scheduled. Pure.

The job's conditions do not change for it, since nothing has happened yet (B34); the text is the Go operators'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tfjob_operator.api.core import IMAGE_REASONS, EventType
from tfjob_operator.api.v1.constants import QUEUE_GATE, EventReason
from tfjob_operator.controller.jobs.children import Pod


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event on the job. Events of a plan are recorded once its status is written, that of a pod's deletion before it."""

    type: str
    reason: str
    message: str


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
