"""A controller that keeps deleted pods for a while by a finalizer: until their logs are saved, for example."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from simulation.feed import Feed
from simulation.model.network import NETWORK
from simulation.model.storage import Change, Key
from simulation.world import World
from tfjob_operator.api.core import PODS

HELD: Final = "simulation/held"
"""The finalizer."""


class Holders:
    """Remove the finalizer some seconds after a pod was deleted, so its last state can be seen until then."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self._feed = Feed(world.server.storage, PODS)
        world.server.on_change.append(self._look)

    def _look(self) -> None:
        for change in self._feed.news():
            self._hear(change)

    def _hear(self, change: Change) -> None:
        told = "deletionTimestamp" in change.new.body["metadata"]
        before = change.old is not None and "deletionTimestamp" in change.old.body["metadata"]
        if told and not before and HELD in change.new.body["metadata"].get("finalizers", ()):
            seconds = self._random.uniform(1.0, 12.0)
            uid = change.new.body["metadata"]["uid"]
            asyncio.get_running_loop().call_later(seconds, self._let_go, change.new.key, uid, context=NETWORK)

    def _let_go(self, key: Key, uid: str) -> None:
        self._world.act("holder", "PATCH", PODS.path(*key), {"metadata": {"uid": uid, "finalizers": None}})
