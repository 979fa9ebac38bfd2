"""The life of one container, pure: waiting -> running -> terminated -> (back-off) -> running ...

In: the container's spec and status, its script, the policy, the time. Out: the status after at most one transition, and when
to look again. One transition at a time, so that each state is seen by those who watch the pod, as with a real kubelet.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from hack.hollow_node.objects import (
    ALWAYS,
    ON_FAILURE,
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    Running,
    Terminated,
    Waiting,
)
from hack.hollow_node.script import SIGKILL_EXIT, Outcome, Run, Script
from hack.hollow_node.timing import Timing

CREATING = "ContainerCreating"
INITIALIZING = "PodInitializing"


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides about a container besides its status."""

    pod_uid: str
    script: Script
    policy: str
    timing: Timing


def init_policy(policy: str) -> str:
    """The policy of init containers: success is all that they are for, so it never makes them run again."""
    return ON_FAILURE if policy == ALWAYS else policy


def fresh(spec: ContainerSpec, reason: str) -> ContainerStatus:
    """The status of a container that has never started."""
    return ContainerStatus(name=spec.name, image=spec.image, state=ContainerState(waiting=Waiting(reason=reason)))


def last_end(status: ContainerStatus) -> Terminated | None:
    """How the container's latest finished run ended, also while it waits to run again."""
    return status.state.terminated or (None if status.state.running else status.last_state.terminated)


def restarts(policy: str, end: Terminated) -> bool:
    """Whether the pod's policy starts a container again that ended like this."""
    return policy == ALWAYS or (policy == ON_FAILURE and end.exit_code != 0)


def current_run(script: Script, status: ContainerStatus) -> Run:
    """What the run does that is going on."""
    return script.run(status.name, status.restart_count)


def end_of(running: Running, run: Run) -> datetime | None:
    """When a run is over by itself; None: never."""
    return None if math.isinf(run.lasts) else running.started_at + timedelta(seconds=run.lasts)


def advance_container(status: ContainerStatus, rules: Rules, now: datetime) -> tuple[ContainerStatus, datetime | None]:
    """Make the next transition if it is due. Eviction and the loss of the node are left to the pod."""
    if status.state.running is not None:
        run = current_run(rules.script, status)
        end = end_of(status.state.running, run)
        if end is None or now < end or run.outcome is not Outcome.EXIT:
            return status, end
        ended = terminate(status, run.exit_code, end, run.reason)
        return ended, now if ended.state.terminated and restarts(rules.policy, ended.state.terminated) else None
    previous = last_end(status)
    if previous is None:
        return _start(status, rules, None, now)
    if not restarts(rules.policy, previous):
        return status, None
    lasted = (previous.finished_at - previous.started_at).total_seconds()
    delay = rules.timing.restart_delay(status.restart_count, lasted)
    due = previous.finished_at + timedelta(seconds=delay)
    if now < due:
        message = f"back-off {delay:g}s restarting failed container={status.name}"
        return _wait(status, "CrashLoopBackOff", message, previous), due
    return _start(status, rules, previous, now)


def stop_container(
    status: ContainerStatus, script: Script, asked: datetime, deadline: datetime, now: datetime
) -> tuple[ContainerStatus, datetime | None]:
    """Let a container of a pod in deletion go on until it ends by itself, by SIGTERM or by SIGKILL, whichever is first."""
    if status.state.running is None:
        return status, None
    run, on_stop = current_run(script, status), script.on_stop
    ends = [(deadline, SIGKILL_EXIT, "")]
    if not math.isinf(on_stop.lasts):
        ends.append((asked + timedelta(seconds=on_stop.lasts), on_stop.exit_code, on_stop.reason))
    natural = end_of(status.state.running, run)
    if natural is not None and run.outcome is Outcome.EXIT:
        ends.append((natural, run.exit_code, run.reason))
    end, exit_code, reason = min(ends)
    if now < end:
        return status, end
    # A run that is stopped ends when we get to it, since the moment of a deletion has whole seconds and may precede its start.
    return terminate(status, exit_code, end if end == natural else now, reason), None


def terminate(status: ContainerStatus, exit_code: int, finished: datetime, reason: str = "") -> ContainerStatus:
    """End the run that is going on."""
    running = status.state.running
    if running is None:
        return status
    end = Terminated(
        exit_code=exit_code,
        reason=reason or ("Error" if exit_code else "Completed"),
        started_at=running.started_at,
        finished_at=finished,
        container_id=status.container_id,
    )
    return replace(status, ready=False, started=False, state=ContainerState(terminated=end))


def _start(
    status: ContainerStatus, rules: Rules, previous: Terminated | None, now: datetime
) -> tuple[ContainerStatus, datetime | None]:
    """Run the container, or say why it does not start."""
    restart_count = status.restart_count + 1 if previous else 0
    run = rules.script.run(status.name, restart_count)
    if run.outcome is Outcome.NEVER_START:
        return _wait(status, CREATING, "", previous), None
    if run.outcome is Outcome.IMAGE_PULL_BACK_OFF:
        return _wait(status, "ImagePullBackOff", f'Back-off pulling image "{status.image}"', previous), None
    if run.outcome is Outcome.CONFIG_ERROR:
        return _wait(status, "CreateContainerConfigError", run.message, previous), None
    running = Running(started_at=now)
    started = replace(
        status,
        image_id=f"{status.image}@sha256:{_digest(status.image)}",
        container_id=f"containerd://{_digest(f'{rules.pod_uid}/{status.name}/{restart_count}')}",
        ready=True,
        started=True,
        restart_count=restart_count,
        state=ContainerState(running=running),
        last_state=ContainerState(terminated=previous),
    )
    return started, end_of(running, run)


def _wait(status: ContainerStatus, reason: str, message: str, previous: Terminated | None) -> ContainerStatus:
    waiting = ContainerState(waiting=Waiting(reason=reason, message=message))
    return replace(status, state=waiting, last_state=ContainerState(terminated=previous))


def _digest(text: str) -> str:
    """64 hexadecimal digits as a container runtime shows them, the same ones whenever they are asked for."""
    return hashlib.sha256(text.encode()).hexdigest()
