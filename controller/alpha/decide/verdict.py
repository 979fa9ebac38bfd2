"""When a job of the alpha dialect runs, succeeds or fails: as its chief does, by the table of exit codes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfjob_operator.api.text import last_words, quoted
from tfjob_operator.api.v1.constants import CONTAINER_NAME
from tfjob_operator.controller.alpha.decide.observe import is_permanent, last_end, training_of
from tfjob_operator.controller.jobs.pod_end import DEADLINE_EXCEEDED, is_disrupted

if TYPE_CHECKING:
    from tfjob_operator.api.core import ContainerStateTerminated
    from tfjob_operator.controller.alpha.decide.observe import Replica
    from tfjob_operator.controller.jobs.children import Pod


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the chief means for the job. `failed` is why it has failed, or ""."""

    running: bool = False
    succeeded: bool = False
    failed: str = ""


def judge(chief: Replica | None) -> Verdict:
    """Decide about a job by its chief, which is None while it has no Job. Success is looked at first.

    What other replicas do is for the Job controller: they are started again and fail nothing.
    """
    if chief is None:
        return Verdict()
    if chief.has_succeeded:
        return Verdict(succeeded=True)
    if chief.job is not None and chief.failure is not None:
        given_up = chief.failure
        words = last_words(given_up.message)
        detail = f": {words}" if words else ""
        return Verdict(failed=f"Job {chief.job.metadata.name} has failed, {quoted(given_up.reason)}{detail}")
    failed = next(filter(None, map(_failure_of, chief.pods)), "")
    return Verdict(running=chief.is_active, failed=failed)


def _failure_of(pod: Pod) -> str:
    """Return why a pod of the chief fails the job, or "".

    Any of its pods does, since the Job controller may have made another one by now. A pod that is being deleted, or that
    the cluster took away, does not: the exit code after that says nothing about the process.
    """
    if pod.metadata.deletion_timestamp is not None or is_disrupted(pod):
        return ""
    name = pod.metadata.name
    if pod.status.phase == "Failed" and pod.status.reason == DEADLINE_EXCEEDED:
        return f"Pod {name}: its own activeDeadlineSeconds are over"
    training = training_of(pod)
    ended = last_end(training) if training is not None else None
    if ended is None or ended.exit_code == 0 or not is_permanent(ended):
        return ""
    return f"Pod {name}: {_exit_of(ended)}"


def _exit_of(ended: ContainerStateTerminated) -> str:
    """Return how the training ended: code, reason, and the end of its termination message."""
    reason = f" ({quoted(ended.reason)})" if ended.reason not in {"", "Error"} else ""
    words = last_words(ended.message)
    return f"container {CONTAINER_NAME} exited with code {ended.exit_code}{reason}{f': {words}' if words else ''}"
