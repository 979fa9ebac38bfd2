"""Why a replica failed, for the last condition of its job: pod, container, exit code, reason, termination message. Pure.

The pod may be gone when the message is read, and its log with it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.text import last_words, quoted
from tfjob_operator.api.v1.names import child_name
from tfjob_operator.controller.jobs.pod_end import DISRUPTION_TARGET

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfjob_operator.api.core import ContainerStateTerminated, ContainerStatus
    from tfjob_operator.api.v1.types import IndexRestarts
    from tfjob_operator.controller.jobs.children import Pod
    from tfjob_operator.controller.tfjob.decide.replicas import Replica

_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_SAYS_NOTHING: Final = frozenset({"", "Error"})
"""Reasons of a container by which a kubelet says no more than that its exit code is not 0."""
_WORDS_OF_THE_CLUSTER: Final = 200
"""Bytes of a message about the pod as a whole, such as an eviction's."""


def first_failure(lost: Sequence[Replica]) -> str:
    """Return a sentence about the replica that ended first or, where pods have no times, has the lowest index."""
    first = min(lost, key=lambda replica: (_pod_ended_at(replica.pod), replica.index))
    who = "Pod" if len(lost) == 1 else "The first was pod"
    return f"{who} {first.pod.metadata.name}: {cause_of(first.pod, first.ended)}"


def cause_of(pod: Pod, training: ContainerStateTerminated | None) -> str:
    """Return why this pod failed. `training` is how its training container ended, where the pod says so."""
    words = []
    if taken := _as_a_whole(pod):
        words.append(taken)
    if failed := _failed_container(pod):
        words.append(_exit_of(*failed))
    elif training is not None:
        words.append(f"its training exited with code {training.exit_code}")
    return "; ".join(words) or "its kubelet tells of no container"


def most_restarts(job: str, records: Iterable[IndexRestarts], replicas: Iterable[Replica]) -> str:
    """Return a sentence about the replica that was restarted most, and how it ended last, if its pod still shows it."""
    record = max(records, key=lambda each: (each.total, -each.index))
    pod = next((replica.pod for replica in replicas if replica.pod.metadata.uid == record.pod), None)
    times = "once" if record.total == 1 else f"{record.total} times"
    told = f"Pod {child_name(job, record.type, record.index)} was restarted most, {times}"
    last = _last_exit(pod) if pod is not None else ""
    return f"{told}; last, {last}" if last else told


def _as_a_whole(pod: Pod) -> str:
    """Return what ended the pod and not one of its containers: its deadline, an eviction, a lost node."""
    status = pod.status
    if status.reason:
        return _with_words(quoted(status.reason), status.message)
    for condition in status.conditions or ():
        if condition.type == DISRUPTION_TARGET and condition.status == "True":
            return _with_words(quoted(condition.reason) or DISRUPTION_TARGET, condition.message)
    return ""


def _with_words(reason: str, message: str) -> str:
    words = last_words(message, _WORDS_OF_THE_CLUSTER)
    return f"{reason} ({words})" if words else reason


def _statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    return (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))


def _failed_container(pod: Pod) -> tuple[str, ContainerStateTerminated] | None:
    """Return the container that failed first: later ones may have failed because the pod was being terminated."""
    failed = [
        (status.name, status.state.terminated)
        for status in _statuses(pod)
        if status.state.terminated is not None and status.state.terminated.exit_code != 0
    ]
    return min(failed, key=lambda each: each[1].finished_at or _NEVER, default=None)


def _last_exit(pod: Pod) -> str:
    """Return how the container ended that its kubelet restarted most, or that made the pod fail."""
    if failed := _failed_container(pod):
        return _exit_of(*failed)
    restarted = [each for each in _statuses(pod) if each.last_state is not None and each.last_state.terminated]
    most = max(restarted, key=lambda each: each.restart_count, default=None)
    if most is None or most.last_state is None or most.last_state.terminated is None:
        return _as_a_whole(pod)
    return _exit_of(most.name, most.last_state.terminated)


def _exit_of(container: str, ended: ContainerStateTerminated) -> str:
    reason = "" if ended.reason in _SAYS_NOTHING else f" ({quoted(ended.reason)})"
    words = last_words(ended.message)
    return f"container {container} exited with code {ended.exit_code}{reason}{': ' if words else ''}{words}"


def _pod_ended_at(pod: Pod) -> datetime:
    ends = [each.state.terminated.finished_at for each in _statuses(pod) if each.state.terminated is not None]
    return max((end for end in ends if end is not None), default=_NEVER)
