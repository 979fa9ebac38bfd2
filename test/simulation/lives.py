"""The history of pods: the truth about each, and what its kubelet knows."""

import asyncio
import enum
from dataclasses import dataclass, field

from hack.hollow_node.containers import PodContainers, Rules, last_end
from hack.hollow_node.moment import DISRUPTED, Place, holds
from hack.hollow_node.objects import NEVER, RUNNING, TERMINAL, ContainerStatus, HollowPod, HollowStatus, Terminated
from judge.slots import Slot
from kit.model.storage import Key
from simulation.ends import is_last, restarts_always
from simulation.scripts import TENSORFLOW, DrawnScript


class End(enum.Enum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DISRUPTED = "disrupted"


@dataclass(frozen=True, slots=True)
class Exit:
    """An end of the pod's main container, as reported to the server. `own`: not caused by anyone else."""

    code: int
    reason: str
    own: bool
    at: float


@dataclass(slots=True)
class Fate:
    """The truth about a pod, as far as it was reported to the server.

    `leaving`: it was already being deleted when it ended. `in_place`: restarts that count (B37, M7). `over_at`: since when
    nothing in it runs or will run again, except native sidecars, whatever its phase is. `orderly`: it was stopped, exited with
    0, and its phase is not Failed. `fatal`: it failed, and its container's own restart policy does not restart it. `exits`:
    every reported end of its work, in place or final. `attempt`: the attempt of its job, by its label. `node`: where it ran.
    """

    uid: str
    owner: str
    slot: Slot
    attempt: int = 0
    node: str = ""
    runs: bool = False
    in_place: int = 0
    end: End | None = None
    exit_code: int | None = None
    ended_at: float = 0.0
    leaving: bool = False
    over_at: float | None = None
    orderly: bool = False
    fatal: bool = False
    exits: list[Exit] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether nothing in it runs or will run again, except native sidecars."""
        return self.over_at is not None

    @property
    def counts(self) -> bool:
        """Whether this end counts for `backoffLimit`: the container failed by itself, and the pod was not being deleted."""
        return self.end is End.FAILED and not self.leaving


@dataclass(slots=True)
class Life:
    """The life of one pod.

    `status`: known to its kubelet; `told`: reported to the server. `timer`: the next step. `due`: its kubelet has something to
    do, but the node is silent. `leaving`: the server was asked to delete it. `latest`: the last reported end of its work.
    """

    key: Key
    pod: HollowPod
    fate: Fate
    script: DrawnScript
    place: Place
    status: HollowStatus = field(default_factory=HollowStatus)
    told: HollowStatus = field(default_factory=HollowStatus)
    timer: asyncio.TimerHandle | None = None
    due: bool = False
    leaving: bool = False
    latest: Terminated | None = None

    @property
    def node(self) -> str:
        """The node to which it is bound, or ""."""
        return self.place.node

    @property
    def done(self) -> bool:
        """Whether the kubelet has nothing left to do, so that a deletion need not wait."""
        return self.told.phase in TERMINAL

    def settle(self, now: float) -> None:
        """Update the pod's fate with the status just reported; its work is that of container `tensorflow`."""
        fate, told = self.fate, self.told
        rules = Rules(self.pod, self.script, self.place.timing, self.place.kubernetes)
        containers = PodContainers.of(rules, told)
        fate.in_place = max(fate.in_place, self._in_place(containers))
        if not fate.over and (self.done or all(map(self._is_last, containers.mains))):
            fate.over_at = now
        (mine,) = (each for each in containers.mains if each.name == TENSORFLOW)
        self._note_exit(mine, now)
        truth = self._truth(mine) if fate.end is None else None
        if truth is not None:
            fate.end, fate.exit_code = truth
            fate.ended_at, fate.leaving = now, self.leaving
            fate.orderly = fate.end is End.DISRUPTED and fate.exit_code == 0 and told.phase != "Failed"
            own = any(each.name == TENSORFLOW and each.restart_policy for each in self.pod.spec.containers)
            fate.fatal = fate.end is End.FAILED and own and self._is_last(mine)
        fate.runs = fate.end is None and told.phase == RUNNING

    def _note_exit(self, mine: ContainerStatus, now: float) -> None:
        """Record an end of the pod's work when it is first reported."""
        ended = mine.state.terminated or mine.last_state.terminated
        if ended is None or ended == self.latest:
            return
        self.latest = ended
        restarted = mine.state.running is not None
        own = self.script.has_ended_so(mine.name, mine.restart_count - restarted, ended)
        self.fate.exits.append(Exit(ended.exit_code, ended.reason, own, now))

    def _is_last(self, container: ContainerStatus) -> bool:
        return is_last(self.pod, container, self.place.kubernetes)

    def _truth(self, mine: ContainerStatus) -> tuple[End, int | None] | None:
        """Return how the pod's work ended and its exit code, or None. Only ends that nobody requested are its own."""
        ended = last_end(mine) if self.leaving else mine.state.terminated
        code, again = ended.exit_code if ended is not None else None, restarts_always(self.pod, TENSORFLOW)
        if self.done and (self.told.reason or holds(self.told.conditions, DISRUPTED)):
            return End.DISRUPTED, code
        if ended is None:
            return (End.DISRUPTED, None) if self.done else None
        if self.script.has_ended_so(mine.name, mine.restart_count, ended):
            over = self.leaving or self.done or self._is_last(mine)  # a node that shuts down restarts nothing
            return (End.FAILED if code or again else End.SUCCEEDED, code) if over else None
        if self.leaving:
            return End.FAILED if code else End.DISRUPTED, code
        # A process that exits with 0 counts as done if the pod has no sign of a disruption (M9): it cannot be told apart.
        return (End.FAILED if again else End.SUCCEEDED, code) if self.done else None

    def _in_place(self, containers: PodContainers) -> int:
        """Return the restarts in place that count; those of native sidecars do not if the pod excludes them (M7)."""
        spared = containers.sidecars if self.pod.spec.restart_policy == NEVER else frozenset()
        return sum(each.restart_count for each in containers.all() if each.name not in spared)
