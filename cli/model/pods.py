"""Derived states of pods: statuses of their containers, and how these terminated. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tfjob_operator.api.v1.constants import CONTAINER_NAME, LABEL_PREFIX, LABEL_REPLICA_TYPE
from tfjob_operator.api.v1alpha1.constants import LABEL_JOB_TYPE
from tfjob_operator.cli.model.objects import (
    ConditionDetails,
    ContainerDetails,
    ContainerStatusDetails,
    PodDetails,
    Terminated,
)
from tfjob_operator.cli.model.words import seconds_between

_SOON_S: Final = 600.0
"""A restart is resolved once the container has been running this long: the kubelet resets its back-off after ten minutes."""


_LOOP_S: Final = 10.0
"""The least time that a container runs before it is out of a crash loop. Stamps have whole seconds, and runs differ."""
_PROGRAMS: Final = frozenset(
    {"", "/bin", "/sbin", "/usr", "/usr/bin", "/usr/sbin", "/usr/local", "/usr/local/bin", "/opt"}
)
IN_IMAGE: Final = "in the image"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container terminated. `now` is False if it was restarted since."""

    pod: PodDetails
    container: str
    ended: Terminated
    now: bool
    restarts: int


def condition_of(found: Iterable[ConditionDetails] | None, kind: str) -> ConditionDetails | None:
    """Return the condition of this type, or None."""
    return next((condition for condition in found or () if condition.type == kind), None)


def statuses(pod: PodDetails) -> Iterator[ContainerStatusDetails]:
    """Yield the container statuses, init containers first."""
    yield from pod.status.init_container_statuses or ()
    yield from pod.status.container_statuses or ()


def is_up(pod: PodDetails) -> bool:
    """Return True if the training container is running. In CrashLoopBackOff the phase is also Running."""
    training = next((status for status in pod.status.container_statuses or () if status.name == CONTAINER_NAME), None)
    down = training is not None and training.state is not None and training.state.running is None
    return pod.status.phase == "Running" and not down


def lookup_location(pod: PodDetails, container: str) -> str:
    """Return where the program of a container was looked up, as words for a title."""
    spec = next((each for each in pod.spec.containers or () if each.name == container), ContainerDetails())
    if "PATH" in {variable.name for variable in spec.env or ()}:
        return "in PATH (PATH is set in env of the template)"
    hidden = _PROGRAMS & {mount.mount_path.rstrip("/") for mount in spec.volume_mounts or ()}
    return f"{IN_IMAGE} (a volume is mounted at {min(hidden)} and hides it)" if hidden else IN_IMAGE


def running_since(pod: PodDetails) -> datetime | None:
    """Return when the training container started, None if it is not running."""
    training = next((status for status in pod.status.container_statuses or () if status.name == CONTAINER_NAME), None)
    running = training.state.running if training is not None and training.state is not None else None
    return running.started_at if running is not None else None


def running_inits(pod: PodDetails) -> dict[str, datetime | None]:
    """Return the init containers for which a pod waits while they run, without native sidecars, and when they started."""
    native = {container.name for container in pod.spec.init_containers or () if container.restart_policy == "Always"}
    return {
        status.name: status.state.running.started_at
        for status in pod.status.init_container_statuses or ()
        if status.state is not None and status.state.running is not None and status.name not in native
    }


def is_training(pod: PodDetails) -> bool:
    """Return False for a parameter server, which logs nothing while it serves."""
    labels = pod.metadata.labels or {}
    kind = labels.get(LABEL_PREFIX + LABEL_REPLICA_TYPE) or labels.get(LABEL_JOB_TYPE, "")
    return kind.lower() != "ps"


def last_exit(status: ContainerStatusDetails) -> Terminated | None:
    """Return how a container last terminated before it was restarted, as `facts.last_exit` does for raw JSON."""
    last = status.last_state.terminated if status.last_state is not None else None
    return None if last is not None and last.exit_code == 0 and not status.restart_count else last


def has_started(pod: PodDetails) -> bool:
    """Return True if every regular container of the pod has run at least once."""
    containers = pod.status.container_statuses or ()
    return bool(containers) and all(
        container.state is not None
        and (container.state.running or container.state.terminated or container.restart_count > 0)
        for container in containers
    )


def exits_of(pod: PodDetails) -> Iterator[Exit]:
    """Yield the last failed exit of each container of the pod, that of the training container first.

    The kubelet also regards an init container as failed that lost a process to a lack of memory and exited with 0.
    """
    ordered = sorted(statuses(pod), key=lambda each: each.name != CONTAINER_NAME)
    inits = {container.name for container in pod.status.init_container_statuses or ()}
    for status in ordered:
        for state, is_current in ((status.state, True), (status.last_state, False)):
            ended = state.terminated if state is not None else None
            if ended is not None and (ended.exit_code != 0 or (ended.reason == "OOMKilled" and status.name in inits)):
                yield Exit(pod, status.name, ended, is_current, status.restart_count)
                break


def is_down_after(each: Exit, now: datetime) -> bool:
    """Return True if a container is down because of this exit: it has terminated for good, or waits to be restarted.

    A container with repeated `OOMKilled` counts as down for the first ten minutes of the next run, and one that crashed again
    and again until it has run clearly longer than the last time. A failed sidecar matters only if its pod failed.
    """
    pod = each.pod
    is_init = each.container in {status.name for status in pod.status.init_container_statuses or ()}
    if pod.metadata.deletion_timestamp is not None:
        return False
    if each.container != CONTAINER_NAME and not is_init and pod.status.phase != "Failed":
        return False
    if each.now:
        return True
    state = next((status.state for status in statuses(pod) if status.name == each.container), None)
    if state is None or state.waiting is not None:
        return state is not None
    since, ended = state.running.started_at if state.running is not None else None, each.ended
    if since is None or each.restarts < 2:
        return False
    lasted_s = _SOON_S
    if ended.reason != "OOMKilled":
        if ended.started_at is None or ended.finished_at is None:
            return False
        lasted_s = min(2 * seconds_between(ended.started_at, ended.finished_at) + _LOOP_S, _SOON_S)
    return seconds_between(since, now) < lasted_s
