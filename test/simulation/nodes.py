"""The nodes of a simulated cluster, and the effects on pods when one is drained, shuts down, or becomes unreachable."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from hack.hollow_node.moment import DISRUPTED, set_condition
from hack.hollow_node.objects import FAILED
from hack.kubernetes_versions import DISRUPTION_TARGET
from kit.virtual_loop import NETWORK
from simulation.world import World

if TYPE_CHECKING:  # it imports this module
    from simulation.kubelet import Kubelet

SHUTDOWN_GRACE_S: Final = 15
"""The grace period of pods on a node that shuts down (shutdownGracePeriod less that of critical pods, as recorded)."""


class _Node(enum.Enum):
    UP = "up"
    SHUTTING_DOWN = "shutting down"
    SILENT = "silent"


class Nodes:
    """All nodes, and the node controller. Pods are bound to nodes that are up; at least one is."""

    def __init__(self, world: World, random: Random, kubelet: Kubelet) -> None:
        self._world = world
        self._random = random
        self._kubelet = kubelet
        self._states = {f"node-{number}": _Node.UP for number in range(3)}
        self._troubled = 0

    @property
    def are_at_rest(self) -> bool:
        return self._troubled == 0

    @property
    def are_busy(self) -> bool:
        return bool(self._busy())

    def choose(self) -> str:
        return self._random.choice(self._up())

    def is_silent(self, node: str) -> bool:
        return self._states.get(node) is _Node.SILENT

    def silence(self, node: str) -> None:
        """Let the kubelet of a node fall silent, and nobody notice."""
        self._states[node] = _Node.SILENT

    def lose(self) -> None:
        """Lose a node. Its pods are deleted after a while, and are gone when it returns or is given up."""
        self._fall_silent(self._begin("lost"))

    def drain(self) -> None:
        """Drain a node: the eviction API deletes its pods, with their own or another grace period."""
        node = self._random.choice(self._busy() or self._up())
        self._world.note("drained", node)
        grace = self._random.choice((None, None, 60, 5))
        for life in self._kubelet.on(node):
            self._kubelet.writer.announce(life, "EvictionByEvictionAPI", "drain")
            self._kubelet.writer.delete(life, "drain", grace=grace)

    def shut_down(self) -> None:
        """Shut down a node gracefully: its kubelet ends the pods without deleting them. Then treat it as lost."""
        node = self._begin("shut down")
        self._states[node] = _Node.SHUTTING_DOWN
        for life in self._kubelet.on(node):
            self._kubelet.shut_down(life, SHUTDOWN_GRACE_S)
        self._later(SHUTDOWN_GRACE_S + 3.0, self._fall_silent, node)

    def _up(self) -> list[str]:
        return [name for name, state in self._states.items() if state is _Node.UP]

    def _busy(self) -> list[str]:
        return [name for name in self._up() if any(life.fate.runs for life in self._kubelet.on(name))]

    def _begin(self, trouble: str) -> str:
        """Choose a node to fail, preferably a busy one; another takes its place."""
        node = self._random.choice(self._busy() or self._up())
        self._world.note(trouble, node)
        self._states[f"node-{len(self._states)}"] = _Node.UP
        self._troubled += 1
        return node

    def _fall_silent(self, node: str) -> None:
        self._states[node] = _Node.SILENT
        self._later(self._random.uniform(2.0, 8.0), self._give_up, node)

    def _give_up(self, node: str) -> None:
        """Give up on a node as the node controller does: delete its pods. Then it returns, or the pods are force-deleted."""
        for life in self._kubelet.on(node):
            self._kubelet.writer.announce(life, "DeletionByTaintManager", "node-controller")
            self._kubelet.writer.delete(life, "node-controller")
        back = self._random.random() < 0.5
        self._later(self._random.uniform(3.0, 20.0), self._return if back else self._sweep, node)

    def _return(self, node: str) -> None:
        self._world.note("back", node)
        self._troubled -= 1
        self._states[node] = _Node.UP
        for life in self._kubelet.on(node):
            self._kubelet.resume(life)

    def _sweep(self, node: str) -> None:
        self._troubled -= 1
        for life in self._kubelet.on(node):
            if not life.done and self._world.kubernetes.has(DISRUPTION_TARGET):
                now = self._world.server.now()
                swept = set_condition(life.told.conditions, DISRUPTED, holds=True, now=now, reason="DeletionByPodGC")
                life.status = replace(life.told, phase=FAILED, conditions=swept)
                self._kubelet.writer.tell(life, "pod-gc")
            self._kubelet.writer.delete(life, "pod-gc", grace=0)

    @staticmethod
    def _later(seconds: float, step: Callable[[str], None], node: str) -> None:
        asyncio.get_running_loop().call_later(seconds, partial(step, node), context=NETWORK)
