"""The nodes of a simulated cluster: pods are scheduled, run, restart, end, are evicted, and go, as a seed will have it.

Everything is a timer that talks to the server as any client does; no fault of the network reaches it. The nodes behave as those
of the world's version of Kubernetes (`hack.kubernetes_versions`). What has truly become of each pod stands in its `Fate`, for
oracles that must not ask the code under test.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hack import kubernetes_versions as versions
from simulation.feed import Feed
from simulation.lives import Container, End, Fate, Life, State
from simulation.model.network import NETWORK
from simulation.nodes import Nodes
from simulation.pod_writer import PodWriter, condition
from simulation.restart_rules import After, after_exit
from simulation.scripts import TENSORFLOW, Answer, Script
from simulation.slots import Slot, slot_of
from tfjob_operator.api.core import PODS

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from simulation.model.storage import Change
    from simulation.world import World

EVICTIONS: Final = ("Evicted", "Evicted", "Evicted", "Preempting")
"""Reasons in the status of a pod that its kubelet has ended for want of room."""
KILLED: Final = 137
UNKNOWN: Final = "ContainerStatusUnknown"
RESTARTING_ALL: Final = "RestartingAllContainers"
ALL_RESTARTING: Final = "AllContainersRestarting"
NO_STATUSES: Final = {"containerStatuses": None, "initContainerStatuses": None}
"""Old kubelets put a status without any in the place of what they knew."""


class Kubelet:
    """Scheduler, kubelets and node controller of all nodes.

    Invariant: a fate says nothing that the server was not told, and of a pod that has ended it does not change any more.
    """

    def __init__(
        self,
        world: World,
        random: Random,
        *,
        script: Script | None = None,
        nodes: int = 3,
        training: str = TENSORFLOW,
        pace: float = 1.0,
    ) -> None:
        """`script` is asked what containers do. `training`: whose end is that of the pod's work.

        `pace`: how long the kubelet's own steps take, as a share of the usual.
        """
        self._pace = pace
        self._script = script or Script()
        self._training = training
        self.fates: dict[str, Fate] = {}
        """By the UID of the pod; those of pods that are gone, too."""
        self._world = world
        self._has = world.kubernetes.has
        self._random = random
        self._feed = Feed(world.server.storage, PODS)
        self._lives: dict[str, Life] = {}
        self._runs: Counter[tuple[str, Slot, str]] = Counter()
        self.writer = PodWriter(world)
        self.nodes = Nodes(world, random, self, nodes)
        world.server.on_change.append(self._look)

    @property
    def is_at_rest(self) -> bool:
        """Whether no pod or node will do anything by itself any more."""
        return self.nodes.are_at_rest and not any(life.timers for life in self._lives.values())

    def on(self, node: str) -> list[Life]:
        """The pods of a node."""
        return [life for life in self._lives.values() if life.node == node]

    def evict(self, uid: str, grace: int | None = None) -> None:
        """Somebody asks the eviction API for the end of a pod."""
        life = self._lives[uid]
        self.writer.announce(life, "EvictionByEvictionAPI", "drain")
        self.writer.delete(life, "drain", grace=grace)

    def end(self, uid: str, name: str, code: int) -> None:
        """A container of a pod ends by itself, now."""
        life = self._lives[uid]
        (container,) = (each for each in life.everyone if each.name == name)
        self._exit(life, container, code, "Error" if code else "Completed")

    def shut_down(self, life: Life, grace_s: int) -> None:
        """The pod's node begins to shut down.

        A pod whose work has ended already is left alone: what its status would show then could be told by nobody.
        """
        if life.has_started and not life.leaving and not life.done and life.truth is None:
            self._in(life, self._random.random(), "shut down", partial(self._shut_down, life, grace_s))

    def resume(self, life: Life) -> None:
        """The pod's node is back: what its kubelet had to do is due."""
        held, life.held = life.held, {}
        if life.leaving:  # the kubelet finds it so, and begins with that, whatever it had begun before
            self._cancel(life)
            held = {"stop": partial(self._stop, life)}
        for name, step in held.items():
            self._in(life, self._random.random(), name, step)

    def _look(self) -> None:
        for change in self._feed.news():
            self._hear(change)

    def _hear(self, change: Change) -> None:
        meta = change.new.body["metadata"]
        life = self._lives.get(meta["uid"])
        if change.gone:
            if life is not None:
                self._forget(life)
        elif life is None:
            if change.old is None:
                self._begin(change)
        elif "deletionTimestamp" in meta and not life.leaving:
            life.leaving = True
            if not self.nodes.is_silent(life.node):  # else its containers do not know yet, and go on
                self._cancel(life)
            self._after(life, 3.0, "stop", self._stop)

    def _begin(self, change: Change) -> None:
        meta = change.new.body["metadata"]
        owners = meta.get("ownerReferences") or [{"uid": ""}]
        fate = Fate(meta["uid"], owners[0]["uid"], slot_of(meta))
        life = Life(change.new.key, change.new.body, fate)
        self._lives[fate.uid] = life
        self.fates[fate.uid] = fate
        self._after(life, 2.0, "bind", self._bind)

    def _bind(self, life: Life) -> None:
        life.node = self.nodes.choose()
        self.writer.bind(life)
        self._after(life, 1.0, "admit", self._admit)

    def _admit(self, life: Life) -> None:
        """The kubelet takes the pod, or turns it away before anything of it has run."""
        tries = self._runs[life.fate.owner, life.fate.slot, self._training]
        why = self._script.rejection(self._random, life.pod, tries)
        if why:
            life.truth = (End.DISRUPTED, None)
            said = "Pod was rejected:" if self._has(versions.REJECTIONS_SAY_SO) else "Pod"
            self.writer.tell(life, {"phase": "Failed", "reason": why, "message": f"{said} {why}"})
            return
        spec = life.pod["spec"]
        inits = [each["name"] for each in spec.get("initContainers") or ()]
        waiting = {"waiting": {"reason": "PodInitializing" if inits else "ContainerCreating"}}
        life.inits = {name: Container(name, waiting) for name in inits}
        life.containers = {each["name"]: Container(each["name"], waiting) for each in spec["containers"]}
        if self._report(life, passing=True):
            self._after(life, 2.0, "start", self._start)

    def _start(self, life: Life) -> None:
        """Start the next init container or, when they are done, all others."""
        sidecars = life.sidecars
        for init in life.inits.values():
            if init.state.get("waiting", {}).get("reason") in {"PodInitializing", RESTARTING_ALL}:
                init.start()
                if self._report(life, passing=True):
                    self._run(life, init)
                    if init in sidecars:
                        self._after(life, 0.5, "start", self._start)
                return
        for container in life.containers.values():
            container.start()
        if self._report(life, passing=True):
            for container in life.containers.values():
                self._run(life, container)

    def _run(self, life: Life, container: Container) -> None:
        """Let a container run, once."""
        place = (life.fate.owner, life.fate.slot, container.name)
        run = self._script.run(self._random, life.pod, container.name, self._runs[place])
        self._runs[place] += 1
        if run.evicted:
            self._in(life, run.seconds, "evict", partial(self._evict, life))
        elif run.exit_code is not None:
            reason = run.reason or ("Error" if run.exit_code else "Completed")
            step = partial(self._exit, life, container, run.exit_code, reason)
            self._in(life, run.seconds, f"exit of {container.name}", step, by_kubelet=False)

    def _exit(self, life: Life, container: Container, code: int, reason: str) -> None:
        """A container ends by itself; the server hears of it a moment later, or when its node can talk again."""
        container.state = self._ended(code, reason)
        after = after_exit(life.pod, container.name, code)
        if container.name == self._training and after is After.LEFT:
            life.truth = (End.FAILED if code else End.SUCCEEDED, code)
        self._after(life, 0.5, f"news of {container.name}", partial(self._hear_exit, container=container, after=after))

    def _hear_exit(self, life: Life, *, container: Container, after: After) -> None:
        if after is After.ALL_RESTARTED:
            self._restart_all(life)
        elif after is After.RESTARTED:
            if not self._report(life, passing=True):
                return
            if container.restarts:  # the first restart waits for nothing
                self._after(life, 2.0, f"back-off of {container.name}", partial(self._back_off, container=container))
            else:
                self._after(life, 4.0, f"restart of {container.name}", partial(self._restart, container=container))
        elif container.name in life.inits:
            if life.phase != "Failed" and self._report(life, passing=True):
                self._after(life, 0.5, "start", self._start)
            elif life.phase == "Failed":
                self._finish(life)
        elif life.is_over:
            self._finish(life)
        else:
            self._report(life)

    def _back_off(self, life: Life, *, container: Container) -> None:
        container.wait("CrashLoopBackOff")
        if self._report(life, passing=True):
            self._after(life, 4.0, f"restart of {container.name}", partial(self._restart, container=container))

    def _restart(self, life: Life, *, container: Container) -> None:
        container.start()
        if self._report(life, passing=container.name in life.inits):
            self._run(life, container)

    def _restart_all(self, life: Life) -> None:
        """A rule wants all containers anew, init containers too (KEP-5532). How they have ended is not kept."""
        self._cancel(life)
        if not self.writer.tell(
            life, life.statuses | {"phase": "Running", "conditions": [condition(ALL_RESTARTING, "Started")]}
        ):
            return
        for container in life.everyone:
            container.last = self._ended(KILLED, RESTARTING_ALL)
            container.restarts += 1
            container.state = {"waiting": {"reason": RESTARTING_ALL}}
        self._after(life, 0.5, "anew", self._begin_anew)

    def _begin_anew(self, life: Life) -> None:
        over = condition(ALL_RESTARTING, status="False")
        if self.writer.tell(life, life.statuses | {"phase": "Running", "conditions": [over]}):
            if life.inits:
                for container in life.everyone:
                    container.state = {"waiting": {"reason": "PodInitializing"}}
            self._after(life, 1.0, "start", self._start)

    def _finish(self, life: Life) -> None:
        """All that matters has ended, for good. Kubelets of today say so first, and what it makes of the pod a while later."""
        self._cancel(life)
        if not self._has(versions.CONTAINERS_END_BEFORE_PHASE):
            self._report(life)
        elif self._report(life, "Running" if life.has_started else "Pending"):
            if any(each.runs for each in life.sidecars):
                self._after(life, 1.5, "end of sidecars", self._end_sidecars)
            else:
                self._after(life, 1.5, "phase", self._close)

    def _end_sidecars(self, life: Life) -> None:
        self._end_all(life.sidecars)
        if self._report(life, "Running", passing=True):
            self._after(life, 1.5, "phase", self._close)

    def _close(self, life: Life) -> None:
        """Tell what has become of the pod; one that was deleted meanwhile can go."""
        if self._report(life) and life.leaving:
            self._go(life)

    def _evict(self, life: Life) -> None:
        """The kubelet ends the pod for reasons of its node. What it says of the containers depends on its version."""
        if life.truth is not None or life.leaving:
            return
        self._cancel(life)
        status: dict[str, Any] = {"phase": "Failed", "reason": self._random.choice(EVICTIONS)} | NO_STATUSES
        if self._has(versions.EVICTED_MAY_SUCCEED):
            # An exit with 0 would be reported as any success (M9): nobody could tell.
            code: int | None = self._random.choice((KILLED, 143, 1))
        else:
            code = self._random.choice((None, KILLED, 143, 1, 0))
        if code is not None:
            self._end_all([each for each in life.everyone if each.exit_code is None], code)
            status |= life.statuses
        if self._has(versions.DISRUPTION_TARGET):
            status["conditions"] = [condition("DisruptionTarget", "TerminationByKubelet")]
        life.truth = (End.DISRUPTED, code)
        self.writer.tell(life, status)

    def _shut_down(self, life: Life, grace_s: int) -> None:
        """The node shuts down: the kubelet ends the pod, whatever its restart policy."""
        if life.truth is not None or life.leaving:
            return
        self._cancel(life)
        if not self._has(versions.SHUTDOWN_TELLS_THE_TRUTH):
            life.truth = (End.DISRUPTED, None)
            status = {"phase": "Failed", "reason": "Shutdown", "message": "Node is shutting, evicting pods"}
            self.writer.tell(life, status | NO_STATUSES)
            return
        self._terminate(life, grace_s, self._tell_of_shutdown)

    def _tell_of_shutdown(self, life: Life) -> None:
        marked = self._has(versions.DISRUPTION_TARGET)
        phase = life.final_phase
        # Whoever exits with 0, and bears no mark, says that he is done (M9): nobody could tell.
        end = End.SUCCEEDED if phase == "Succeeded" and not marked else End.DISRUPTED
        life.truth = (end, life.containers[self._training].exit_code)
        status: dict[str, Any] = {"phase": phase} | life.statuses
        if marked:
            status["conditions"] = [condition("DisruptionTarget", "TerminationByKubelet")]
        if phase == "Failed":
            status |= {"reason": "Terminated", "message": "Pod was terminated in response to imminent node shutdown."}
        self.writer.tell(life, status)

    def _stop(self, life: Life) -> None:
        """The pod was told to go, and its kubelet knows: its containers get SIGTERM."""
        self._cancel(life)
        modern = self._has(versions.CONTAINERS_END_BEFORE_PHASE)
        if life.done or not life.containers:
            self._go(life)
        elif life.has_started:
            life.stopping = True
            ended = life.containers[self._training].ended
            if life.truth is None and ended is not None:  # it was to be started again
                life.truth = (End.FAILED if ended["exitCode"] else End.SUCCEEDED, ended["exitCode"])
            if modern and self._show_last_ends(life) and not self._report(life, passing=True):
                return
            self._terminate(life, self._grace(life), self._tell_of_end)
        elif not self._has(versions.UNSTARTED_ARE_CALLED_UNKNOWN):
            self._go(life)
        elif self._script.starts_though_deleted(self._random) and not life.inits:
            for container in life.containers.values():
                container.start()
            life.stopping = True
            if self._report(life):
                self._terminate(life, self._grace(life), self._tell_of_end)
        else:
            self._end_all(list(life.containers.values()), KILLED, UNKNOWN)
            self._tell_of_end(life)

    def _grace(self, life: Life) -> int:
        meta = self._world.server.storage.collections[PODS.plural].objects[life.key].body["metadata"]
        return int(meta["deletionGracePeriodSeconds"])

    @staticmethod
    def _show_last_ends(life: Life) -> bool:
        """Containers that wait to be started again are shown as they have ended. Answers whether there are any."""
        waiting = [each for each in life.everyone if "waiting" in each.state and each.ended]
        for container in waiting:
            container.state = container.last
        return bool(waiting)

    def _terminate(self, life: Life, grace_s: int, then: Callable[[Life], None]) -> None:
        """SIGTERM to all that runs, and SIGKILL at the end of the grace; `then` is called when all has ended."""
        answers: dict[str, Answer] = {}
        for each in life.everyone:
            if each.runs:
                answer = self._script.on_sigterm(self._random, life.pod, each.name)
                in_time = answer.exit_code is not None and answer.seconds <= grace_s
                answers[each.name] = answer if in_time else Answer(grace_s, KILLED)
        took_s = max((answer.seconds for answer in answers.values()), default=0.0)

        def end() -> None:
            for each in life.everyone:
                if each.name in answers:
                    code = answers[each.name].exit_code or 0
                    each.state = self._ended(code, "Error" if code else "Completed")
            then(life)

        self._in(life, took_s + 0.01, "end", end)

    def _tell_of_end(self, life: Life) -> None:
        """All containers of a pod that is being deleted have ended."""
        if life.truth is None:
            code = life.containers[self._training].exit_code
            life.truth = (End.FAILED if code else End.DISRUPTED, code)
        modern = self._has(versions.CONTAINERS_END_BEFORE_PHASE)
        can_lose = not self._has(versions.EXIT_CODES_SURVIVE_DELETION)
        if can_lose and life.fate.end is None and self._script.loses_exit_codes(self._random):
            for container in life.containers.values():
                container.last = self._ended(KILLED, UNKNOWN)
                container.state = {"waiting": {"reason": "ContainerCreating"}}
            life.truth = (End.DISRUPTED, KILLED)
        final = life.final_phase if self._has(versions.DELETION_ENDS_IN_TERMINAL_PHASE) else life.phase
        if modern or not self._script.is_hurried(self._random):
            self._report(life, final)
        self._go(life)

    def _go(self, life: Life) -> None:
        self._after(life, 1.0, "go", partial(self.writer.delete, client="kubelet", grace=0))

    def _end_all(self, containers: list[Container], code: int = 0, reason: str = "") -> None:
        for container in containers:
            container.state = self._ended(code, reason or ("Error" if code else "Completed"))

    def _ended(self, code: int, reason: str) -> State:
        at = self._world.server.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"terminated": {"exitCode": code, "finishedAt": at, "reason": reason}}

    def _report(self, life: Life, phase: str = "", *, passing: bool = False) -> bool:
        """Tell the server of the containers. Answers whether the pod was still there.

        `passing`: this may pass so fast that nobody is told, unless nothing else happens.
        """
        if "news" in life.timers:
            life.timers.pop("news").cancel()
        if passing and self._script.is_hurried(self._random):
            self._in(life, 1.0, "news", partial(self._report, life, phase))
            return True
        return self.writer.tell(life, {"phase": phase or life.phase} | life.statuses)

    def _cancel(self, life: Life) -> None:
        """Nothing of what was due is due any more."""
        for timer in life.timers.values():
            timer.cancel()
        life.timers.clear()
        life.held.clear()

    def _forget(self, life: Life) -> None:
        self._cancel(life)
        life.fate.runs = False
        del self._lives[life.fate.uid]

    def _after(self, life: Life, at_most_s: float, name: str, step: Callable[[Life], object]) -> None:
        self._in(life, 0.05 + self._random.random() * at_most_s * self._pace, name, partial(step, life))

    def _in(
        self, life: Life, seconds: float, name: str, step: Callable[[], object], *, by_kubelet: bool = True
    ) -> None:
        """Let a pod take a step; one of this name that was due is not any more. What a kubelet does waits for its node."""
        if name in life.timers:
            life.timers[name].cancel()

        def take() -> None:
            del life.timers[name]
            if by_kubelet and self.nodes.is_silent(life.node):
                life.held[name] = step
            else:
                step()

        life.timers[name] = self._later(seconds, take)

    def _later(self, seconds: float, step: Callable[[], object]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, step, context=NETWORK)
