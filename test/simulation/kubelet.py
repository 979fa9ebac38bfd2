"""The nodes of a simulated cluster: pods are scheduled, run, restart, end, are evicted, and go, as a seed will have it.

Everything is a timer that talks to the server as any client does; no fault of the network reaches it. What has truly become of
each pod stands in its `Fate`, for oracles that must not ask the code under test.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.client.transport import Request
from api.core import PODS
from simulation.feed import Feed
from simulation.lives import Container, End, Fate, Life, State
from simulation.model.network import NETWORK
from simulation.scripts import ENDING, FAILING, SIDECAR, next_run
from simulation.slots import Slot, slot_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from simulation.model.storage import Change
    from simulation.scripts import Script
    from simulation.world import World

TENSORFLOW: Final = "tensorflow"
STRATEGIC: Final = "application/strategic-merge-patch+json"
EVICTIONS: Final = ("Evicted", "Evicted", "Terminated", "NodeShutdown", "Shutdown")
"""Reasons in the status of a pod that its kubelet has ended (eviction, and names of graceful node shutdown)."""


class Kubelet:
    """Scheduler, kubelets and node controller of all nodes.

    Invariant: a fate says nothing that the server was not told, and of a pod that has ended it does not change any more.
    """

    def __init__(self, world: World, random: Random, *, script: Script = next_run, nodes: int = 3) -> None:
        """`script` is asked for every run of a container what it will do."""
        self._script = script
        self.fates: dict[str, Fate] = {}
        """By the UID of the pod; those of pods that are gone, too."""
        self._world = world
        self._random = random
        self._feed = Feed(world.server.storage, PODS)
        self._lives: dict[str, Life] = {}
        self._runs: Counter[tuple[str, Slot]] = Counter()
        self._nodes_troubled = 0
        self._nodes = {f"node-{number}": True for number in range(nodes)}
        world.server.on_change.append(self._look)

    @property
    def is_at_rest(self) -> bool:
        """Whether no pod or node will do anything by itself any more."""
        return self._nodes_troubled == 0 and all(life.timer is None for life in self._lives.values())

    def lose_node(self) -> None:
        """A node falls silent. Its pods are told to go after a while, and go when it comes back or is given up."""
        node = self._random.choice([name for name, alive in self._nodes.items() if alive])
        self._world.note("lost", node)
        self._nodes[node] = False
        self._nodes[f"node-{len(self._nodes)}"] = True
        self._nodes_troubled += 1
        self._later(self._random.uniform(2.0, 8.0), lambda: self._taint(node))

    def drain_node(self) -> None:
        """Somebody empties a node: the eviction API deletes its pods, with their grace."""
        node = self._random.choice([name for name, alive in self._nodes.items() if alive])
        self._world.note("drained", node)
        for life in self._on(node):
            self._delete(life, "drain")

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
            self._after(life, 3.0, self._stop_containers)

    def _begin(self, change: Change) -> None:
        meta = change.new.body["metadata"]
        owners = meta.get("ownerReferences") or [{"uid": ""}]
        fate = Fate(meta["uid"], owners[0]["uid"], slot_of(meta))
        life = Life(change.new.key, change.new.body, fate)
        self._lives[fate.uid] = life
        self.fates[fate.uid] = fate
        self._after(life, 2.0, self._bind)

    def _bind(self, life: Life) -> None:
        life.node = self._random.choice([name for name, alive in self._nodes.items() if alive])
        body = {"metadata": {"name": life.key[1]}, "target": {"kind": "Node", "name": life.node}}
        self._send("POST", life, body, "binding")
        self._after(life, 3.0, self._start)

    def _start(self, life: Life) -> None:
        names = [container["name"] for container in life.pod["spec"]["containers"]]
        life.containers = {name: Container({"running": {"startedAt": None}}) for name in names}
        if self._report(life):
            life.fate.runs = True
            self._run(life)

    def _run(self, life: Life) -> None:
        """Let the container `tensorflow` run, once."""
        place = (life.fate.owner, life.fate.slot)
        run = self._script(self._random, life.pod, self._runs[place])
        self._runs[place] += 1
        if run.evicted:
            self._in(life, run.seconds, lambda: self._evict(life))
        elif run.exit_code is not None:
            code = run.exit_code
            self._in(life, run.seconds, lambda: self._exit(life, code))

    def _exit(self, life: Life, code: int) -> None:
        """The container ends by itself; who restarts it in place is the kubelet."""
        policy = life.pod["spec"].get("restartPolicy", "Always")
        main = life.containers[TENSORFLOW]
        if policy == "Always" or (policy == "OnFailure" and code):
            terminated = self._ended(code, reason="Error" if code else "Completed")
            waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}}
            main.state = self._random.choice((terminated, waiting))
            if self._random.random() < 0.5 and not self._report(life, "Running"):
                return
            self._after(life, 4.0, self._restart)
            return
        main.state = self._ended(code, reason="Error" if code else "Completed")
        sidecar = (life.pod["metadata"].get("annotations") or {}).get(SIDECAR)
        if self._report(life):
            self._end(life, End.FAILED if code else End.SUCCEEDED, code)
            if sidecar in {ENDING, FAILING}:
                self._after(life, 4.0, self._end_sidecar)

    def _restart(self, life: Life) -> None:
        main = life.containers[TENSORFLOW]
        main.restarts += 1
        main.state = {"running": {"startedAt": None}}
        if self._report(life):
            life.fate.in_place += 1
            self._run(life)

    def _end_sidecar(self, life: Life) -> None:
        failed = life.pod["metadata"]["annotations"][SIDECAR] == FAILING
        life.containers["sidecar"].state = self._ended(int(failed))
        self._report(life)

    def _evict(self, life: Life) -> None:
        """The kubelet ends the pod for reasons of its node. What it says of the containers depends on its version."""
        code = self._random.choice((None, 137, 143, 1, 0))
        statuses = None
        if code is not None:
            for container in life.containers.values():
                container.state = self._ended(code)
            statuses = life.statuses
        status = {"phase": "Failed", "reason": self._random.choice(EVICTIONS), "containerStatuses": statuses}
        if self._random.random() < 0.5:
            status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]
        if self._send("PATCH", life, {"metadata": {"uid": life.fate.uid}, "status": status}, "status"):
            life.done = True
            self._end(life, End.DISRUPTED, code)

    def _stop_containers(self, life: Life) -> None:
        """The pod was told to go: its containers get SIGTERM. Some save their work and exit with 0, which is no success."""
        if life.containers and not life.done:
            had_ended = life.containers[TENSORFLOW].exit_code is not None
            code = self._random.choice((143, 143, 137, 137, 1, 0))
            for container in life.containers.values():
                if container.exit_code is None:
                    container.state = self._ended(code)
            # Kubelets of old did not tell how the containers of such a pod have ended.
            if self._random.random() < 0.7 and self._report(life):
                code = life.containers[TENSORFLOW].exit_code or 0  # one that was to be restarted had ended before
                ordered = End.SUCCEEDED if had_ended else End.DISRUPTED
                self._end(life, End.FAILED if code else ordered, code)
        self._after(life, 1.0, lambda each: self._delete(each, "kubelet", grace=0))

    def _ended(self, code: int, **more: str) -> State:
        at = self._world.server.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"terminated": {"exitCode": code, "finishedAt": at} | more}

    def _taint(self, node: str) -> None:
        """The node controller gives up on a node: its pods are marked, then it returns, or they are swept away."""
        for life in self._on(node):
            self._delete(life, "node-controller")
        back = self._random.random() < 0.5
        self._later(self._random.uniform(3.0, 20.0), lambda: self._return(node) if back else self._sweep(node))

    def _return(self, node: str) -> None:
        self._world.note("back", node)
        self._nodes[node] = True
        self._nodes_troubled -= 1
        for life in self._on(node):
            held, life.held = life.held, None
            if held is not None:
                self._in(life, self._random.random(), held)

    def _sweep(self, node: str) -> None:
        self._nodes_troubled -= 1
        for life in self._on(node):
            if not life.done:
                target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
                status = {"phase": "Failed", "reason": "NodeLost", "conditions": [target]}
                if self._send("PATCH", life, {"metadata": {"uid": life.fate.uid}, "status": status}, "status"):
                    self._end(life, End.DISRUPTED, None)
            self._delete(life, "pod-gc", grace=0)

    def _on(self, node: str) -> list[Life]:
        return [life for life in self._lives.values() if life.node == node]

    def _end(self, life: Life, end: End, code: int | None) -> None:
        fate = life.fate
        if fate.end is None:
            fate.end, fate.exit_code, fate.ended_at, fate.leaving = end, code, self._world.time, life.leaving
            fate.runs = False

    def _report(self, life: Life, phase: str = "") -> bool:
        """Tell the server of the containers. Answers whether the pod was still there."""
        phase = phase or life.phase
        status = {"phase": phase, "containerStatuses": life.statuses}
        life.done = phase != "Running"
        return self._send("PATCH", life, {"metadata": {"uid": life.fate.uid}, "status": status}, "status")

    def _delete(self, life: Life, client: str, *, grace: int | None = None) -> None:
        options: dict[str, Any] = {"preconditions": {"uid": life.fate.uid}}
        self._send("DELETE", life, options if grace is None else options | {"gracePeriodSeconds": grace}, client=client)

    def _send(
        self, method: str, life: Life, body: dict[str, Any], subresource: str = "", *, client: str = "kubelet"
    ) -> bool:
        content_type = STRATEGIC if method == "PATCH" else "application/json"
        path = PODS.path(*life.key, subresource or None)
        request = Request(method, path, {}, msgspec.json.encode(body), content_type)
        status = self._world.server.exchange(request, client).status
        self._world.note(client, method, path, body.get("status", ""), status)
        return status < 300

    def _forget(self, life: Life) -> None:
        if life.timer is not None:
            life.timer.cancel()
        life.held = None
        life.fate.runs = False
        del self._lives[life.fate.uid]

    def _after(self, life: Life, at_most_s: float, step: Callable[[Life], None]) -> None:
        self._in(life, 0.05 + self._random.random() * at_most_s, lambda: step(life))

    def _in(self, life: Life, seconds: float, step: Callable[[], None]) -> None:
        """Let a pod take its next step, in place of the one that was due."""
        if life.timer is not None:
            life.timer.cancel()

        def take() -> None:
            life.timer = None
            if self._nodes.get(life.node, True):
                step()
            else:
                life.held = step

        life.timer = self._later(seconds, take)

    def _later(self, seconds: float, step: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, step, context=NETWORK)
