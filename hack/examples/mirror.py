"""A complete controller: every ConfigMap with the label `mirror=yes` gets a copy that is updated and deleted with it.

Run it with `KUBECONFIG=FILE python mirror.py`; docs/write-a-controller.md explains it part by part.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from kubecontrollers.api.client import HttpTransport, RestClient, Settings, Transport, load_settings
from kubecontrollers.api.core import CONFIG_MAPS, EventType, object_reference
from kubecontrollers.api.meta import ObjectMeta, Struct, controller_reference, is_controlled_by, meta_key
from kubecontrollers.controller.events import EventRecorder
from kubecontrollers.controller.manager import Controller, Manager, TerminalError, stop_on_signals
from kubecontrollers.informers import Codec, SharedInformerFactory
from kubecontrollers.workqueue import LoopClock

SUFFIX: Final = "-mirror"


class ConfigMap(Struct, frozen=True):
    """The part of a ConfigMap that this controller reads."""

    metadata: ObjectMeta
    data: Mapping[str, str] | None = None


class Mirror:
    """Keeps the copies."""

    def __init__(self, client: RestClient, informers: SharedInformerFactory, recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder
        self._config_maps = informers.informer(Codec(CONFIG_MAPS, ConfigMap))
        self.controller = Controller("mirror", self.sync)
        # A change of either the source or its copy triggers a sync of the source.
        self.controller.watch(self._config_maps, keys_of)

    async def sync(self, key: str) -> None:
        """Compare the actual state with the desired state and correct the difference, whatever the event was."""
        source, copy = self._config_maps.indexer.get(key), self._config_maps.indexer.get(f"{key}{SUFFIX}")
        if source is None or (source.metadata.labels or {}).get("mirror") != "yes":
            return
        meta, name = source.metadata, f"{source.metadata.name}{SUFFIX}"
        if meta.deletion_timestamp is not None:
            return  # the garbage collector deletes the copy, which must not be created again
        if copy is None:
            owned = {"name": name, "ownerReferences": [controller_reference(CONFIG_MAPS, meta)]}
            await self._client.create(CONFIG_MAPS, meta.namespace, {"metadata": owned, "data": source.data})
        elif not is_controlled_by(copy.metadata, meta):
            # Not our copy: leave it alone. When it is deleted, `keys_of` adds the key again.
            problem = f'Resource "{name}" already exists and is not managed by ConfigMap "{meta.name}"'
            about = object_reference(CONFIG_MAPS, meta)
            self._recorder.event(about, EventType.WARNING, "ErrResourceExists", problem)
            raise TerminalError(problem)
        elif copy.data != source.data:
            # A merge patch does not change other fields, and removes a key whose value is null. With a stale
            # resourceVersion it is rejected, and the key is retried.
            stale = {"resourceVersion": copy.metadata.resource_version}
            data = {**dict.fromkeys(copy.data or {}), **(source.data or {})}
            await self._client.patch(CONFIG_MAPS, meta.namespace, name, {"metadata": stale, "data": data})


def keys_of(item: ConfigMap) -> tuple[str, str]:
    """Return the keys to sync when this ConfigMap changes: it may be a source, a copy, or a copy that is also a source."""
    key = meta_key(item.metadata)
    return key, key.removesuffix(SUFFIX)


async def run(transport: Transport, stop: asyncio.Event) -> None:
    """Run until `stop` is set."""
    client = RestClient(transport, field_manager="mirror-controller")
    informers = SharedInformerFactory(client)
    recorder = EventRecorder(client, component="mirror-controller", clock=LoopClock())
    mirror = Mirror(client, informers, recorder)
    await Manager(informers, mirror.controller, recorder=recorder, stop=stop).run()


async def main(settings: Settings) -> None:
    """Run until a signal arrives."""
    async with HttpTransport(settings, user_agent="mirror-controller") as transport:
        await run(transport, stop_on_signals())


if __name__ == "__main__":
    asyncio.run(main(load_settings()))
