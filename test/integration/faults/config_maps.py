"""The ConfigMaps of a namespace, written and read without a proxy, so tests know the server's true state."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Final

import msgspec

from hack.control_plane import ControlPlane
from tfjob_operator.api.client import HttpTransport, ListOptions, RestClient, load_settings
from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct, meta_key

CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
OURS: Final = "metadata.name!=kube-root-ca.crt"  # a config map that the server puts into every namespace
PATIENCE_S: Final = 30.0  # for what takes a second on a machine that does nothing else
CREATORS: Final = 8  # creates in flight at once; two cores are busy with fewer
WRITERS: Final = 3  # so that conflicts and overtaking happen


class ConfigMap(Struct, frozen=True):
    metadata: ObjectMeta


class ConfigMapList(Struct, frozen=True):
    """A list of config maps, with the resource version of the list."""

    metadata: ObjectMeta
    items: list[ConfigMap]


class _Content(ConfigMap, frozen=True):
    data: dict[str, str]


class _ContentList(Struct, frozen=True):
    items: list[_Content]


Versions = dict[str, str]
"""The resource version of each object, by key."""


def versions_of(items: Iterable[ConfigMap]) -> Versions:
    return {meta_key(item.metadata): item.metadata.resource_version for item in items}


@asynccontextmanager
async def load(step: Callable[[], Awaitable[None]], *, writers: int = 1, pause_s: float = 0.0) -> AsyncIterator[None]:
    """Repeat a step until the block ends. A step that the server refuses is ignored; one that is under way is not cancelled."""
    done = asyncio.Event()

    async def write() -> None:
        while not done.is_set():
            with contextlib.suppress(ApiError):
                await step()
            await asyncio.sleep(pause_s)

    async with asyncio.TaskGroup() as tasks:
        for number in range(writers):
            tasks.create_task(write(), name=f"writer {number}")
        try:
            yield
        finally:
            done.set()


class ConfigMaps:
    """The config maps of one namespace, reached past every proxy."""

    def __init__(self, client: RestClient, namespace: str) -> None:
        self.namespace = namespace
        self.written: set[tuple[str, str]] = set()
        """Key and version of each object that was created or changed here."""
        self._client = client

    async def put(self, name: str, data: str = "", labels: dict[str, str] | None = None) -> None:
        body = {"metadata": {"name": name, "labels": labels}, "data": {"x": data}}
        self._note(await self._client.create(CONFIG_MAPS, self.namespace, body))

    async def put_all(self, names: Iterable[str], data: str = "") -> None:
        """Create many, some at a time."""
        left = iter(names)

        async def create() -> None:
            for name in left:
                await self.put(name, data)

        await asyncio.gather(*(create() for _ in range(CREATORS)))

    async def change(self, name: str, data: str, labels: dict[str, str] | None = None) -> None:
        body = {"metadata": {"labels": labels or {}}, "data": {"x": data}}
        self._note(await self._client.patch(CONFIG_MAPS, self.namespace, name, body))

    async def delete(self, name: str) -> None:
        await self._client.delete(CONFIG_MAPS, self.namespace, name)

    def churned(self, objects: int, dice: Random, *, pause_s: float = 0.0) -> AbstractAsyncContextManager[None]:
        """Let some writers create, change and delete at random as long as the block lasts."""
        names = [f"c{number}" for number in range(objects)]
        return load(lambda: self._do_something(dice.choice(names), dice), writers=WRITERS, pause_s=pause_s)

    async def _do_something(self, name: str, dice: Random) -> None:
        data, labels = str(dice.random()), {"side": dice.choice(["left", "right"])}
        match dice.randrange(4):
            case 0:
                await self.delete(name)
            case 1:
                await self.put(name, data, labels)
            case _:
                await self.change(name, data, labels)

    async def truth(self, *, label_selector: str = "") -> Versions:
        return versions_of((await self._list(ListOptions(label_selector=label_selector))).items)

    async def revision(self) -> int:
        return int((await self._list(ListOptions())).metadata.resource_version)

    async def contents(self) -> dict[str, str]:
        """The data of each config map, by name."""
        listed = msgspec.json.decode(await self._list_bytes(ListOptions()), type=_ContentList)
        return {item.metadata.name: item.data.get("x", "") for item in listed.items}

    async def _list(self, options: ListOptions) -> ConfigMapList:
        return msgspec.json.decode(await self._list_bytes(options), type=ConfigMapList)

    async def _list_bytes(self, options: ListOptions) -> bytes:
        narrowed = replace(options, namespace=self.namespace, field_selector=OURS)
        return await self._client.list_page(CONFIG_MAPS, narrowed)

    def _note(self, body: bytes) -> None:
        self.written.update(versions_of([msgspec.json.decode(body, type=ConfigMap)]).items())


@asynccontextmanager
async def config_maps(plane: ControlPlane, namespace: str) -> AsyncIterator[ConfigMaps]:
    """The config maps of a namespace, over connections on the running loop."""
    settings = await asyncio.to_thread(load_settings, str(plane.kubeconfig))
    async with HttpTransport(settings) as transport:
        yield ConfigMaps(RestClient(transport), namespace)
