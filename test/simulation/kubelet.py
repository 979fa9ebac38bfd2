"""The nodes of a simulated cluster: pods are scheduled, run, restart, end, are evicted and deleted.

A kubelet handles a pod by the hollow node's model (`hack.hollow_node.lifecycle`) for the world's version of Kubernetes. The
seed determines the rest: what containers do, all durations, which reports are omitted, and which nodes have problems. All
actions are timers that use the server like any client, without network faults. The true history of each pod is in its `Fate`,
for oracles, which must not use the code under test.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final

import msgspec

from hack.hollow_node.lifecycle import advance
from hack.hollow_node.moment import Place, Removal, Shutdown
from hack.hollow_node.objects import HollowMeta, HollowPod
from hack.hollow_node.script import Timing
from hack.kubernetes_versions import CONTAINERS_END_BEFORE_PHASE
from judge.slots import attempt_of_pod, slot_of
from kit.model.storage import Body, Change, Feed
from kit.virtual_loop import NETWORK
from simulation.lives import Fate, Life
from simulation.nodes import Nodes
from simulation.pod_writer import PodWriter
from simulation.scripts import STUCK, TEMPER, DrawnScript, Script
from simulation.world import World
from tfjob_operator.api.core import PODS

TIMINGS: Final = (Timing(scale=0.1), Timing(scale=0.1, starting=6.0))
"""For pods that skip the stages of a start, and for others that report them all; back-off up to 30s."""


class Kubelet:
    """Scheduler, kubelets and node controller of all nodes.

    Invariant: a fate contains only what was reported to the server, and the fate of a finished pod does not change.
    """

    def __init__(self, world: World, random: Random, *, script: Script | None = None) -> None:
        self._script = script or Script()
        self.fates: dict[str, Fate] = {}
        """Fates by pod UID, including those of deleted pods."""
        self._world = world
        self._random = random
        self._feed = Feed(world.server.storage, PODS)
        self._lives: dict[str, Life] = {}
        self._tries: Counter[tuple[object, ...]] = Counter()
        self.writer = PodWriter(world)
        self.nodes = Nodes(world, random, self)
        world.server.on_change.append(self._look)

    @property
    def is_at_rest(self) -> bool:
        """Whether no pod or node has anything left to do."""
        return self.nodes.are_at_rest and all(life.timer is None for life in self._lives.values())

    def knows(self, uid: str) -> bool:
        return uid in self._lives

    def on(self, node: str) -> list[Life]:
        return [life for life in self._lives.values() if life.node == node]

    def shut_down(self, life: Life, grace_s: int) -> None:
        """Start the shutdown of the pod's node.

        A pod whose work has ended already is skipped, because its status after the shutdown would be ambiguous.
        """
        if not life.leaving and not life.done and life.fate.end is None:
            life.place = replace(life.place, shutdown=Shutdown(self._world.server.now(), grace_s))
            self._soon(life, 1.0, self._sync)

    def resume(self, life: Life) -> None:
        """Restart the pod's kubelet when its node is back: it knows only what it had reported."""
        life.place = replace(life.place, shutdown=None, up_since=self._world.server.now())
        life.status = life.told
        if life.due:
            life.due = False
            self._soon(life, 1.0, self._sync)

    def _look(self) -> None:
        for change in self._feed.news():
            self._hear(change)

    def _hear(self, change: Change) -> None:
        meta = change.new.body["metadata"]
        life = self._lives.get(meta["uid"])
        if life is None:
            if change.old is None:
                self._begin(change)
        elif change.gone:
            self._forget(life)
        elif _deletion(meta) != (change.old and _deletion(change.old.body["metadata"])):
            life.leaving = True
            life.pod = msgspec.structs.replace(life.pod, metadata=msgspec.convert(meta, HollowMeta))
            self._soon(life, 3.0, self._sync)

    def _begin(self, change: Change) -> None:
        body = change.new.body
        owners = body["metadata"].get("ownerReferences") or [{"uid": ""}]
        fate = Fate(body["metadata"]["uid"], owners[0]["uid"], slot_of(body["metadata"]), attempt_of_pod(body))
        pod = msgspec.convert(body, HollowPod)
        script = DrawnScript(self._script, self._random, pod, partial(self._count, fate), self._world.kubernetes)
        place = Place("", "192.0.2.1", "10.244.0.1", self._random.choice(TIMINGS), self._world.kubernetes)
        life = Life(change.new.key, pod, fate, script, place)
        self._lives[fate.uid] = life
        self.fates[fate.uid] = fate
        if (pod.metadata.annotations or {}).get(TEMPER) != STUCK:
            self._soon(life, 2.0, self._bind)

    def _count(self, fate: Fate, container: str) -> int:
        """Count a run of a container; return the number of earlier runs of its replica, in all pods."""
        place = fate.owner, fate.slot, container
        self._tries[place] += 1
        return self._tries[place] - 1

    def _bind(self, life: Life) -> None:
        life.place = replace(life.place, node=self.nodes.choose())
        life.fate.node = life.node
        self.writer.bind(life)
        self._soon(life, 1.0, self._sync)

    def _sync(self, life: Life) -> None:
        """Advance the pod to now, and report the status at once, or later with the status of that time."""
        now = self._world.server.now()
        step = advance(life.pod, life.script, life.status, now, life.place)
        is_news, life.status = step.status != life.status, step.status
        final = step.removal is Removal.FINAL
        if is_news and not final and self._is_hurried():
            self._soon(life, 1.0, self._sync)
            return
        if life.status != life.told and not (final and self._goes_untold()) and not self.writer.tell(life):
            return
        if final:
            self._soon(life, 1.0, partial(self.writer.delete, client="kubelet", grace=0))
        elif step.look_at is not None:
            self._soon(life, 1.0, self._sync, at_least_s=max(0.0, (step.look_at - now) / timedelta(seconds=1)))

    def _is_hurried(self) -> bool:
        """Whether a state is so short that only its successor is reported."""
        return self._random.random() < 0.3

    def _goes_untold(self) -> bool:
        """Whether the last status of a pod is never reported: old kubelets delete the pod even then."""
        return not self._world.kubernetes.has(CONTAINERS_END_BEFORE_PHASE) and self._is_hurried()

    def _forget(self, life: Life) -> None:
        if life.timer is not None:
            life.timer.cancel()
        life.fate.runs = False
        del self._lives[life.fate.uid]

    def _soon(self, life: Life, at_most_s: float, step: Callable[[Life], None], *, at_least_s: float = 0.0) -> None:
        """Schedule a pod's next step in place of the previous timer. Steps wait while the node is silent."""
        if life.timer is not None:
            life.timer.cancel()

        def take() -> None:
            life.timer = None
            if self.nodes.is_silent(life.node):
                life.due = True
            else:
                step(life)

        delay_s = at_least_s + 0.05 + self._random.random() * at_most_s
        life.timer = asyncio.get_running_loop().call_later(delay_s, take, context=NETWORK)


def _deletion(meta: Body) -> tuple[Any, Any]:
    return meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds")
