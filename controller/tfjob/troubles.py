"""Pods that can not start, told to the job's owner: an image that can not be pulled, a place that can not be found. Pure.

The job's STATE says nothing of it, since nothing has happened yet (B34); so it is an event, with the text of the Go operators.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.tfjob.actions import JobEvent, Trouble, TroubleKey
from tfjob_operator.controller.tfjob.replicas import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from tfjob_operator.api.v1.children import Pod
    from tfjob_operator.controller.tfjob.replicas import Replica

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


def troubles_of(replicas: Iterable[Replica]) -> tuple[Trouble, ...]:
    """What keeps these replicas from starting."""
    return tuple(
        trouble
        for replica in replicas
        if replica.outcome is Outcome.WAITING and not replica.terminating
        for trouble in _of_pod(replica.pod)
    )


def untold(troubles: Iterable[Trouble], told: AbstractSet[TroubleKey]) -> list[Trouble]:
    """Those that are not told yet; with those that are, at most `MOST_PER_REASON` of a reason."""
    seen = Counter(reason for _, _, reason in told)
    news = []
    for trouble in troubles:
        reason = trouble.key[-1]
        if trouble.key not in told and seen[reason] < MOST_PER_REASON:
            seen[reason] += 1
            news.append(trouble)
    return news


def _of_pod(pod: Pod) -> Iterator[Trouble]:
    name, uid = pod.metadata.name, pod.metadata.uid
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            yield _trouble(uid, "", condition.reason, f"Error pod {name} condition message: {condition.message}")
    for container in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())):
        waiting = container.state.waiting
        if waiting is not None and waiting.reason in WAITING_REASONS:
            message = f"Error pod {name} container {container.name} waiting message: {waiting.message}"
            yield _trouble(uid, container.name, waiting.reason, message)


def _trouble(uid: str, container: str, reason: str, message: str) -> Trouble:
    return Trouble((uid, container, reason), JobEvent(c.WARNING, reason, message))
