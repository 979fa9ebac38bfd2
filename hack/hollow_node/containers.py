"""The life cycle of one container: waiting -> running -> terminated -> (back-off) -> running ... Pure.

It takes the container's status, the pod's script and policies, and the time. It computes the status after at most one
transition, and when to look again. Like a real kubelet it makes one transition at a time, so watches see each state.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, Self

from msgspec.structs import replace

from hack.hollow_node.objects import (
    ALWAYS,
    FAILED,
    NEVER,
    ON_FAILURE,
    PENDING,
    RUNNING,
    SUCCEEDED,
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    HollowPod,
    HollowStatus,
    RestartRule,
    Running,
    Terminated,
    Waiting,
)
from hack.hollow_node.script import (
    SIGKILL_EXIT,
    START_ERROR,
    START_ERROR_EXIT,
    STATUS_UNKNOWN,
    Behaviour,
    Outcome,
    Run,
    Timing,
)
from hack.kubernetes_versions import (
    CONTAINER_RESTART_RULES,
    EXIT_CODES_SURVIVE_DELETION,
    NATIVE_SIDECARS,
    RESTART_ALL_CONTAINERS,
    Kubernetes,
)

# What follows the end of a container: nothing, another run of it, or a restart of all containers of its pod. Pure.
#
# It depends on the container's spec, the pod's policy, the end of the run, and the version of Kubernetes.


RESTARTING_ALL: Final = "RestartingAllContainers"
"""The reason of an end that was caused by another container's rule, in `state.waiting` and in `lastState`."""


class After(Enum):
    """What the kubelet does after the end of a container."""

    NOTHING = "nothing"
    RESTART = "restart"
    RESTART_ALL = "restart all containers"


def is_sidecar(init: ContainerSpec, kubernetes: Kubernetes) -> bool:
    """Whether an init container is a native sidecar. Older kubelets wait for such a container to end."""
    return init.restart_policy == ALWAYS and kubernetes.has(NATIVE_SIDECARS)


def may_restart_all(container: ContainerSpec, kubernetes: Kubernetes) -> bool:
    """Whether any exit of this container can restart all containers of the pod."""
    return kubernetes.has(RESTART_ALL_CONTAINERS) and any(
        rule.action == "RestartAllContainers" for rule in container.restart_policy_rules
    )


def after(end: Terminated, container: ContainerSpec, pod_policy: str, kubernetes: Kubernetes, *, init: bool) -> After:
    """Decide what follows an end: by the container's first matching rule, else by its own policy, else by the pod's."""
    if end.reason == RESTARTING_ALL:
        return After.RESTART
    policy = pod_policy
    if kubernetes.has(CONTAINER_RESTART_RULES):
        for rule in container.restart_policy_rules:
            if _matches(rule, end.exit_code):
                everything = rule.action == "RestartAllContainers" and kubernetes.has(RESTART_ALL_CONTAINERS)
                return After.RESTART_ALL if everything else After.RESTART
        policy = container.restart_policy or pod_policy
    if init and is_sidecar(container, kubernetes):
        return After.RESTART
    if policy == NEVER:
        return After.NOTHING
    if policy == ON_FAILURE or init:  # an init container that succeeded is not run again
        return After.RESTART if end.exit_code else After.NOTHING
    return After.RESTART


def _matches(rule: RestartRule, exit_code: int) -> bool:
    return (exit_code in rule.exit_codes.values) == (rule.exit_codes.operator == "In")


CREATING = "ContainerCreating"
INITIALIZING = "PodInitializing"
CRASH_LOOP = "CrashLoopBackOff"
NOT_STARTED = "RunContainerError"


@dataclass(frozen=True, slots=True)
class Rules:
    """The inputs of decisions about the containers of a pod, besides their statuses."""

    pod: HollowPod
    script: Behaviour
    timing: Timing
    kubernetes: Kubernetes

    def after(self, status: ContainerStatus, end: Terminated) -> After:
        """Return what follows when a container has ended like this."""
        spec, init = self._spec_of(status.name)
        return after(end, spec, self.pod.spec.restart_policy, self.kubernetes, init=init)

    def is_final(self, status: ContainerStatus) -> bool:
        """Whether the container has ended and will not be restarted."""
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
    """Return the end of the container's last run, also during back-off; None if it is running or never ended."""
    return status.state.terminated or (None if status.state.running else status.last_state.terminated)


def waits_for(status: ContainerStatus) -> str:
    """Return the reason why a container waits, "" if it does not wait."""
    return status.state.waiting.reason if status.state.waiting is not None else ""


def current_run(script: Behaviour, status: ContainerStatus) -> Run:
    """Return the script's entry for the current run."""
    return script.run(status.name, status.restart_count)


