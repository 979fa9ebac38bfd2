"""The children of a job in the alpha dialect as a plan sees them, and what they mean for the job. Pure.

For each replica there is its Job and that Job's pods. The job runs, succeeds or fails as its chief does, by the table of exit
codes. RuntimeIds are the part of the names of children that tells jobs apart.
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
from tfjob_operator.api.text import last_words, quoted
from tfjob_operator.api.v1.constants import CONTAINER_NAME, RETRYABLE_EXIT_CODES
from tfjob_operator.api.v1alpha1.constants import OOM_KILLED, AlphaState
from tfjob_operator.controller.alpha.children import BatchJob, Children
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.pods import (
    DEADLINE_EXCEEDED,
    Problem,
    has_ended,
    is_disrupted,
    is_final,
    problems_of_pod,
    queued_separately,
    was_stopped,
)

_OLDEST: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Replica:
    """The Job of one replica and its pods, the newest last. There is no Job where another operator made its pod."""

    job: BatchJob | None
    pods: tuple[Pod, ...]

    @property
    def state(self) -> AlphaState:
        """How it stands, by the rules of earlier operators: what its newest pod's training container did last."""
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
        """Whether the training of one of its pods runs. As in v1, a sidecar that outlives the training does not count."""
        return not self.has_succeeded and any(map(_is_training, self.pods))

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


def _is_training(pod: Pod) -> bool:
    training = training_of(pod)
    is_over = training is not None and is_final(pod, training)
    return pod.status.phase == PodPhase.RUNNING and pod.metadata.deletion_timestamp is None and not is_over


def _has_done_its_work(pod: Pod) -> bool:
    training = training_of(pod)
    ended = training.state.terminated if training is not None else None
    if training is None or ended is None or ended.exit_code != 0:
        return False
    return is_final(pod, training) and not pod.status.reason and not was_stopped(pod, ended)


_STARTED: Final = frozenset({PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED})


def problems_of(replicas: Iterable[Replica]) -> tuple[Problem, ...]:
    """Return what keeps these replicas from starting."""
    found = []
    for replica in replicas:
        if replica.job is not None and replica.job.condition("Suspended"):
            found.append(queued_separately(f"batch Job {replica.job.metadata.name} was suspended"))
        for pod in replica.pods:
            if pod.status.phase not in _STARTED and pod.metadata.deletion_timestamp is None:
                found += problems_of_pod(pod)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the chief means for the job. `failed` is why it has failed, or ""; `at` when its container ended, if known."""

    running: bool = False
    succeeded: bool = False
    failed: str = ""
    at: datetime | None = None


def judge(chief: Replica | None) -> Verdict:
    """Decide about a job by its chief, None while it has no Job; success first. Other replicas fail nothing."""
    if chief is None:
        return Verdict()
    if chief.has_succeeded:
        ends = (last_end(training) for pod in chief.pods if _has_done_its_work(pod) and (training := training_of(pod)))
        return Verdict(succeeded=True, at=next((ended.finished_at for ended in ends if ended is not None), None))
    if chief.job is not None and chief.failure is not None:
        given_up = chief.failure
        words = last_words(given_up.message)
        detail = f": {words}" if words else ""
        return Verdict(failed=f"Job {chief.job.metadata.name} has failed, {quoted(given_up.reason)}{detail}")
    failures = (found for pod in chief.pods if (found := _failure_of(pod)) is not None)
    return next(failures, Verdict(running=chief.is_active))


def _failure_of(pod: Pod) -> Verdict | None:
    """Return how a pod of the chief fails the job, or None.

    Any of its pods does, since the Job controller may have made another one by now. A pod that is being deleted, or that
    the cluster took away, does not: the exit code after that says nothing about the process.
    """
    if pod.metadata.deletion_timestamp is not None or is_disrupted(pod):
        return None
    name, training = pod.metadata.name, training_of(pod)
    ended = last_end(training) if training is not None else None
    at = ended.finished_at if ended is not None else None
    if pod.status.phase == "Failed" and pod.status.reason == DEADLINE_EXCEEDED:
        return Verdict(failed=f"Pod {name}: its own activeDeadlineSeconds are exceeded", at=at)
    if ended is None or ended.exit_code == 0 or not is_permanent(ended):
        return None
    return Verdict(failed=f"Pod {name}: {_exit_of(ended)}", at=at)


def _exit_of(ended: ContainerStateTerminated) -> str:
    """Return how the training ended: code, reason, and the end of its termination message."""
    reason = f" ({quoted(ended.reason)})" if ended.reason not in {"", "Error"} else ""
    words = last_words(ended.message)
    return f"container {CONTAINER_NAME} exited with code {ended.exit_code}{reason}{f': {words}' if words else ''}"


_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_LENGTH: Final = 4
_MOST: Final = 1_000
"""How many ids are derived for one job before the first one comes again: a namespace never has so many of them taken."""


def derived(uid: str, attempt: int = 0) -> str:
    """Return the four characters that a job of this UID tries as its RuntimeId, the first time or a later one."""
    number = int.from_bytes(sha256(f"{uid} {attempt}".encode()).digest()[:8], "big")
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)


def following(uid: str, taken: str) -> str:
    """Return the RuntimeId to try after this one, whose names other objects have."""
    ids = _distinct(uid)
    if any(each == taken for each in ids):  # what is left of them are those that come after it
        return next(ids, derived(uid))
    return derived(uid)


def _distinct(uid: str) -> Iterator[str]:
    """Yield the RuntimeIds of a job, each of them once: an id that came twice would lead back to the one after it."""
    seen: set[str] = set()
    for attempt in range(_MOST):
        found = derived(uid, attempt)
        if found not in seen:
            seen.add(found)
            yield found
