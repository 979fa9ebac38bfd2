"""An informer behind a proxy, the requests that it sent, and a handler that checks its notifications."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hack.control_plane import ControlPlane
from hack.fault_proxy.proxy import Action, Proxy, Seen
from hack.kubernetes_versions import STREAMING_LISTS
from integration.faults.config_maps import CONFIG_MAPS, OURS, PATIENCE_S, ConfigMap, Versions, versions_of
from tfjob_operator.api.client import HttpTransport, RestClient, Settings
from tfjob_operator.api.meta import meta_key
from tfjob_operator.informers import (
    Codec,
    ReflectorOptions,
    SharedIndexInformer,
    SharedInformerFactory,
    Tombstone,
    key_of,
    object_of,
)


class Replay:
    """A handler that rebuilds the collection from its notifications, and notes those that contradict earlier ones."""

    def __init__(self) -> None:
        self.now: Versions = {}
        self.told: set[tuple[str, str]] = set()
        self.faults: list[str] = []

    def on_add(self, item: ConfigMap, _is_in_initial_list: bool, /) -> None:
        key = key_of(item)
        self._expect(key not in self.now, f"{key} is added twice")
        self._take(item)

    def on_update(self, old: ConfigMap, new: ConfigMap, /) -> None:
        """Check that the old object is the last that we were told."""
        self._expect(versions_of([old]).items() <= self.now.items(), f"{key_of(old)} was never told as it was")
        self._take(new)

    def on_delete(self, item: ConfigMap | Tombstone[ConfigMap], /) -> None:
        """Check that the object was there, and that a tombstone holds its last version that we know."""
        key, last = key_of(item), object_of(item).metadata.resource_version
        known = self.now.pop(key, None)
        self._expect(known == last if isinstance(item, Tombstone) else known is not None, f"{key} was not there")

    def _take(self, item: ConfigMap) -> None:
        key, version = meta_key(item.metadata), item.metadata.resource_version
        self._expect((key, version) not in self.told, f"{key} is told twice at version {version}")
        self.told.add((key, version))
        self.now[key] = version

    def _expect(self, holds: bool, fault: str) -> None:
        if not holds:
            self.faults.append(fault)


class Follower:
    """An informer of config maps behind a proxy, and a handler that replays what it says."""

    def __init__(self, proxy: Proxy, informer: SharedIndexInformer[ConfigMap]) -> None:
        self.proxy = proxy
        self.informer = informer
        self.handler = Replay()
        informer.add_event_handler(self.handler)
        self._begun = 0
        self._last = ""

    @property
    def cached(self) -> Versions:
        return versions_of(self.informer.indexer.list())

    def count(self, verb: str) -> int:
        return sum(seen.verb == verb for seen in self.proxy.history)

    def begin_chapter(self) -> None:
        """Let `story` begin here."""
        self._begun = len(self.proxy.history)
        self._last = self.informer.last_resource_version

    @property
    def chapter(self) -> list[Seen]:
        """The requests since the chapter began."""
        return self.proxy.history[self._begun :]

    def story(self) -> list[str]:
        """The requests of the chapter in short. "watch last" begins at the last version seen before the chapter, "list any" has
        no version and returns the newest state, and "watch" alone follows a list that succeeded.
        """
        told: list[str] = []
        listed = False
        for seen in self.chapter:
            version = seen.query.get("resourceVersion", "")
            place = {self._last: "last", "": "any"}.get(version, version)
            told.append(seen.verb if listed and seen.verb == "watch" else f"{seen.verb} {place}")
            listed = listed or (seen.verb == "list" and seen.status == 200)
        return told

    def pauses(self) -> list[float]:
        """The seconds before each request of the chapter but the first."""
        return [after.at - before.at for before, after in zip(self.chapter, self.chapter[1:], strict=False)]


@asynccontextmanager
async def follower(
    plane: ControlPlane,
    namespace: str,
    *,
    name: str = "",
    label_selector: str = "",
    idle_s: float = PATIENCE_S,
    answer_s: float = PATIENCE_S,
    stream_lists: bool = False,
    first: Action | None = None,
) -> AsyncIterator[Follower]:
    """Follow the config maps of a namespace through a new proxy; with `name` only that one.

    A watch is given up after `idle_s` seconds of silence, any other request after `answer_s`. Nothing is random: each
    back-off lasts the shortest time allowed. `first` is what the proxy does with the first watch that is served. Lists are
    plain unless `stream_lists`, since only new servers stream them.
    """
    async with Proxy(plane.kubeconfig) as proxy, HttpTransport(Settings(proxy.url)) as transport:
        client = RestClient(transport, request_s=answer_s, list_s=answer_s, watch_s=answer_s)
        if first is not None:
            streams = plane.version.has(STREAMING_LISTS)
            proxy.rule(lambda seen: seen.verb == "watch" and ("sendInitialEvents" in seen.query) == streams, first)
        options = ReflectorOptions(stream_lists=stream_lists)
        factory = SharedInformerFactory(client, random=lambda: 0.0, idle_s=idle_s, options=options)
        informer = factory.informer(
            Codec(CONFIG_MAPS, ConfigMap),
            namespace=namespace,
            label_selector=label_selector,
            field_selector=f"metadata.name={name}" if name else OURS,
        )
        follows = Follower(proxy, informer)
        async with asyncio.TaskGroup() as tasks:
            factory.start(tasks)
            try:
                await factory.wait_for_cache_sync(PATIENCE_S)
                yield follows
            finally:
                await factory.shut_down()