def end_of(running: Running, run: Run) -> datetime | None:
    """When the run ends without a stop; None: never."""
    return None if math.isinf(run.lasts) else running.started_at + timedelta(seconds=run.lasts)


def advance_container(status: ContainerStatus, rules: Rules, now: datetime) -> tuple[ContainerStatus, datetime | None]:
    """Make the next transition if it is due. Disruptions of the whole pod are handled in `lifecycle`."""
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
    """End the current run, if there is one."""
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
    """Return the end that a kubelet reports for a container it did not find; `when` is a word such as terminated."""
    message = f"The container could not be located when the pod was {when}"
    return Terminated(exit_code=SIGKILL_EXIT, reason=STATUS_UNKNOWN, message=message)


def call_unknown(status: ContainerStatus) -> ContainerStatus:
    """Report a container as terminated although nothing is known of its end."""
    state = ContainerState(terminated=unknown_end("terminated"))
    return replace(status, ready=False, started=False, state=state)


def lose(status: ContainerStatus, kubernetes: Kubernetes) -> ContainerStatus:
    """End a container with an unknown result. Kubelets before 1.27 then report it as not created yet."""
    if kubernetes.has(EXIT_CODES_SURVIVE_DELETION):
        return call_unknown(status)
    lost = wait(status, CREATING, "", unknown_end("deleted"))
    return replace(lost, ready=False, started=False)


def restart_with_all(status: ContainerStatus, now: datetime) -> ContainerStatus:
    """Stop a container for a restart of all containers. Its own exit code is lost. If it never ran, do nothing."""
    run = status.state.running or last_end(status)
    if run is None:
        return status
    end = Terminated(exit_code=SIGKILL_EXIT, reason=RESTARTING_ALL, started_at=run.started_at, finished_at=now)
    status = replace(status, ready=False, started=False, restart_count=status.restart_count + 1)
    return wait(status, RESTARTING_ALL, "", end)


def wait(status: ContainerStatus, reason: str, message: str, previous: Terminated | None) -> ContainerStatus:
    """Set a container to waiting, with the end of its previous run, if any, as its last state."""
    waiting = ContainerState(waiting=Waiting(reason=reason, message=message))
    return replace(status, state=waiting, last_state=ContainerState(terminated=previous))


def _start(
    status: ContainerStatus, rules: Rules, previous: Terminated | None, now: datetime
) -> tuple[ContainerStatus, datetime | None]:
    """Run the container, or report why it does not start."""
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
    """Return the status for a missing program: the container has ended without running."""
    ended = terminate(status, START_ERROR_EXIT, now, START_ERROR)
    if rules.is_final(ended):
        return ended, None
    message = "failed to create containerd task: exec: no such file or directory"
    return wait(ended, NOT_STARTED, message, ended.state.terminated), now


def _digest(text: str) -> str:
    """Return a container ID, 64 hexadecimal digits, which depends only on the text."""
    return hashlib.sha256(text.encode()).hexdigest()


# The containers of one pod: their order of start, and the phase of the pod. Pure.
#
# Native sidecars are init containers that keep running: the next container starts when a sidecar runs.


