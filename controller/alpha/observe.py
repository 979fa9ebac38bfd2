"""The children of a job in the alpha dialect by replica, and the outcome they imply. Pure.

A replica consists of its batch Job and that Job's pods. The job runs, succeeds or fails with its chief, according to the table
of exit codes. RuntimeIds are the part of child names that distinguishes jobs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from tfjob_operator.api.core import Condition, ContainerStateTerminated, ContainerStatus, PodPhase
from tfjob_operator.api.meta import controller_of
from tfjob_operator.api.text import quoted, tail_of
from tfjob_operator.api.v1.constants import CONTAINER_NAME, RETRYABLE_EXIT_CODES
from tfjob_operator.api.v1alpha1.constants import OOM_KILLED, AlphaState
from tfjob_operator.controller.alpha.batch_jobs import BatchJob, Children
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.pods import (
    DEADLINE_EXCEEDED,
    StartProblem,
    has_ended,
    is_disrupted,
    is_final,
    problems_of_pod,
    queued_separately,
    was_stopped,
)

_OLDEST: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class AlphaReplica:
    """The batch Job of a replica and its pods, newest last. There is no Job if another operator created its pod."""

    job: BatchJob | None
    pods: tuple[Pod, ...]

    @property
    def state(self) -> AlphaState:
        """The state by the rules of earlier operators: the last result of its newest pod's training container."""
        if self.has_succeeded:
            return AlphaState.SUCCEEDED
        if self.failure is not None:
            return AlphaState.FAILED
        if not self.pods:
            return AlphaState.RUNNING
        training = training_of(self.pods[-1])
        if training is None:
            return AlphaState.UNKNOWN
        ended = last_end(training)
        failed = ended is not None and ended.exit_code != 0 and is_permanent(ended)
        return AlphaState.FAILED if failed else AlphaState.RUNNING

    @property
    def failure(self) -> Condition | None:
        """Why its Job was given up, or None."""
        return self.job.failure if self.job is not None else None

    @property
    def has_succeeded(self) -> bool:
        """True if its training has exited with 0, and was not stopped."""
        return (self.job is not None and self.job.has_succeeded) or any(map(_training_succeeded, self.pods))

    @property
    def needs_job(self) -> bool:
        """True if a Job must be created: there is none, and all pods created by another operator have failed."""
        return self.job is None and not self.has_succeeded and all(pod.status.phase == "Failed" for pod in self.pods)

    @property
    def is_active(self) -> bool:
        """True if the training of one of its pods is running. As in v1, a sidecar that runs longer does not count."""
        return not self.has_succeeded and any(map(_is_training, self.pods))

    @property
    def has_ended(self) -> bool:
        """True if nothing in the replica runs or will run again, even if its Job does not reflect that yet."""
        if self.job is None:
            return all(map(has_ended, self.pods))
        return self.job.is_finished or (self.has_succeeded and all(map(has_ended, self.pods)))


def replicas_of(children: Children) -> dict[str, AlphaReplica]:
    """Return the replicas that have a Job or a pod, by name; a Job is named after its replica."""
    pods: dict[str, list[Pod]] = defaultdict(list)
    for pod in children.pods:
        owner = controller_of(pod.metadata)
        if owner is not None:
            pods[owner.uid].append(pod)
    found = {name: AlphaReplica(None, tuple(sorted(bare, key=_age))) for name, bare in children.bare.items()}
    for job in children.jobs:
        name = job.metadata.name
        every = (*children.bare.get(name, ()), *pods[job.metadata.uid])
        found[name] = AlphaReplica(job, tuple(sorted(every, key=_age)))
    return found


def training_of(pod: Pod) -> ContainerStatus | None:
    """Return the status of the container `tensorflow`, None if not reported."""
    return next((status for status in pod.status.container_statuses or () if status.name == CONTAINER_NAME), None)


def last_end(training: ContainerStatus) -> ContainerStateTerminated | None:
    """Return how a container last ended: now, or before its last in-place restart."""
    if training.state.terminated is not None:
        return training.state.terminated
    return training.last_state.terminated if training.last_state is not None else None


def is_permanent(ended: ContainerStateTerminated) -> bool:
    """Return True if a failed process would fail again: by its exit code, or because it ran out of memory."""
    return ended.reason == OOM_KILLED or ended.exit_code not in RETRYABLE_EXIT_CODES


def _age(pod: Pod) -> tuple[datetime, str]:
    return pod.metadata.creation_timestamp or _OLDEST, pod.metadata.uid


