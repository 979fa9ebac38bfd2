"""How one replica stands, as the page shows it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tfjob_operator.api.core import IMAGE_REASONS
from tfjob_operator.api.text import clean
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.cli.diagnosis.pods import condition_of, statuses

if TYPE_CHECKING:
    from datetime import datetime

    from tfjob_operator.cli.diagnosis.objects import ContainerStatus, Pod

MAX_WORDS: Final = 600
"""How many bytes of a message a table shows: the rest is in the events."""
BAD_WAITS: Final = IMAGE_REASONS | {
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
}
"""The reasons of a waiting container that will not start without help."""


def place_of(pod: Pod) -> tuple[str, int]:
    """Return the replica type and index of a pod, as its labels say; ("", 0) for labels that were edited away."""
    labels = pod.metadata.labels or {}
    kind = labels.get(c.LABEL_PREFIX + c.LABEL_REPLICA_TYPE) or labels.get("job_type", "")
    index = labels.get(c.LABEL_PREFIX + c.LABEL_REPLICA_INDEX) or labels.get("task_index", "")
    names = {each.lower(): each for each in c.REPLICA_TYPES}
    return names.get(kind.lower(), kind), int(index) if index.isdecimal() and len(index) < 7 else 0


def is_ready(pod: Pod) -> bool:
    """Return whether a pod runs, is ready, and is not being deleted."""
    ready = condition_of(pod.status.conditions, "Ready")
    return pod.status.phase == "Running" and ready is not None and ready.status == "True" and not _goes(pod)


def trouble_of(pod: Pod) -> str:
    """Return in one word why a pod is not as it should be, "" where it is."""
    if pod.status.phase == "Succeeded" or _goes(pod):
        return ""
    for status in statuses(pod):
        waiting = status.state.waiting if status.state is not None else None
        if waiting is not None and waiting.reason in BAD_WAITS:
            return waiting.reason
    if pod.status.phase == "Failed":
        ended = _training_end(pod)
        return pod.status.reason or (f"exit code {ended}" if ended else "Failed")
    scheduled = condition_of(pod.status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return scheduled.reason or "Unschedulable"
    return ""


def replica_view(pod: Pod, restarts: int) -> dict[str, Any]:
    """Return what the table of replicas shows of one pod. `restarts` are those of its replica, of all its pods."""
    kind, index = place_of(pod)
    main = main_status(pod)
    running = main.state.running if main is not None and main.state is not None else None
    word, exit_code, ended, message = _state(pod, main)
    return {
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
        "type": kind,
        "index": index,
        "state": word,
        "ready": is_ready(pod),
        "trouble": trouble_of(pod),
        "node": pod.spec.node_name,
        "restarts": restarts,
        "exit": exit_code,
        "created": seconds(pod.metadata.creation_timestamp),
        "started": seconds(running.started_at if running is not None else pod.status.start_time),
        "ended": seconds(ended),
        "message": clean(message, MAX_WORDS),
        "containers": [each.name for each in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))],
        "inPlace": main.restart_count if main is not None else 0,
    }


def missing_view(name: str, kind: str, index: int, *, done: bool, restarts: int) -> dict[str, Any]:
    """Return what the table shows of a replica without a pod: it has ended and was cleaned up, or is still to come."""
    return {
        "name": name,
        "uid": "",
        "type": kind,
        "index": index,
        "state": "Succeeded" if done else "No pod",
        "ready": False,
        "trouble": "",
        "node": "",
        "restarts": restarts,
        "exit": 0 if done else None,
        "created": None,
        "started": None,
        "ended": None,
        "message": "",
        "containers": [],
        "inPlace": 0,
    }


def main_status(pod: Pod) -> ContainerStatus | None:
    """Return the status of the container that trains, or of the first one."""
    found = pod.status.container_statuses or ()
    return next((each for each in found if each.name == c.CONTAINER_NAME), found[0] if found else None)


def seconds(then: datetime | None) -> float | None:
    """Return a time as browsers count it, in seconds since 1970."""
    return None if then is None else round(then.timestamp(), 3)


def _state(pod: Pod, main: ContainerStatus | None) -> tuple[str, int | None, datetime | None, str]:
    """Return a word, an exit code, the end and the newest message of a pod."""
    state = main.state if main is not None else None
    last = main.last_state.terminated if main is not None and main.last_state is not None else None
    if state is not None and state.terminated is not None:
        over = state.terminated
        word = "Terminating" if _goes(pod) else pod.status.phase or "Ended"
        return word, over.exit_code, over.finished_at, over.message or pod.status.message or over.reason
    code = last.exit_code if last is not None else None
    if _goes(pod):
        return "Terminating", code, None, pod.status.message
    if state is not None and state.waiting is not None and state.waiting.reason:
        return state.waiting.reason, code, None, state.waiting.message or (last.message if last is not None else "")
    scheduled = condition_of(pod.status.conditions, "PodScheduled")
    if pod.status.phase != "Running" and scheduled is not None and scheduled.status == "False":
        return scheduled.reason or "Unschedulable", code, None, scheduled.message
    return pod.status.phase or "Pending", code, None, pod.status.message


def _training_end(pod: Pod) -> int | None:
    main = main_status(pod)
    over = main.state.terminated if main is not None and main.state is not None else None
    return over.exit_code if over is not None else None


def _goes(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None
