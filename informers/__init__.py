"""A cache of the API, of any resource: shared informers on asyncio, in the shape of client-go 1.36.

    factory = SharedInformerFactory(client)
    pods = factory.informer(Codec(PODS, Pod), label_selector="app=web", indexers={"owner": owner_uids})
    registration = pods.add_event_handler(EventHandlerFuncs(on_add=lambda pod, is_in_initial_list: ...))
    async with asyncio.TaskGroup() as tasks:
        factory.start(tasks)
        await factory.wait_for_cache_sync(60.0)
        await registration.wait_for_sync()
        pods.lister().namespaced("default").list("tier=front")
        await factory.shut_down()

Reading path: `shared_informer` wires everything; `reflector` supplies it from a `listwatch`; `processor` tells the handlers.
"""

from __future__ import annotations

from informers.codec import Codec
from informers.deltas import Tombstone, key_of, object_of
from informers.errors import (
    CacheSyncTimeoutError,
    IndexerError,
    InformerError,
    InformerStoppedError,
    SelectorError,
)
from informers.expiring_store import ExpiringStore
from informers.factory import SharedInformerFactory
from informers.handlers import EventHandler, EventHandlerFuncs
from informers.listers import Lister, NamespaceLister
from informers.listwatch import ListerWatcher, ListWatch
from informers.mutation_cache import MutationCache
from informers.options import ReflectorOptions
from informers.processor import Registration
from informers.shared_informer import SharedIndexInformer
from informers.store import Indexer

__all__ = [
    "CacheSyncTimeoutError",
    "Codec",
    "EventHandler",
    "EventHandlerFuncs",
    "ExpiringStore",
    "Indexer",
    "IndexerError",
    "InformerError",
    "InformerStoppedError",
    "ListWatch",
    "Lister",
    "ListerWatcher",
    "MutationCache",
    "NamespaceLister",
    "ReflectorOptions",
    "Registration",
    "SelectorError",
    "SharedIndexInformer",
    "SharedInformerFactory",
    "Tombstone",
    "key_of",
    "object_of",
]