def _is_training(pod: Pod) -> bool:
    training = training_of(pod)
    training_ended = training is not None and is_final(pod, training)
    return pod.status.phase == PodPhase.RUNNING and pod.metadata.deletion_timestamp is None and not training_ended


def _training_succeeded(pod: Pod) -> bool:
    training = training_of(pod)
    ended = training.state.terminated if training is not None else None
    if training is None or ended is None or ended.exit_code != 0:
        return False
    return is_final(pod, training) and not pod.status.reason and not was_stopped(pod, ended)


_STARTED: Final = frozenset({PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED})


def problems_of(replicas: Iterable[AlphaReplica]) -> tuple[StartProblem, ...]:
    """Return the problems that keep these replicas from starting."""
    found = []
    for replica in replicas:
        if replica.job is not None and replica.job.condition("Suspended"):
            found.append(queued_separately(f"batch Job {replica.job.metadata.name} was suspended"))
        for pod in replica.pods:
            if pod.status.phase not in _STARTED and pod.metadata.deletion_timestamp is None:
                found += problems_of_pod(pod)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class AlphaVerdict:
    """The state of the job, derived from its chief.

    `failed` is why the job failed, or ""; `at` is when the chief's container ended.
    """

    running: bool = False
    succeeded: bool = False
    failed: str = ""
    at: datetime | None = None


def judge(chief: AlphaReplica | None) -> AlphaVerdict:
    """Determine a job's state from its chief; None means that the chief has no Job or pod. Success takes precedence."""
    if chief is None:
        return AlphaVerdict()
    if chief.has_succeeded:
        ends = (last_end(training) for pod in chief.pods if _training_succeeded(pod) and (training := training_of(pod)))
        return AlphaVerdict(succeeded=True, at=next((ended.finished_at for ended in ends if ended is not None), None))
    if chief.job is not None and chief.failure is not None:
        failure = chief.failure
        message = tail_of(failure.message)
        detail = f": {message}" if message else ""
        return AlphaVerdict(failed=f"Job {chief.job.metadata.name} has failed, {quoted(failure.reason)}{detail}")
    failures = (found for pod in chief.pods if (found := _failure_of(pod)) is not None)
    return next(failures, AlphaVerdict(running=chief.is_active))


def _failure_of(pod: Pod) -> AlphaVerdict | None:
    """Return the failure of the job caused by a pod of its chief, or None.

    Every pod of the chief counts, since the Job controller may have replaced a failed pod. Terminating and disrupted pods do
    not count, since their exit codes are not significant.
    """
    if pod.metadata.deletion_timestamp is not None or is_disrupted(pod):
        return None
    name, training = pod.metadata.name, training_of(pod)
    ended = last_end(training) if training is not None else None
    at = ended.finished_at if ended is not None else None
    if pod.status.phase == "Failed" and pod.status.reason == DEADLINE_EXCEEDED:
        return AlphaVerdict(failed=f"Pod {name}: its own activeDeadlineSeconds are exceeded", at=at)
    if ended is None or ended.exit_code == 0 or not is_permanent(ended):
        return None
    return AlphaVerdict(failed=f"Pod {name}: {_exit_of(ended)}", at=at)


def _exit_of(ended: ContainerStateTerminated) -> str:
    """Return how the training ended: exit code, reason, and the end of its termination message."""
    reason = f" ({quoted(ended.reason)})" if ended.reason not in {"", "Error"} else ""
    message = tail_of(ended.message)
    return f"container {CONTAINER_NAME} exited with code {ended.exit_code}{reason}{f': {message}' if message else ''}"


_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_LENGTH: Final = 4
_MOST: Final = 1_000
"""How many RuntimeIds are derived for a job before the first is reused: a namespace never has that many in use."""


def derived_runtime_id(uid: str, attempt: int = 0) -> str:
    """Return the RuntimeId derived from a job's UID for this attempt."""
    number = int.from_bytes(sha256(f"{uid} {attempt}".encode()).digest()[:8], "big")
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)


def next_runtime_id(uid: str, taken: str) -> str:
    """Return the RuntimeId to try after `taken`, whose names are in use."""
    ids = _distinct(uid)
    if any(id_ == taken for id_ in ids):  # the rest of the iterator follows it
        return next(ids, derived_runtime_id(uid))
    return derived_runtime_id(uid)


def _distinct(uid: str) -> Iterator[str]:
    """Yield the RuntimeIds of a job, once each: a repeated one would lead to a loop."""
    seen: set[str] = set()
    for attempt in range(_MOST):
        found = derived_runtime_id(uid, attempt)
        if found not in seen:
            seen.add(found)
            yield found
