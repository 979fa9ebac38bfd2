"""The work queue in a toy controller, which is killed and restarted: every key is processed, by one worker at a time.

For each config map with the label `keep` the controller keeps a copy of its data in another one, `<name>.copy`. Like any
controller it acts on its caches, which may be stale, and learns of its errors from the server's responses.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from simulation.faults import FaultyTransport
from simulation.model.kinds import CONFIG_MAPS
from simulation.model.storage import Version
from simulation.scenarios.informers import NAMESPACES, SETTLED_S, ConfigMap, write_at_random
from simulation.world import World, require
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ApiError, NotFoundError
from tfjob_operator.api.meta import Object, meta_key
from tfjob_operator.informers import Codec, EventHandlerFuncs, SharedInformerFactory, Tombstone, key_of
from tfjob_operator.workqueue import RateLimitingQueue, ShutDown, default_controller_rate_limiter

COPY: Final = ".copy"
WORKERS: Final = 3
QUIET_S: Final = 700.0
"""How long there must be no writes after the end: longer than a watch lives, so that watches are reopened meanwhile."""


class MirrorController:
    """Informers, a queue and workers, as every controller has them.

    Invariant: at most one worker processes a key at a time; `sync` reads only the caches.
    """

    def __init__(self, world: World, client: RestClient) -> None:
        self._world = world
        self._client = client
        self._factory = SharedInformerFactory(client, clock=world.clock, random=world.product_random)
        codec = Codec(CONFIG_MAPS, ConfigMap)
        self._sources = self._factory.informer(codec, label_selector="color in (red,gold)")
        self._copies = self._factory.informer(codec, label_selector="copy=yes")
        self._queue: RateLimitingQueue[str] = RateLimitingQueue(
            default_controller_rate_limiter(clock=world.clock), clock=world.clock
        )
        self._in_work: set[str] = set()
        for informer in (self._sources, self._copies):
            informer.add_event_handler(
                EventHandlerFuncs(
                    on_add=lambda item, _initial: self._enqueue(item),
                    on_update=lambda _old, new: self._enqueue(new),
                    on_delete=self._enqueue,
                )
            )

    async def run(self) -> None:
        """Work until `stop`, or until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            self._factory.start(group)
            await self._factory.wait_for_cache_sync(10_000.0)
            for number in range(WORKERS):
                group.create_task(self._work(), name=f"mirror-worker-{number}")

    async def stop(self) -> None:
        """Drain the queue and stop the informers."""
        await self._queue.shut_down_with_drain()
        await self._factory.shut_down()

    def _enqueue(self, item: ConfigMap | Tombstone[ConfigMap]) -> None:
        self._queue.add(key_of(item).removesuffix(COPY))

    async def _work(self) -> None:
        while True:
            try:
                key = await self._queue.get()
            except ShutDown:
                return
            require(key not in self._in_work, f"{key} is in two hands")
            self._in_work.add(key)
            try:
                await self._sync(key)
            except ApiError:
                self._queue.add_rate_limited(key)
            else:
                self._queue.forget(key)
            finally:
                self._in_work.remove(key)
                self._queue.done(key)
            await asyncio.sleep(0)

    async def _sync(self, key: str) -> None:
        source, copy = self._sources.indexer.get(key), self._copies.indexer.get(key + COPY)
        namespace, _, name = (key + COPY).partition("/")
        self._world.note("sync", key, _version(source), _version(copy))
        if source is None:
            if copy is not None:
                try:
                    await self._client.delete(CONFIG_MAPS, namespace, name, uid=copy.metadata.uid)
                except NotFoundError:
                    return
            return
        body: dict[str, Any] = {"metadata": {"name": name, "labels": {"copy": "yes"}}, "data": source.data}
        if copy is None:
            await self._client.create(CONFIG_MAPS, namespace, body)
        elif copy.data != source.data:
            body["metadata"]["resourceVersion"] = copy.metadata.resource_version
            await self._client.update(CONFIG_MAPS, namespace, name, body)


def _version(item: Object | None) -> str:
    return f"{meta_key(item.metadata)}@{item.metadata.resource_version}" if item is not None else "-"


async def no_key_is_lost(world: World) -> None:
    """Users write, the controller is killed now and then; in the end every copy is right, and there are no more writes."""
    random = world.random
    await world.create_namespaces(*NAMESPACES)
    async with asyncio.TaskGroup() as group:
        writers = [
            group.create_task(write_at_random(world, CONFIG_MAPS, f"writer-{number}", random, 10), name="writer")
            for number in range(2)
        ]
        life = 0
        while world.time < world.calm_at:
            life += 1
            transport = world.faulty(f"controller-{life}")
            running = _start(world, group, transport, life)
            await asyncio.sleep(random.choice((random.uniform(0.0, 40.0), world.calm_at)))
            if world.time < world.calm_at:
                await _kill(world, running, transport)
        await asyncio.wait(writers)
        await asyncio.sleep(SETTLED_S)
        _check_copies(world)
        last_write = len(world.server.writes)
        await asyncio.sleep(QUIET_S)
        require(len(world.server.writes) == last_write, f"nothing to do, but: {world.server.writes[last_write:]}")
        controller, task = running
        await controller.stop()
        await task


Running = tuple[MirrorController, asyncio.Task[None]]


def _start(world: World, group: asyncio.TaskGroup, transport: FaultyTransport, life: int) -> Running:
    world.note("start", life)
    controller = MirrorController(world, world.client(f"controller-{life}", transport))
    return controller, group.create_task(controller.run(), name=f"controller-{life}")


async def _kill(world: World, running: Running, transport: FaultyTransport) -> None:
    """End a process as a SIGKILL does: no request of its clean-up code arrives."""
    world.note("kill")
    transport.kill()
    running[1].cancel()
    await asyncio.wait([running[1]])


def _check_copies(world: World) -> None:
    objects = world.server.storage.collections["configmaps"].objects
    wanted = {_path(version) + COPY: version.body["data"] for version in objects.values() if "color" in version.labels}
    found = {_path(version): version.body["data"] for version in objects.values() if "copy" in version.labels}
    require(found == wanted, f"the copies are {found}, should be {wanted}")


def _path(version: Version) -> str:
    return "/".join(version.key)