@dataclass(slots=True)
class PodContainers:
    """A pod's container statuses while a step changes them, and the earliest moment to look again."""

    rules: Rules
    inits: list[ContainerStatus]
    mains: list[ContainerStatus]
    sidecars: frozenset[str]
    look_at: datetime | None = None

    @classmethod
    def of(cls, rules: Rules, status: HollowStatus) -> Self:
        """Return the statuses in the order of the spec; a container without a status gets its initial status."""
        known = {c.name: c for c in (*(status.init_container_statuses or ()), *(status.container_statuses or ()))}
        inits = rules.pod.spec.init_containers or []
        first = INITIALIZING if inits else CREATING
        return cls(
            rules,
            [known.get(spec.name) or fresh(spec, INITIALIZING) for spec in inits],
            [known.get(spec.name) or fresh(spec, first) for spec in rules.pod.spec.containers],
            frozenset(spec.name for spec in inits if is_sidecar(spec, rules.kubernetes)),
        )

    def look(self, at: datetime | None) -> None:
        """Look again at this moment, if not before."""
        if at is not None and (self.look_at is None or at < self.look_at):
            self.look_at = at

    def all(self) -> list[ContainerStatus]:
        """All statuses."""
        return [*self.inits, *self.mains]

    def running_sidecars(self) -> bool:
        """Whether a native sidecar runs."""
        return any(c.state.running is not None for c in self.inits if c.name in self.sidecars)

    def nothing_began(self) -> bool:
        """Whether no container ever started."""
        return all(c.state.running is None and last_end(c) is None for c in self.all())

    def incomplete_inits(self) -> list[str]:
        """Return the init containers that ordinary containers wait for; none, once an ordinary container has run."""
        if any(c.state.running is not None or last_end(c) is not None for c in self.mains):
            return []
        return [c.name for c in self.inits if not self.lets_others_start(c)]

    def lets_others_start(self, init: ContainerStatus) -> bool:
        """Whether the containers after an init container may start: it is done, or a native sidecar that started once."""
        if init.name not in self.sidecars:
            return is_done(init)
        end = last_end(init)
        return init.state.running is not None or (end is not None and end.reason != RESTARTING_ALL)

    def outcome(self) -> str | None:
        """Return the final phase of the pod, ignoring native sidecars; None if the other containers have not ended."""
        for init in self.inits:
            if init.name not in self.sidecars and not is_done(init) and self.rules.is_final(init):
                return FAILED
        if not all(self.rules.is_final(c) for c in self.mains):
            return None
        return ended_phase(self.mains)

    def is_over(self) -> bool:
        """Whether all containers have ended, and therefore the pod."""
        return self.outcome() is not None and not self.running_sidecars()

    def last_finish(self) -> datetime | None:
        """When the last container ended."""
        ends = [c.state.terminated.finished_at for c in self.all() if c.state.terminated is not None]
        return max((end for end in ends if end is not None), default=None)

    def restart_all(self) -> bool | None:
        """Whether a rule now requires a restart of all containers; None if no container has such a rule."""
        spec = self.rules.pod.spec
        specs = (*spec.containers, *(spec.init_containers or ()))
        if not any(may_restart_all(container, self.rules.kubernetes) for container in specs):
            return None
        return self._trigger() is not None

    def phase(self, before: str) -> str:
        """Return the phase of a pod that has not ended."""
        if any(waits_for(c) == RESTARTING_ALL for c in self.all()):
            return before
        if any(not is_done(c) for c in self.inits if c.name not in self.sidecars):
            return PENDING
        ends = [last_end(c) for c in self.mains]
        if any(end is None and c.state.running is None for end, c in zip(ends, self.mains, strict=True)):
            return PENDING
        return RUNNING

    def advance(self, now: datetime) -> None:
        """Make the next transition of each container: init containers in their order, then all others together."""
        if self._restart_all(now):
            return
        for index, init in enumerate(self.inits):
            let = self.lets_others_start(init)
            if let and init.name not in self.sidecars:
                continue
            self.inits[index], look = advance_container(init, self.rules, now)
            self.look(look)
            if not let:
                self._wait_for_inits(index)
                if self.lets_others_start(self.inits[index]):
                    self.look(now)
                return
        for index, status in enumerate(self.mains):
            self.mains[index], look = advance_container(status, self.rules, now)
            self.look(look)

    def end_by_themselves(self, now: datetime) -> None:
        """End the runs that are over by now; start nothing."""
        for group in (self.inits, self.mains):
            for index, status in enumerate(group):
                if status.state.running is not None:
                    group[index], _ = advance_container(status, self.rules, now)

    def _trigger(self) -> ContainerStatus | None:
        for status in self.all():
            end = status.state.terminated
            if end is not None and self.rules.after(status, end) is After.RESTART_ALL:
                return status
        return None

    def _restart_all(self, now: datetime) -> bool:
        """Stop all containers if a rule requires it, after the grace period of those that still run."""
        trigger = self._trigger()
        if trigger is None or trigger.state.terminated is None:
            return False
        due = trigger.state.terminated.finished_at or now
        running = [c.name for c in self.all() if c.state.running is not None]
        if running:
            grace = self.rules.pod.spec.termination_grace_period_seconds
            due += timedelta(seconds=min(grace, max(self.rules.script.stop(name).lasts for name in running)))
        if now < due:
            self.look(due)
            return True
        self.inits = [restart_with_all(c, now) for c in self.inits]
        self.mains = [restart_with_all(c, now) for c in self.mains]
        self.look(now)
        return True

    def _wait_for_inits(self, index: int) -> None:
        """After a restart of all containers, let the later containers wait again for the init container at `index`."""
        for group, start in ((self.inits, index + 1), (self.mains, 0)):
            for number, status in enumerate(group[start:], start):
                if waits_for(status) == RESTARTING_ALL:
                    group[number] = wait(status, INITIALIZING, "", status.last_state.terminated)

    def readied(self) -> list[ContainerStatus] | None:
        """Return the init containers' statuses as reported: ready means done or, for a native sidecar, running."""
        return [c if c.name in self.sidecars else replace(c, ready=is_done(c)) for c in self.inits] or None


def ended_phase(mains: Iterable[ContainerStatus]) -> str:
    """Return the phase of a pod whose ordinary containers have ended for good."""
    return SUCCEEDED if all(map(is_done, mains)) else FAILED


def is_done(status: ContainerStatus) -> bool:
    """Whether a container has ended with success."""
    return status.state.terminated is not None and status.state.terminated.exit_code == 0
