"""A very small kubelet and scheduler: pods get a node, run, end with an exit code, and go when they are told to.

It is a client like any other, over a transport of its own: a truer model of a node can take its place.
"""

from __future__ import annotations

import asyncio
import enum
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.client import RestClient
from api.client.errors import ConflictError, InvalidError, NotFoundError, TransportError
from api.client.rest import STRATEGIC_MERGE_PATCH, ListOptions
from api.client.transport import Request
from api.core import PODS
from simulation.model.transport import ModelTransport

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from simulation.world import World

NEVER_S: Final = 1e9
SLOWEST_S: Final = 4.0
"""The longest time that a pod spends on one step of its life."""

Ended = tuple[str, str]
"""UID of the owner and name of a pod that has ended well."""


class Step(enum.Enum):
    """Where a pod is in its life."""

    NEW = enum.auto()
    BOUND = enum.auto()
    RUNNING = enum.auto()
    ENDED = enum.auto()
    GOING = enum.auto()


@dataclass(slots=True)
class _Life:
    """What one pod will do and when; `exit_code` None is a pod that runs for ever."""

    next_at: float
    starts_after_s: float
    runs_for_s: float
    gone_after_s: float
    exit_code: int | None
    step: Step = Step.NEW


class Kubelet:
    """Runs all pods of the cluster. `exit_code` is asked once of each pod how it will end.

    Invariant: a pod's life only goes forward. `repeated` names the pods that were made again for a living job although they had
    ended well. (For a job that is deleted this happens until its controller hears of it, and the garbage collector cleans up.)
    """

    def __init__(self, world: World, random: Random, exit_code: Callable[[dict[str, Any]], int | None]) -> None:
        self._world = world
        self._random = random
        self._exit_code = exit_code
        self._transport = world.traced("kubelet", ModelTransport(world.server, "kubelet"))
        self._client = RestClient(self._transport, clock=world.clock)
        self._lives: dict[str, _Life] = {}
        self._succeeded: set[Ended] = set()
        self._pods: dict[str, dict[str, Any]] = {}
        self._changed = asyncio.Event()
        self.repeated: list[str] = []

    async def run(self) -> None:
        """Go on until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._see(), name="kubelet-watch")
            while True:
                self._changed.clear()  # before looking: what changes meanwhile must be looked at again
                due = [await self._look_after(pod) for pod in [*self._pods.values()]]
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(min(due, default=math.inf)):
                        await self._changed.wait()

    async def _see(self) -> None:
        """Keep `_pods` true; a watch that breaks begins again with what there is."""
        while True:
            async with self._client.watch(PODS, ListOptions(resource_version="0"), idle_s=NEVER_S) as batches:
                self._pods.clear()
                with suppress(TransportError):
                    async for lines in batches:
                        for line in lines:
                            self._hear(msgspec.json.decode(line))

    def _hear(self, event: dict[str, Any]) -> None:
        pod = event["object"]
        uid = pod["metadata"]["uid"]
        if event["type"] == "DELETED":
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = pod
        self._changed.set()

    async def _look_after(self, pod: dict[str, Any]) -> float:
        """Let one pod's life go on; answer when to look again."""
        life = self._lives.get(pod["metadata"]["uid"]) or self._begin(pod)
        if "deletionTimestamp" in pod["metadata"] and life.step is not Step.GOING:
            life.step, life.next_at = Step.GOING, self._world.time + life.gone_after_s
        if self._world.time >= life.next_at:
            with suppress(
                NotFoundError, ConflictError, InvalidError
            ):  # somebody took the pod away, or put another there
                await self._go_on(pod["metadata"], life)
        return life.next_at

    async def _go_on(self, meta: dict[str, Any], life: _Life) -> None:
        step, life.next_at = life.step, math.inf
        match step:
            case Step.NEW:
                life.step, life.next_at = Step.BOUND, self._world.time + life.starts_after_s
                await self._bind(meta)
            case Step.BOUND:
                life.step = Step.RUNNING
                if life.exit_code is not None:
                    life.next_at = self._world.time + life.runs_for_s
                await self._report(meta, "Running", {"running": {"startedAt": meta["creationTimestamp"]}})
            case Step.RUNNING:
                life.step = Step.ENDED
                phase = "Succeeded" if life.exit_code == 0 else "Failed"
                if life.exit_code == 0:
                    self._succeeded.add((owner_of(meta), meta["name"]))
                await self._report(meta, phase, {"terminated": {"exitCode": life.exit_code}})
            case Step.GOING:
                await self._client.delete(PODS, meta["namespace"], meta["name"], uid=meta["uid"], grace_s=0)
            case Step.ENDED:
                pass

    def _begin(self, pod: dict[str, Any]) -> _Life:
        meta = pod["metadata"]
        if (owner_of(meta), meta["name"]) in self._succeeded and self._owner_lives(meta):
            self.repeated.append(f"{meta['name']} at {self._world.time:.3f} s")
        life = _Life(
            self._world.time + self._draw(), self._draw(), 3 * self._draw(), self._draw(), self._exit_code(pod)
        )
        self._lives[meta["uid"]] = life
        return life

    def _draw(self) -> float:
        return self._random.random() * SLOWEST_S

    def _owner_lives(self, meta: dict[str, Any]) -> bool:
        jobs = self._world.server.storage.collections["tfjobs"].objects.values()
        owners = (job.body["metadata"] for job in jobs)
        return any(each["uid"] == owner_of(meta) and "deletionTimestamp" not in each for each in owners)

    async def _bind(self, meta: dict[str, Any]) -> None:
        # A pod's binding is written by a POST to a subresource, for which an operator's client has no verb.
        body = {"metadata": {"name": meta["name"]}, "target": {"kind": "Node", "name": "node"}}
        path = PODS.path(meta["namespace"], meta["name"], "binding")
        await self._transport.send(Request("POST", path, {}, msgspec.json.encode(body)))

    async def _report(self, meta: dict[str, Any], phase: str, state: dict[str, Any]) -> None:
        containers = [{"name": "tensorflow", "restartCount": 0, "state": state}]
        status = {"phase": phase, "containerStatuses": containers}
        await self._client.patch(
            PODS,
            meta["namespace"],
            meta["name"],
            {"metadata": {"uid": meta["uid"]}, "status": status},
            subresource="status",
            content_type=STRATEGIC_MERGE_PATCH,
        )


def owner_of(meta: dict[str, Any]) -> str:
    """The UID of an object's owner, or "" for an orphan."""
    references = meta.get("ownerReferences") or [{"uid": ""}]
    return str(references[0]["uid"])
