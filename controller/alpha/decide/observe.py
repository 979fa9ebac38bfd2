"""The children of a job in the alpha dialect as a plan sees them: for each replica its Job and that Job's pods. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.meta import controller_of
from tfjob_operator.api.v1.constants import CONTAINER_NAME, RETRYABLE_EXIT_CODES
from tfjob_operator.api.v1alpha1.constants import OOM_KILLED, State
from tfjob_operator.controller.jobs.pod_end import has_ended, is_final, was_stopped

if TYPE_CHECKING:
    from tfjob_operator.api.core import ContainerStateTerminated, ContainerStatus
    from tfjob_operator.controller.alpha.children import BatchCondition, BatchJob, Children
    from tfjob_operator.controller.jobs.children import Pod

_OLDEST: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Replica:
    """The Job of one replica and its pods, the newest last. There is no Job where another operator made its pod."""

    job: BatchJob | None
    pods: tuple[Pod, ...]

    @property
    def state(self) -> State:
        """How it stands, by the rules of earlier operators: what its newest pod's training container did last."""
        if self.has_succeeded:
            return State.SUCCEEDED
        if self.failure is not None:
            return State.FAILED
        if not self.pods:
            return State.RUNNING
        training = training_of(self.pods[-1])
        if training is None:
            return State.UNKNOWN
        ended = last_end(training)
        failed = ended is not None and ended.exit_code != 0 and is_permanent(ended)
        return State.FAILED if failed else State.RUNNING

    @property
    def failure(self) -> BatchCondition | None:
        """Why its Job was given up, if it was."""
        return self.job.failure if self.job is not None else None

    @property
    def has_succeeded(self) -> bool:
        """Whether its training has exited with 0, and not because it was stopped."""
        return (self.job is not None and self.job.has_succeeded) or any(map(_has_done_its_work, self.pods))

    @property
    def needs_job(self) -> bool:
        """Whether a Job is to be created: there is none, and all pods that another operator made have failed."""
        return self.job is None and not self.has_succeeded and all(pod.status.phase == "Failed" for pod in self.pods)

    @property
    def is_active(self) -> bool:
        """Whether a pod of it runs."""
        return not self.has_succeeded and any(
            pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None for pod in self.pods
        )

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs or will run again, though its Job may not say so yet."""
        if self.job is None:
            return all(map(has_ended, self.pods))
        return self.job.is_finished or (self.has_succeeded and all(map(has_ended, self.pods)))


def replicas_of(children: Children) -> dict[str, Replica]:
    """Return the replicas that have a Job or a pod, by name; a Job has the name of its replica."""
    pods: dict[str, list[Pod]] = defaultdict(list)
    for pod in children.pods:
        owner = controller_of(pod.metadata)
        if owner is not None:
            pods[owner.uid].append(pod)
    found = {name: Replica(None, tuple(sorted(bare, key=_age))) for name, bare in children.bare.items()}
    for job in children.jobs:
        name = job.metadata.name
        every = (*children.bare.get(name, ()), *pods[job.metadata.uid])
        found[name] = Replica(job, tuple(sorted(every, key=_age)))
    return found


def training_of(pod: Pod) -> ContainerStatus | None:
    """Return the status of the container `tensorflow`, None if the kubelet has not reported it."""
    return next((each for each in pod.status.container_statuses or () if each.name == CONTAINER_NAME), None)


def last_end(training: ContainerStatus) -> ContainerStateTerminated | None:
    """Return how a container ended last: now, or before it was started again in place."""
    if training.state.terminated is not None:
        return training.state.terminated
    return training.last_state.terminated if training.last_state is not None else None


def is_permanent(ended: ContainerStateTerminated) -> bool:
    """Return whether a failed process would fail again: by the table of exit codes, or because it ran out of memory."""
    return ended.reason == OOM_KILLED or ended.exit_code not in RETRYABLE_EXIT_CODES


def _age(pod: Pod) -> tuple[datetime, str]:
    return pod.metadata.creation_timestamp or _OLDEST, pod.metadata.uid


def _has_done_its_work(pod: Pod) -> bool:
    training = training_of(pod)
    ended = training.state.terminated if training is not None else None
    if training is None or ended is None or ended.exit_code != 0:
        return False
    return is_final(pod, training) and not pod.status.reason and not was_stopped(pod, ended)
