"""Why pods do not start, reported to the job's owner: an image that cannot be pulled, a pod that cannot be scheduled. Pure.

The job's conditions do not change for it, since nothing has happened yet (B34); it is an event, with the Go operators' text.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.core import EventType
from tfjob_operator.controller.tfjob.decide.actions import JobEvent, Problem, ProblemKey
from tfjob_operator.controller.tfjob.decide.replicas import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from tfjob_operator.controller.tfjob.children import Pod
    from tfjob_operator.controller.tfjob.decide.replicas import Replica

WAITING_REASONS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
        "ImageVolumeMountFailed",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
"""The kubelet's reasons that a person must act upon; PodInitializing and ContainerCreating pass by themselves, and of
CrashLoopBackOff the restarts tell."""

MOST_PER_REASON: Final = 3
"""How many pods of a job are named for one reason: five hundred that wait for the same node have one story."""


def problems_of(replicas: Iterable[Replica]) -> tuple[Problem, ...]:
    """Return what keeps these replicas from starting."""
    return tuple(
        problem
        for replica in replicas
        if replica.outcome is Outcome.WAITING and not replica.terminating
        for problem in _of_pod(replica.pod)
    )


def unreported(problems: Iterable[Problem], told: AbstractSet[ProblemKey]) -> list[Problem]:
    """Return the problems that were not reported yet: together with those that were, at most `MOST_PER_REASON` of a reason."""
    seen = Counter(reason for _, _, reason in told)
    news = []
    for problem in problems:
        reason = problem.key[-1]
        if problem.key not in told and seen[reason] < MOST_PER_REASON:
            seen[reason] += 1
            news.append(problem)
    return news


def _of_pod(pod: Pod) -> Iterator[Problem]:
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
