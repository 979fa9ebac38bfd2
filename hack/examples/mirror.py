"""A complete controller: every ConfigMap with the label `mirror=yes` gets a copy that is updated and deleted with it.

Run it with `KUBECONFIG=FILE python -m hack.examples.mirror`; docs/write-a-controller.md explains it part by part.
"""

import asyncio

from tfjob_operator.api.client import HttpTransport, RestClient, Settings, load_settings
from tfjob_operator.api.core import CONFIG_MAPS
from tfjob_operator.api.meta import ObjectMeta, Struct, controller_reference, meta_key, owner_key
from tfjob_operator.controller.manager import Controller, Manager, stop_on_signals
from tfjob_operator.informers import Codec, SharedInformerFactory


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
        # A change of either the source or its copy triggers a sync of the source, which owns the copy.
        self.controller.watch(self._config_maps, lambda item: owner_key(item.metadata) or meta_key(item.metadata))

    async def sync(self, key: str) -> None:
        """Compare the actual state with the desired state and correct the difference, whatever the event was."""
        source, copy = self._config_maps.indexer.get(key), self._config_maps.indexer.get(f"{key}-mirror")
        if source is None or (source.metadata.labels or {}).get("mirror") != "yes":
            return
        meta, name = source.metadata, f"{source.metadata.name}-mirror"
        if copy is None:
            owned = {"name": name, "ownerReferences": [controller_reference(CONFIG_MAPS, meta)]}
            await self._client.create(CONFIG_MAPS, meta.namespace, {"metadata": owned, "data": source.data})
        elif copy.data != source.data:
            # A merge patch does not change other fields, and removes a key whose value is null. With a stale
            # resourceVersion it is rejected, and the key is retried.
            stale = {"resourceVersion": copy.metadata.resource_version}
            data = {**dict.fromkeys(copy.data or {}), **(source.data or {})}
            await self._client.patch(CONFIG_MAPS, meta.namespace, name, {"metadata": stale, "data": data})


async def run(settings: Settings, stop: asyncio.Event | None = None) -> None:
    """Run until `stop` is set or a signal arrives."""
    async with HttpTransport(settings, user_agent="mirror-controller") as transport:
        client = RestClient(transport, field_manager="mirror-controller")
        informers = SharedInformerFactory(client)
        await Manager(informers, Mirror(client, informers).controller, stop=stop or stop_on_signals()).run()


if __name__ == "__main__":
    asyncio.run(run(load_settings()))
