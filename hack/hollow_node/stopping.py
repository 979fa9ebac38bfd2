"""When and how the containers end when a pod is stopped. Pure.

SIGTERM goes to all ordinary containers at once, and to native sidecars when those have ended; SIGKILL to whatever is left at
the deadline. A container that ends by itself before that keeps its own exit code. A kubelet reports nothing of it until the
last one has ended.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import NamedTuple

from hack.hollow_node.containers import current_run, end_of, lose, terminate
from hack.hollow_node.objects import ContainerStatus
from hack.hollow_node.pod_containers import PodContainers
from hack.hollow_node.script import SIGKILL_EXIT, STATUS_UNKNOWN, Outcome


class _End(NamedTuple):
    """How one container may end; the earliest of its possible ends happens."""

    at: datetime
    exit_code: int
    reason: str
    by_itself: bool


def stop(containers: PodContainers, asked: datetime, deadline: datetime, now: datetime) -> datetime | None:
    """End all running containers. If the last one ends later than now, change nothing and return when to call this again."""
    ends = _ends(containers, asked, deadline)
    if not ends:
        return None
    over = max(end.at for end in ends.values())
    if now < over:
        return over
    for group in (containers.inits, containers.mains):
        for index, status in enumerate(group):
            if status.name in ends:
                group[index] = _end(containers, status, ends[status.name], over, now)
    return None


def _ends(containers: PodContainers, asked: datetime, deadline: datetime) -> dict[str, _End]:
    """Return the ends of all running containers."""
    ends: dict[str, _End] = {}
    for status in containers.all():
        if status.name not in containers.sidecars:
            _add(ends, containers, status, asked, deadline)
    last = max((end.at for end in ends.values()), default=asked)
    for status in containers.inits:
        if status.name in containers.sidecars:
            _add(ends, containers, status, last, deadline)
    return ends


def _add(
    ends: dict[str, _End], containers: PodContainers, status: ContainerStatus, asked: datetime, deadline: datetime
) -> None:
    running = status.state.running
    if running is None:
        return
    run, on_stop = current_run(containers.rules.script, status), containers.rules.script.stop(status.name)
    possible = [_End(deadline, SIGKILL_EXIT, "", by_itself=False)]
    if not math.isinf(on_stop.lasts):
        stopped = asked + timedelta(seconds=on_stop.lasts)
        possible.append(_End(stopped, on_stop.exit_code, on_stop.reason, by_itself=False))
    natural = end_of(running, run)
    if natural is not None and run.outcome is Outcome.EXIT:
        possible.append(_End(natural, run.exit_code, run.reason, by_itself=True))
    ends[status.name] = min(possible)


def _end(
    containers: PodContainers, status: ContainerStatus, end: _End, over: datetime, now: datetime
) -> ContainerStatus:
    """End one container. The last one ends now: the deletion has a time in whole seconds, so the computed end is too early."""
    if end.reason == STATUS_UNKNOWN:
        return lose(status, containers.rules.kubernetes)
    started = status.state.running.started_at if status.state.running is not None else now
    finished = end.at if end.by_itself else now if end.at == over else max(end.at, started)
    return terminate(status, end.exit_code, finished, end.reason)
