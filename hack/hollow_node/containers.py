"""The life of one container, pure: waiting -> running -> terminated -> (back-off) -> running ...

In: the container's status, what its pod's script and policies say, the time. Out: the status after at most one transition,
and when to look again. One transition at a time, so that each state is seen by those who watch the pod, as with a real kubelet.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from hack.hollow_node.objects import (
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    HollowPod,
    Running,
    Terminated,
    Waiting,
)
from hack.hollow_node.restarts import RESTARTING_ALL, After, after
from hack.hollow_node.script import (
    SIGKILL_EXIT,
    START_ERROR,
    START_ERROR_EXIT,
    STATUS_UNKNOWN,
    Behaviour,
    Outcome,
    Run,
)
from hack.hollow_node.timing import Timing
from hack.kubernetes_versions import EXIT_CODES_SURVIVE_DELETION, Kubernetes

CREATING = "ContainerCreating"
INITIALIZING = "PodInitializing"
CRASH_LOOP = "CrashLoopBackOff"
NOT_STARTED = "RunContainerError"


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides about the containers of a pod besides their statuses."""

    pod: HollowPod
    script: Behaviour
    timing: Timing
    kubernetes: Kubernetes

    def after(self, status: ContainerStatus, end: Terminated) -> After:
        """Return what follows this end of a container."""
        spec, init = self._spec_of(status.name)
        return after(end, spec, self.pod.spec.restart_policy, self.kubernetes, init=init)

    def is_final(self, status: ContainerStatus) -> bool:
        """Whether the container has ended for good."""
        end = last_end(status)
        return end is not None and self.after(status, end) is After.NOTHING

    def _spec_of(self, name: str) -> tuple[ContainerSpec, bool]:
        for spec in self.pod.spec.containers:
            if spec.name == name:
                return spec, False
        return next(spec for spec in self.pod.spec.init_containers or () if spec.name == name), True


def fresh(spec: ContainerSpec, reason: str) -> ContainerStatus:
    """Return the status of a container that has never started."""
    return ContainerStatus(name=spec.name, image=spec.image, state=ContainerState(waiting=Waiting(reason=reason)))


def last_end(status: ContainerStatus) -> Terminated | None:
    """Return how the container's last finished run ended, also while it waits to run again; None if it runs or never ended."""
    return status.state.terminated or (None if status.state.running else status.last_state.terminated)


def waits_for(status: ContainerStatus) -> str:
    """Return the reason for which a container waits, "" if it does not wait."""
    return status.state.waiting.reason if status.state.waiting is not None else ""


def current_run(script: Behaviour, status: ContainerStatus) -> Run:
    """Return the script's entry for the run that is going on."""
    return script.run(status.name, status.restart_count)


def end_of(running: Running, run: Run) -> datetime | None:
    """When a run is over by itself; None: never."""
    return None if math.isinf(run.lasts) else running.started_at + timedelta(seconds=run.lasts)


def advance_container(status: ContainerStatus, rules: Rules, now: datetime) -> tuple[ContainerStatus, datetime | None]:
    """Make the next transition if it is due. What happens to the whole pod is left to `disruptions`."""
    if status.state.running is not None:
        run = current_run(rules.script, status)
        end = end_of(status.state.running, run)
        if end is None or now < end or run.outcome is not Outcome.EXIT:
            return status, end
        ended = terminate(status, run.exit_code, end, run.reason)
        return ended, None if rules.is_final(ended) else now
    previous = last_end(status)
    if previous is None:
        return _start(status, rules, None, now)
    if rules.after(status, previous) is not After.RESTART:
        return status, None
    delay = _restart_delay(status, previous, rules.timing)
    finished = previous.finished_at or now
    due, told = (finished + timedelta(seconds=seconds) for seconds in (delay, rules.timing.back_off_told))
    if now >= due:
        return _start(status, rules, previous, now)
    if now < told or waits_for(status) == CRASH_LOOP:
        return status, min(due, told) if now < told else due
    message = f"back-off {delay:g}s restarting failed container={status.name}"
    return wait(status, CRASH_LOOP, message, previous), due


def _restart_delay(status: ContainerStatus, previous: Terminated, timing: Timing) -> float:
    """Return the seconds between an end and the next start; a restart of all containers has no back-off."""
    if previous.reason == RESTARTING_ALL:
        return 0.0
    lasted = 0.0
    if previous.finished_at is not None and previous.started_at is not None:
        lasted = (previous.finished_at - previous.started_at).total_seconds()
    return timing.restart_delay(status.restart_count, lasted)


