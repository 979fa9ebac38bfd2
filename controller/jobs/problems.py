"""Why pods do not start, reported to the job's owner: an image that cannot be pulled, a pod that cannot be scheduled. Pure.

The job's conditions do not change for it, since nothing has happened yet (B34); it is an event, with the Go operators' text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.core import IMAGE_REASONS, EventType
from tfjob_operator.controller.jobs.job_event import JobEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfjob_operator.controller.jobs.children import Pod

WAITING_REASONS: Final = IMAGE_REASONS | {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
"""The kubelet's reasons that a person must act upon; PodInitializing and ContainerCreating pass by themselves, and
CrashLoopBackOff is reported with the restarts."""

ProblemKey = tuple[str, str, str]
"""UID of a pod, name of its container or "", reason: the same for as long as it is the same problem."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a pod does not start, and the event about it. It is reported once, not at every sync."""

    key: ProblemKey
    event: JobEvent


def problems_of_pod(pod: Pod) -> Iterator[Problem]:
    """Yield what keeps a pod from starting; the pod must not have started, and not be deleted."""
    name, uid = pod.metadata.name, pod.metadata.uid
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            yield _trouble(uid, "", condition.reason, f"Error pod {name} condition message: {condition.message}")
    for container in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())):
        waiting = container.state.waiting
        if waiting is not None and waiting.reason in WAITING_REASONS:
            message = f"Error pod {name} container {container.name} waiting message: {waiting.message}"
            yield _trouble(uid, container.name, waiting.reason, message)


def _trouble(uid: str, container: str, reason: str, message: str) -> Problem:
    return Problem((uid, container, reason), JobEvent(EventType.WARNING, reason, message))
