"""The containers of one pod together, pure: who starts after whom, and what phase they make of the pod.

Native sidecars are init containers whose end is not waited for: the containers after one start when it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from msgspec.structs import replace

from hack.hollow_node.containers import (
    CREATING,
    INITIALIZING,
    Rules,
    advance_container,
    fresh,
    last_end,
    restart_with_all,
    wait,
    waits_for,
)
from hack.hollow_node.objects import FAILED, PENDING, RUNNING, SUCCEEDED, ContainerStatus, HollowStatus
from hack.hollow_node.restarts import RESTARTING_ALL, After, is_sidecar, may_restart_all


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
        """Return the statuses so far, in the order of the spec; a container that has none yet gets its first one."""
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
        """Whether no container has ever started."""
        return all(c.state.running is None and last_end(c) is None for c in self.all())

    def incomplete_inits(self) -> list[str]:
        """Return the init containers for which the others wait; once one of those has run there are none."""
        if any(c.state.running is not None or last_end(c) is not None for c in self.mains):
            return []
        return [c.name for c in self.inits if not self.lets_others_start(c)]

    def lets_others_start(self, init: ContainerStatus) -> bool:
        """Whether an init container keeps nobody waiting: it is done, or a native sidecar that has come up once."""
        if init.name not in self.sidecars:
            return is_done(init)
        end = last_end(init)
        return init.state.running is not None or (end is not None and end.reason != RESTARTING_ALL)

    def outcome(self) -> str | None:
        """Return the phase with which the containers, except native sidecars, end the pod; None if they have not yet."""
        for init in self.inits:
            if init.name not in self.sidecars and not is_done(init) and self.rules.is_final(init):
                return FAILED
        if not all(self.rules.is_final(c) for c in self.mains):
            return None
        return ended_phase(self.mains)

    def is_over(self) -> bool:
        """Whether all containers have ended, and the pod with them."""
        return self.outcome() is not None and not self.running_sidecars()

    def last_finish(self) -> datetime | None:
        """When the last container ended."""
        ends = [c.state.terminated.finished_at for c in self.all() if c.state.terminated is not None]
        return max((end for end in ends if end is not None), default=None)

    def restart_all(self) -> bool | None:
        """Whether all containers are now to be restarted by a rule; None: no container has such a rule."""
        spec = self.rules.pod.spec
        specs = (*spec.containers, *(spec.init_containers or ()))
        if not any(may_restart_all(container, self.rules.kubernetes) for container in specs):
            return None
        return self._trigger() is not None

    def phase(self, before: str) -> str:
        """Return the phase of a pod that goes on."""
        if any(waits_for(c) == RESTARTING_ALL for c in self.all()):
            return before
        if any(not is_done(c) for c in self.inits if c.name not in self.sidecars):
            return PENDING
        ends = [last_end(c) for c in self.mains]
        if any(end is None and c.state.running is None for end, c in zip(ends, self.mains, strict=True)):
            return PENDING
        return RUNNING

    def advance(self, now: datetime) -> None:
        """Let each container make its next transition: init containers in their order, then all others at once."""
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
        """Take all containers down if a rule says so, once those that still run have been given their time to stop."""
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
        """Let the others, after a restart of all, wait for the init container at `index` as they did at first."""
        for group, start in ((self.inits, index + 1), (self.mains, 0)):
            for number, status in enumerate(group[start:], start):
                if waits_for(status) == RESTARTING_ALL:
                    group[number] = wait(status, INITIALIZING, "", status.last_state.terminated)

    def readied(self) -> list[ContainerStatus] | None:
        """Return the init containers' statuses as reported: ready means done, or running if it is a native sidecar."""
        return [c if c.name in self.sidecars else replace(c, ready=is_done(c)) for c in self.inits] or None


def ended_phase(mains: Iterable[ContainerStatus]) -> str:
    """Return the phase of a pod whose ordinary containers have ended for good."""
    return SUCCEEDED if all(map(is_done, mains)) else FAILED


def is_done(status: ContainerStatus) -> bool:
    """Whether a container has ended with success."""
    return status.state.terminated is not None and status.state.terminated.exit_code == 0
