"""Somebody who uses a cluster: what all users of the simulation have in common."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from simulation.model.network import NETWORK
from simulation.model.storage import Body
from simulation.world import World
from tfjob_operator.api.client.http import Request
from tfjob_operator.api.meta import Resource


class Person:
    """Sends requests as `user`, and reads the jobs of one API from storage, not from a cache.

    `done_at` is when the last planned action is done, in seconds of the world.
    """

    def __init__(self, world: World, jobs: Resource) -> None:
        self._world = world
        self._jobs = jobs
        self.done_at = 0.0

    def _at(self, seconds: float, act: Any, *args: Any) -> None:
        due = self._world.time + seconds
        self.done_at = max(self.done_at, due)
        asyncio.get_running_loop().call_at(due, act, *args, context=NETWORK)

    def _job(self, place: tuple[str, str]) -> Body | None:
        found = self._world.server.storage.collections[self._jobs.plural].objects.get(place)
        return found.body if found else None

    def _send(self, method: str, path: str, body: dict[str, Any]) -> int:
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = Request(method, path, {}, msgspec.json.encode(body), content_type)
        status = self._world.server.exchange(request, "user").status
        self._world.note("user", method, path, body, status)
        return status
