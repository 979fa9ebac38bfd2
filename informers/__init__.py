"""Caches of API objects: shared informers on asyncio, modeled on client-go 1.36. Works for any resource.

    factory = SharedInformerFactory(client)
    pods = factory.informer(Codec(PODS, Pod), label_selector="app=web", indexers={"owner": owner_uids})
    registration = pods.add_event_handler(EventHandlerFuncs(on_add=lambda pod, is_in_initial_list: ...))
    async with asyncio.TaskGroup() as tasks:
        factory.start(tasks)
        await factory.wait_for_cache_sync(60.0)
        await registration.wait_for_sync()
        pods.lister().namespaced("default").list("tier=front")
        await factory.shut_down()

Start reading at `shared_informer`, which connects the parts: `reflector` lists and watches through a `listwatch`, and
`processor` calls the handlers.
"""

from __future__ import annotations

from tfjob_operator.informers.codec import Codec
from tfjob_operator.informers.deltas import Tombstone, key_of, object_of
from tfjob_operator.informers.errors import (
    CacheSyncTimeoutError,
    IndexerError,
    InformerError,
    InformerNotStartedError,
    InformerStoppedError,
    SelectorError,
)
from tfjob_operator.informers.factory import SharedInformerFactory
from tfjob_operator.informers.handlers import EventHandler, EventHandlerFuncs
from tfjob_operator.informers.listers import Lister
from tfjob_operator.informers.listwatch import ListerWatcher, ListWatch
from tfjob_operator.informers.processor import Registration
from tfjob_operator.informers.reflector import ReflectorOptions
from tfjob_operator.informers.shared_informer import SharedIndexInformer
from tfjob_operator.informers.store import Indexer

__all__ = [
    "CacheSyncTimeoutError",
    "Codec",
    "EventHandler",
    "EventHandlerFuncs",
    "Indexer",
    "IndexerError",
    "InformerError",
    "InformerNotStartedError",
    "InformerStoppedError",
    "ListWatch",
    "Lister",
    "ListerWatcher",
    "ReflectorOptions",
    "Registration",
    "SelectorError",
    "SharedIndexInformer",
    "SharedInformerFactory",
    "Tombstone",
    "key_of",
    "object_of",
]
