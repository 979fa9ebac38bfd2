"""A complete controller: every ConfigMap with the label `mirror=yes` gets a copy, NAME-mirror.

The copy follows its source, is made again when somebody deletes it, and goes when the source goes (it is owned by it).
Run it with `KUBECONFIG=FILE python -m hack.examples.mirror`; docs/write-a-controller.md explains it part by part.
"""

from __future__ import annotations

import asyncio
import contextlib

from tfjob_operator.api.client import HttpTransport, RestClient, Settings, load_settings
from tfjob_operator.api.client.errors import AlreadyExistsError
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct, controller_of, meta_key, object_key
from tfjob_operator.controller.manager import Controller, Manager
from tfjob_operator.informers import Codec, EventHandlerFuncs, SharedInformerFactory, Tombstone, object_of

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


class ConfigMap(Struct, frozen=True):
    """The part of a ConfigMap that this controller reads."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


class Mirror:
    """Keeps the copies."""

    def __init__(self, client: RestClient, informers: SharedInformerFactory) -> None:
        self._client = client
        self._config_maps = informers.informer(Codec(CONFIG_MAPS, ConfigMap))
        self.controller = Controller("mirror", self.sync)
        handler = EventHandlerFuncs[ConfigMap](
            on_add=lambda item, _: self._enqueue(item),
            on_update=lambda _, new: self._enqueue(new),
            on_delete=self._enqueue,
        )
        self._config_maps.add_event_handler(handler)

    def _enqueue(self, item: ConfigMap | Tombstone[ConfigMap]) -> None:
        """Queue the source: of a copy, the ConfigMap that owns it; else the ConfigMap itself."""
        meta = object_of(item).metadata
        owner = controller_of(meta)
        self.controller.queue.add(object_key(meta.namespace, owner.name) if owner is not None else meta_key(meta))

    async def sync(self, key: str) -> None:
        """Compare what is with what should be, and mend the difference; never mind what woke us."""
        source = self._config_maps.indexer.get(key)
        if source is None or (source.metadata.labels or {}).get("mirror") != "yes":
            return
        meta, copy = source.metadata, self._config_maps.indexer.get(f"{key}-mirror")
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta.name, "uid": meta.uid, "controller": True}
        wanted = {"name": f"{meta.name}-mirror", "ownerReferences": [owner]}
        if copy is None:
            with contextlib.suppress(AlreadyExistsError):  # the cache will show it in a moment, and wake us
                await self._client.create(CONFIG_MAPS, meta.namespace, {"metadata": wanted, "data": source.data})
        elif copy.data != source.data:
            wanted["resourceVersion"] = copy.metadata.resource_version  # a stale view is refused, and tried again
            body = {"metadata": wanted, "data": source.data}
            await self._client.update(CONFIG_MAPS, meta.namespace, copy.metadata.name, body)


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Run until `stop` is set."""
    async with HttpTransport(settings) as transport:
        client = RestClient(transport, field_manager="mirror-controller")
        informers = SharedInformerFactory(client)
        await Manager(informers, Mirror(client, informers).controller, stop=stop).run()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(load_settings(), asyncio.Event()))
