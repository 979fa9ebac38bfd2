"""Informers under faults: caches, indices and handlers always converge to the server's state."""

import asyncio
from random import Random
from typing import Final

from kit.model.kinds import CONFIG_MAPS
from kit.model.storage import Version
from kit.world import require
from simulation.world import World
from tfjob_operator.api.client.errors import ConflictError, NotFoundError
from tfjob_operator.api.meta import Object, ObjectMeta, Resource, Struct, meta_key
from tfjob_operator.informers import Codec, SharedIndexInformer, SharedInformerFactory, Tombstone, key_of, object_of

NAMESPACES: Final = ("blue", "green")
NAMES: Final = ("a", "b", "c", "d", "e")
COLORS: Final = ("red", "gold", "")

SETTLED_S: Final = 200.0
"""Seconds after the end of the faults: a frozen watch is detected after 80s, then up to two back-offs of 60s follow."""


class ConfigMap(Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] | None = None


def color_of(item: Object) -> list[str]:
    """Index function with no value for some objects."""
    color = item.metadata.label_map().get("color", "")
    return [color] if color else []


class View:
    """A handler that rebuilds the collection from notifications, and checks their consistency (SI-01, SI-02, SI-04).

    Invariant: `items` follows from the notifications alone.
    """

    def __init__(self, world: World, name: str, informer: SharedIndexInformer[ConfigMap]) -> None:
        self.items: dict[str, ConfigMap] = {}
        self.name = name
        self._world = world
        self._informer = informer
        self._newest: dict[str, int] = {}

    def on_add(self, item: ConfigMap, is_in_initial_list: bool, /) -> None:
        key = self._check(item)
        self._world.note(self.name, "add", key, item.metadata.resource_version, is_in_initial_list)
        require(key not in self.items, f"{self.name}: {key} is added, and was there")
        self.items[key] = item

    def on_update(self, old: ConfigMap, new: ConfigMap, /) -> None:
        key = self._check(new)
        self._world.note(self.name, "update", key, new.metadata.resource_version)
        require(self.items.get(key) == old, f"{self.name}: the update of {key} does not begin where the last one ended")
        self.items[key] = new

    def on_delete(self, item: ConfigMap | Tombstone[ConfigMap], /) -> None:
        key = key_of(item)
        self._world.note(self.name, "delete", key, object_of(item).metadata.resource_version)
        require(key in self.items, f"{self.name}: {key} is deleted, and was not there")
        if isinstance(item, Tombstone):
            require(self.items[key] == item.object, f"{self.name}: the tombstone of {key} is not its last known state")
        del self.items[key]

    def _check(self, item: ConfigMap) -> str:
        key, version = meta_key(item.metadata), int(item.metadata.resource_version)
        require(version >= self._newest.get(key, 0), f"{self.name}: {key} goes back to version {version}")
        self._newest[key] = version
        cached = self._informer.indexer.get(key)
        behind = cached is not None and int(cached.metadata.resource_version) < version
        require(not behind, f"{self.name} hears of {key} at {version} before the cache does")
        return key


async def write_at_random(world: World, resource: Resource, name: str, random: Random, count: int) -> None:
    """Create, change and delete objects with pauses, until the faults end."""
    client = world.client(name)
    for _ in range(count):
        await asyncio.sleep(random.expovariate(count / world.calm_at))
        namespace, key = random.choice(NAMESPACES), random.choice(NAMES)
        color = random.choice(COLORS)
        labels = {"color": color} if color else {}
        body = {"metadata": {"name": key, "labels": labels}, "data": {"n": str(random.randrange(3))}}
        try:
            match random.choice(("put", "put", "put", "delete", "replace")):
                case "delete":
                    await client.delete(resource, namespace, key)
                case "replace":  # deleted and recreated, possibly before any watch shows it (SI-11)
                    await client.delete(resource, namespace, key)
                    await client.create(resource, namespace, body)
                case _:
                    try:
                        await client.create(resource, namespace, body)
                    except ConflictError:
                        await client.update(resource, namespace, key, body)
        except (NotFoundError, ConflictError):
            pass  # another writer was faster


async def informers_converge(world: World) -> None:
    """Play random writes, faults, late handlers and resyncs. After the faults, check everything."""
    random = world.random
    await world.create_namespaces(*NAMESPACES)
    factory = SharedInformerFactory(
        world.client("informers", world.faulty("informers")), clock=world.clock, random=world.product_random
    )
    informers = _choose_informers(factory, random)
    views: list[View] = []
    async with asyncio.TaskGroup() as group:
        writers = [
            group.create_task(write_at_random(world, CONFIG_MAPS, f"writer-{number}", random, 12), name="writer")
            for number in range(2)
        ]
        factory.start(group)
        for number in range(len(informers) + 1):
            informer = random.choice([*informers.values()])
            view = View(world, f"view-{number}", informer)
            informer.add_event_handler(view, resync_s=random.choice((None, None, 7.0)))
            views.append(view)
            await asyncio.sleep(random.choice((0.0, 0.0, 5.0, 30.0)))
        await asyncio.wait(writers)
        await asyncio.sleep(max(0.0, world.calm_at - world.time) + SETTLED_S)
        for selector, informer in informers.items():
            _check_cache(world, informer, selector)
        for view in views:
            cached = dict(view._informer.indexer.items())
            require(view.items == cached, f"{view.name} has {sorted(view.items)}, the cache has {sorted(cached)}")
        await factory.shut_down()


def _choose_informers(
    factory: SharedInformerFactory, random: Random
) -> dict[tuple[str, str], SharedIndexInformer[ConfigMap]]:
    """Create one to three informers, by namespace and selector."""
    choices = [("", ""), ("blue", ""), ("", "color=red"), ("green", "color in (red, gold)"), ("", "!color")]
    codec = Codec(CONFIG_MAPS, ConfigMap)
    chosen = {}
    for namespace, selector in random.sample(choices, random.choice((1, 1, 2, 3))):
        chosen[namespace, selector] = factory.informer(
            codec,
            namespace=namespace,
            label_selector=selector,
            indexers={"color": color_of},
            resync_s=random.choice((0.0, 5.0)),
        )
    return chosen


def _check_cache(world: World, informer: SharedIndexInformer[ConfigMap], selection: tuple[str, str]) -> None:
    truth = {
        "/".join(version.key): version
        for version in world.server.storage.collections["configmaps"].objects.values()
        if _selects(selection, version)
    }
    indexer = informer.indexer
    cached = {key: item.metadata.resource_version for key, item in indexer.items()}
    wanted = {key: str(version.rv) for key, version in truth.items()}
    require(cached == wanted, f"{informer.name}: cached {cached}, on the server {wanted}")
    for key, version in truth.items():
        item = indexer.get(key)
        require(item is not None and item.data == version.body["data"], f"{informer.name}: {key} has the wrong data")
    for color in {"red", "gold"} | set(indexer.index_values("color")):
        found = sorted(indexer.index_keys("color", color))
        right = sorted(key for key, version in truth.items() if version.labels.get("color") == color)
        require(found == right, f"{informer.name}: index color={color} has {found}, should have {right}")
    require(informer.has_synced, f"{informer.name} has not synced")


def _selects(selection: tuple[str, str], version: Version) -> bool:
    namespace, selector = selection
    color = version.labels.get("color")
    wanted = {"": True, "color=red": color == "red", "!color": color is None}
    return namespace in {"", version.key[0]} and wanted.get(selector, color in {"red", "gold"})
