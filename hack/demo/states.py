"""What a person calls the state of a job or a pod. Pure."""

from __future__ import annotations

from tfjob_operator.api.core import ContainerStatus
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.controller.jobs.children import Pod


def state_of_job(job: TFJob) -> str:
    """Return the last condition with its message, as the STATE column shows it; empty while there is none."""
    if not job.status.conditions:
        return ""
    last = job.status.conditions[-1]
    return f"{last.type:<11}{last.message}"


def state_of_pod(pod: Pod) -> str:
    """Return the phase with why containers wait, how they ended or how often they restarted; or that the pod is terminating."""
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    notes = [note for status in pod.status.container_statuses or () if (note := _note(status))]
    if pod.status.reason:
        notes.insert(0, pod.status.reason)
    return f"{pod.status.phase:<11}{', '.join(notes)}".rstrip()


def _note(status: ContainerStatus) -> str:
    state = status.state
    restarts = f"restart {status.restart_count}" if status.restart_count else ""
    if state.terminated is not None:
        return f"{status.name} exited with {state.terminated.exit_code}"
    if state.waiting is not None:
        return f"{status.name} waits: {state.waiting.reason}"
    return f"{status.name} {restarts}" if restarts else ""
