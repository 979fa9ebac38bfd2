"""How long jobs wait, while the clocks of operators and nodes differ by up to an hour and are set to other times.

A wait that begins at an event which operators observe is as long as the job asks: never shorter, and longer only if another
process leads meanwhile, which starts it again. A wait that begins at a time which an operator wrote may be shorter if the next
leader's clock is ahead, but not longer than from the moment when that one leads or its clock was set.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from judge.jobs import QUEUE
from kit.model.controllers import GarbageCollector
from kit.model.kinds import Kind
from kit.model.storage import Body, Change, Feed
from kit.virtual_loop import NETWORK
from kit.world import require
from simulation import scripts
from simulation.kubelet import Kubelet
from simulation.processes import OperatorProcess
from simulation.verdicts import TICK_S
from simulation.world import World
from simulation.write_judge import LEASE, lease_holder
from tfjob_operator.api.core import NODES, PODS
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.controller.leaderelection import LeaderElectionConfig

TEAM: Final = "team"
SET_UNTIL_S: Final = 150.0
"""Until when clocks are set and operators are killed."""
END_S: Final = 450.0
"""By when each job must have acted: it begins within a minute, and the last change of a leader or clock is before 200 s."""
SLACK_S: Final = 8.0
"""How long an operator may take to see an event and to act, also when it has just begun to lead."""
OBSERVED: Final = ("grace", "lost", "sick", "start", "give up")
OWN: Final = ("deadline", "ttl", "sidecar")
"""The waits that begin at a time which an operator wrote."""


class _Plain(scripts.Script):
    """Training does what its temper says, sidecars never end, and nothing else happens to them."""

    def run(self, random: Random, pod: Any, name: str, tries: int) -> Any:
        temper = (pod.metadata.annotations or {}).get(scripts.TEMPER)
        is_endless = temper == scripts.ENDLESS or name != scripts.TENSORFLOW
        return scripts.exits(random.uniform(2.0, 20.0), None if is_endless else 0)

    def rejection(self, random: Random, tries: int) -> str:
        return ""


def _replicas(temper: str, *sidecars: str) -> dict[str, Any]:
    pod = {"containers": [{"name": name, "image": "train"} for name in (scripts.TENSORFLOW, *sidecars)]}
    template = {"metadata": {"annotations": {scripts.TEMPER: temper}}, "spec": pod}
    return {"replicas": 1, "restartPolicy": "ExitCode", "template": template}


@dataclass(slots=True)
class Wait:
    """What one job waits for, and for how long; when that began and ended, as the server saw it."""

    kind: str
    limit_s: int
    began_at: float = 0.0
    acted_at: float = 0.0
    led_at: list[float] = field(default_factory=list)

    def job(self) -> Body:
        limit, temper = self.limit_s, scripts.STUCK if self.kind == "start" else scripts.ENDLESS
        types = {"Worker": _replicas(temper)}
        if self.kind in {"grace", "give up"}:
            types["Chief"] = _replicas(scripts.STEADY)
        if self.kind in {"ttl", "sidecar"}:
            types = {"Worker": _replicas(scripts.STEADY, *["log"] * (self.kind == "sidecar"))}
        sick = {"action": "RestartAll", "onNodes": {"conditions": [{"type": "Sick"}]}}
        policies: dict[str, dict[str, Any]] = {
            "grace": {"completionGracePeriodSeconds": limit},
            "sidecar": {"completionGracePeriodSeconds": limit},
            "lost": {"nodeLostTimeoutSeconds": limit},
            "sick": {"failurePolicy": {"maxRestarts": 1, "rules": [sick]}},
            "start": {"startDeadlineSeconds": limit},
            "give up": {"completionGracePeriodSeconds": 0},
            "deadline": {"activeDeadlineSeconds": limit},
            "ttl": {"ttlSecondsAfterFinished": limit},
        }
        labels = {QUEUE: "gpus"} if self.kind == "give up" else {}
        spec = {"tfReplicaSpecs": types, "runPolicy": policies[self.kind]}
        meta = {"name": "job", "labels": labels}
        return {"apiVersion": TFJOBS.api_version, "kind": TFJOBS.kind, "metadata": meta, "spec": spec}

    def begins(self, at_s: float) -> None:
        if not self.acted_at:
            self.began_at = at_s

    def acts(self, at_s: float) -> None:
        self.acted_at = self.acted_at or at_s

    def mistakes(self, clocks_set_at: Iterable[float]) -> list[str]:
        if not (self.began_at and self.acted_at):
            return [f"too late: {self}" if self.began_at else f"did not begin: {self}"]
        # A clock that was set back is noticed when the wait seems to be over.
        set_at = [at + self.limit_s + 1 for at in clocks_set_at if at <= self.acted_at]
        again = [self.began_at, *set_at, *(at for at in self.led_at if at <= self.acted_at)]
        found = []
        if self.kind not in OWN and self.acted_at - self.began_at < self.limit_s - TICK_S:
            found.append(f"too early: {self}")
        if self.acted_at > max(again) + self.limit_s + SLACK_S:
            found.append(f"too late: {self}")
        return found


class _Observer:
    """Sees on the server when a wait begins and when the operator acts, and lets nodes fail."""

    def __init__(self, world: World, kubelet: Kubelet, wait: Wait) -> None:
        self._world = world
        self._kubelet = kubelet
        self._wait = wait
        storage = world.server.storage
        self._pods, self._jobs = Feed(storage, PODS), Feed(storage, TFJOBS)
        self._leader = ""
        world.server.on_change.append(self._look)

    def break_node(self, node: str) -> None:
        """Let a node be not ready and sick from now on; its clock writes since when."""
        names = {"Ready": "False", "Sick": "True"}
        self._set_conditions(node, names)
        if self._wait.kind in {"lost", "sick"} and any(life.node == node for life in self._kubelet.on(node)):
            self._wait.begins(self._world.time)

    def create_node(self, node: str) -> None:
        self._world.act("admin", "POST", NODES.path(""), {"metadata": {"name": node}})
        self._set_conditions(node, {"Ready": "True", "Sick": "False"})

    def _set_conditions(self, node: str, names: dict[str, str]) -> None:
        now = self._world.server.now().replace(microsecond=0).isoformat().replace("+00:00", "Z")
        time = self._world.clocks.stamped(node, f'"{now}"'.encode()).decode().strip('"')
        found = [{"type": kind, "status": status, "lastTransitionTime": time} for kind, status in names.items()]
        self._world.act("admin", "PATCH", NODES.path("", node, "status"), {"status": {"conditions": found}})

    def _look(self) -> None:
        holder = lease_holder(self._world.server.storage)
        if holder not in {"", self._leader}:
            self._leader = holder
            self._wait.led_at.append(self._world.time)
        for change in self._jobs.news():
            self._see_job(change)
        for change in self._pods.news():
            self._see_pod(change)

    def _see_job(self, change: Change) -> None:
        status, now, kind = change.new.body.get("status") or {}, self._world.time, self._wait.kind
        states = {each["type"] for each in status.get("conditions") or () if each["status"] == "True"}
        begins = {"deadline": "startTime" in status, "ttl": "Succeeded" in states, "sidecar": "Succeeded" in states}
        if begins.get(kind) and not self._wait.began_at:
            self._wait.begins(now)
        acts = {"sick": status.get("attempt"), "lost": False, "sidecar": False, "ttl": change.gone}
        if acts.get(kind, states & {"Succeeded", "Failed"}):
            self._wait.acts(now)

    def _see_pod(self, change: Change) -> None:
        pod, kind, now = change.new.body, self._wait.kind, self._world.time
        meta, status = pod["metadata"], pod.get("status") or {}
        chief = meta["name"].startswith("job-chief")
        ended = [each for each in status.get("containerStatuses") or () if "terminated" in each["state"]]
        if (kind == "start" and change.old is None) or (
            kind == "grace" and chief and ended and not self._wait.began_at
        ):
            self._wait.begins(now)
        elif kind == "give up" and not chief and "deletionTimestamp" in meta and not self._wait.began_at:
            self._wait.begins(now)
            self._kubelet.nodes.silence(pod["spec"]["nodeName"])
        elif {"sidecar": "deletionTimestamp" in meta, "lost": status.get("reason") == "NodeLost"}.get(kind):
            self._wait.acts(now)


async def waits_have_their_length(world: World) -> None:
    random = world.random
    world.clocks.let_differ(SET_UNTIL_S)
    kind = random.choice((*OBSERVED, *OWN))
    limits = {"sick": 30, "give up": 90}
    wait = Wait(kind, limits.get(kind, random.randint(60, 90)))
    world.server.define(
        Kind(NODES, status=True, bookmark={"spec": {}, "status": {"daemonEndpoints": {}, "nodeInfo": {}}})
    )
    await world.create_namespaces(LEASE[0], TEAM)
    GarbageCollector(world.server, Random(f"garbage {world.seed}"))
    kubelet = Kubelet(world, Random(f"kubelet {world.seed}"), script=_Plain())
    observer, loop = _Observer(world, kubelet, wait), asyncio.get_running_loop()
    nodes = [f"node-{number}" for number in range(3)]
    for node in nodes:
        observer.create_node(node)
    replicas = [OperatorProcess(world, number, election=LeaderElectionConfig(), workers=1) for number in range(2)]
    for replica in replicas:
        replica.start()
    loop.call_at(5.0, world.act, "user", "POST", TFJOBS.path(TEAM), wait.job(), context=NETWORK)
    if kind in {"lost", "sick"}:
        broken_at = random.uniform(20.0, 60.0)
        for node in nodes:
            loop.call_at(broken_at, observer.break_node, node, context=NETWORK)
    for _ in range(random.choice((0, 0, 1, 2))):
        await asyncio.sleep(max(0.0, random.uniform(10.0, SET_UNTIL_S) - world.time))
        victim = next((each for each in replicas if each.name == lease_holder(world.server.storage)), replicas[0])
        await victim.kill()
        await asyncio.sleep(random.choice((0.0, 20.0)))
        victim.start()
    await asyncio.sleep(END_S - world.time)
    mistakes = wait.mistakes(at for each in replicas for at in world.clocks.set_at(each.machine))
    require(not mistakes, "\n".join(mistakes))
    for replica in replicas:
        await replica.stop()