def terminate(status: ContainerStatus, exit_code: int, finished: datetime, reason: str = "") -> ContainerStatus:
    """End the run that is going on, if there is one."""
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


def unknown_end(when: str) -> Terminated:
    """Return the end that a kubelet reports for a container that it could not find when the pod was `when`."""
    message = f"The container could not be located when the pod was {when}"
    return Terminated(exit_code=SIGKILL_EXIT, reason=STATUS_UNKNOWN, message=message)


def call_unknown(status: ContainerStatus) -> ContainerStatus:
    """Report a container as terminated although nothing is known of its end."""
    state = ContainerState(terminated=unknown_end("terminated"))
    return replace(status, ready=False, started=False, state=state)


def lose(status: ContainerStatus, kubernetes: Kubernetes) -> ContainerStatus:
    """End a container without being able to say how. Before 1.27 it then seems not to have been created yet."""
    if kubernetes.has(EXIT_CODES_SURVIVE_DELETION):
        return call_unknown(status)
    lost = wait(status, CREATING, "", unknown_end("deleted"))
    return replace(lost, ready=False, started=False)


def restart_with_all(status: ContainerStatus, now: datetime) -> ContainerStatus:
    """Stop a container for a restart of all. Its own exit code, if it had one, is not kept. If it never ran, do nothing."""
    run = status.state.running or last_end(status)
    if run is None:
        return status
    end = Terminated(exit_code=SIGKILL_EXIT, reason=RESTARTING_ALL, started_at=run.started_at, finished_at=now)
    status = replace(status, ready=False, started=False, restart_count=status.restart_count + 1)
    return wait(status, RESTARTING_ALL, "", end)


def wait(status: ContainerStatus, reason: str, message: str, previous: Terminated | None) -> ContainerStatus:
    """Let a container wait, after its previous run if there was one."""
    waiting = ContainerState(waiting=Waiting(reason=reason, message=message))
    return replace(status, state=waiting, last_state=ContainerState(terminated=previous))


def _start(
    status: ContainerStatus, rules: Rules, previous: Terminated | None, now: datetime
) -> tuple[ContainerStatus, datetime | None]:
    """Run the container, or say why it does not start."""
    counted = previous is None or previous.reason == RESTARTING_ALL  # `restart_with_all` has counted already
    restart_count = status.restart_count if counted else status.restart_count + 1
    run = rules.script.run(status.name, restart_count)
    match run.outcome:
        case Outcome.NEVER_START | Outcome.REJECTED:  # a kubelet does not reject a pod that it has admitted
            return wait(status, CREATING, "", previous), None
        case Outcome.IMAGE_PULL_BACK_OFF:
            return wait(status, "ImagePullBackOff", f'Back-off pulling image "{status.image}"', previous), None
        case Outcome.WAITING:
            return wait(status, run.reason, "", previous), None
        case Outcome.CONFIG_ERROR:
            return wait(status, "CreateContainerConfigError", run.message, previous), None
    running = Running(started_at=now)
    started = replace(
        status,
        image_id=f"{status.image}@sha256:{_digest(status.image)}",
        container_id=f"containerd://{_digest(f'{rules.pod.metadata.uid}/{status.name}/{restart_count}')}",
        ready=True,
        started=True,
        restart_count=restart_count,
        state=ContainerState(running=running),
        last_state=ContainerState(terminated=previous),
    )
    if run.outcome is Outcome.START_ERROR:
        return _fail_to_start(started, rules, now)
    return started, end_of(running, run)


def _fail_to_start(status: ContainerStatus, rules: Rules, now: datetime) -> tuple[ContainerStatus, datetime | None]:
    """Return what the runtime reports when there is no such program: a container that has ended and never ran."""
    ended = terminate(status, START_ERROR_EXIT, now, START_ERROR)
    if rules.is_final(ended):
        return ended, None
    message = "failed to create containerd task: exec: no such file or directory"
    return wait(ended, NOT_STARTED, message, ended.state.terminated), now


def _digest(text: str) -> str:
    """Return 64 hexadecimal digits as a container runtime shows them, always the same for the same text."""
    return hashlib.sha256(text.encode()).hexdigest()
