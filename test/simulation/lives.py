"""What becomes of pods: the truth about each, and what its kubelet knows of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulation.restart_rules import After, after_exit, is_native_sidecar
from simulation.scripts import TENSORFLOW

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from simulation.model.storage import Body, Key
    from simulation.slots import Slot

State = dict[str, Any]
"""The state of a container as a pod's status shows it."""


class End(enum.Enum):
    """How the work of a pod ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DISRUPTED = "disrupted"


@dataclass(slots=True)
class Fate:
    """What is true of a pod, as far as the server was told. `leaving`: it was being deleted already when it ended.

    `in_place`: restarts that count (B37, M7). `over`: nothing of its own work runs or will run again, whatever its phase says.
    `orderly`: it was taken away, exited with 0, and its phase does not call that a failure. `fatal`: it failed, and it is its
    container's own policy that leaves it so.
    """

    uid: str
    owner: str
    slot: Slot
    runs: bool = False
    in_place: int = 0
    end: End | None = None
    exit_code: int | None = None
    ended_at: float = 0.0
    leaving: bool = False
    over: bool = False
    orderly: bool = False
    fatal: bool = False

    @property
    def counts(self) -> bool:
        """Whether this end is one of those that `backoffLimit` limits: the container's own doing, of its own accord."""
        return self.end is End.FAILED and not self.leaving


@dataclass(slots=True)
class Container:
    """A container, as its pod's status shows it. `last` is how it ended before it was started again."""

    name: str
    state: State
    last: State = field(default_factory=dict)
    restarts: int = 0

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return "running" in self.state

    @property
    def ended(self) -> State | None:
        """How it ended the last time; None while it runs, or when it has never run."""
        terminated = self.state.get("terminated") or ("waiting" in self.state and self.last.get("terminated"))
        return terminated or None

    @property
    def exit_code(self) -> int | None:
        """None while it has not ended, or while it waits to be started again."""
        terminated = self.state.get("terminated")
        return terminated["exitCode"] if terminated else None

    def start(self) -> None:
        """Let it run; if it has ended this is a restart."""
        if "terminated" in self.state:
            self.last = self.state
            self.restarts += 1
        elif self.state["waiting"]["reason"] == "CrashLoopBackOff":
            self.restarts += 1
        self.state = {"running": {"startedAt": None}}

    def wait(self, reason: str) -> None:
        """Let it wait to be started."""
        if "terminated" in self.state:
            self.last = self.state
        self.state = {"waiting": {"reason": reason}}

    @property
    def status(self) -> dict[str, Any]:
        """Its entry in the pod's status."""
        shown = {"name": self.name, "restartCount": self.restarts, "state": self.state}
        return shown | ({"lastState": self.last} if self.last else {})


@dataclass(slots=True)
class Life:
    """One pod on its way.

    Timers by the name of their step; `held`: the steps that wait for the node to come back. `truth`: how its work has ended,
    and the exit code, whether or not the server was told.
    """

    key: Key
    pod: Body
    fate: Fate
    node: str = ""
    containers: dict[str, Container] = field(default_factory=dict)
    inits: dict[str, Container] = field(default_factory=dict)
    timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    held: dict[str, Callable[[], object]] = field(default_factory=dict)
    truth: tuple[End, int | None] | None = None
    leaving: bool = False
    stopping: bool = False
    """Its containers were told to end."""
    done: bool = False
    """Nothing is left for a kubelet to do: a deletion needs no consent."""

    @property
    def everyone(self) -> list[Container]:
        """All containers."""
        return [*self.inits.values(), *self.containers.values()]

    @property
    def sidecars(self) -> list[Container]:
        """The native sidecars."""
        specs = self.pod["spec"].get("initContainers") or ()
        return [self.inits[each["name"]] for each in specs if is_native_sidecar(each) and each["name"] in self.inits]

    @property
    def has_started(self) -> bool:
        """Whether an ordinary container of it runs or has run."""
        return any(each.runs or each.ended for each in self.containers.values())

    @property
    def is_over(self) -> bool:
        """Whether all its ordinary containers have ended and none will be started again."""
        return bool(self.containers) and all(self._is_left(each) for each in self.containers.values())

    @property
    def statuses(self) -> dict[str, Any]:
        """What its status says of its containers."""
        shown = {
            "containerStatuses": [each.status for each in self.containers.values()],
            "initContainerStatuses": [each.status for each in self.inits.values()],
        }
        return {name: each for name, each in shown.items() if each}

    @property
    def phase(self) -> str:
        """The pod's phase, if its containers and restart policies decide it."""
        if not self._is_initialised():
            lost = [each for each in self.inits.values() if each.exit_code and self._is_left(each)]
            return "Failed" if lost else "Pending"
        if not self.has_started:
            return "Pending"
        if not self.is_over and not (self.stopping and self._was_lost()):
            return "Running"
        return self.final_phase

    @property
    def final_phase(self) -> str:
        """The phase when all its containers have ended, whatever the restart policies are."""
        ended = [each.ended for each in self.containers.values()]
        return "Failed" if any(each is None or each["exitCode"] for each in ended) else "Succeeded"

    @property
    def in_place(self) -> int:
        """The restarts in place that count; those of native sidecars do not where the pod asks for none (M7)."""
        spared = self.sidecars if self.pod["spec"].get("restartPolicy") == "Never" else []
        return sum(each.restarts for each in self.everyone) - sum(each.restarts for each in spared)

    def settle(self, phase: str, now: float) -> None:
        """The server was told: what is true becomes the pod's fate."""
        fate = self.fate
        self.done = phase in {"Succeeded", "Failed"}
        fate.in_place = max(fate.in_place, self.in_place)
        fate.over = fate.over or self.done or self.is_over
        if fate.end is None and self.truth is not None:
            fate.end, fate.exit_code = self.truth
            fate.ended_at, fate.leaving = now, self.leaving
            fate.orderly = fate.end is End.DISRUPTED and fate.exit_code == 0 and phase != "Failed"
            fate.fatal = fate.end is End.FAILED and self._is_fatal(fate.exit_code)
        fate.runs = fate.end is None and phase == "Running"

    def _is_left(self, container: Container) -> bool:
        code = container.exit_code
        return code is not None and after_exit(self.pod, container.name, code) is After.LEFT

    def _is_fatal(self, code: int | None) -> bool:
        own = [
            each for each in self.pod["spec"]["containers"] if each["name"] == TENSORFLOW and "restartPolicy" in each
        ]
        return bool(own and code) and after_exit(self.pod, TENSORFLOW, code or 0) is After.LEFT

    def _is_initialised(self) -> bool:
        names = {each.name for each in self.sidecars}
        for each in self.inits.values():
            reason = each.state.get("waiting", {}).get("reason", "")
            if reason == "RestartingAllContainers":
                return True  # for a moment it looks as before
            if reason == "PodInitializing" or (each.name not in names and each.exit_code != 0):
                return False
        return True

    def _was_lost(self) -> bool:
        """Whether the exit codes are gone, under the policy Never: old kubelets then make a failure of them."""
        return self.pod["spec"].get("restartPolicy") == "Never" and not any(
            each.runs or each.ended is None for each in self.containers.values()
        )
