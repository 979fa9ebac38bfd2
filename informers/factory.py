"""The shared informer factory: one informer per collection, shared by all callers."""

from __future__ import annotations

import asyncio
import random as stdlib_random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from tfjob_operator.api.client.rest import DEAD_PEER_S, RestClient
from tfjob_operator.api.meta import Resource
from tfjob_operator.informers.codec import Codec
from tfjob_operator.informers.deltas import T
from tfjob_operator.informers.errors import (
    CacheSyncTimeoutError,
    IndexerError,
    InformerNotStartedError,
    InformerStoppedError,
)
from tfjob_operator.informers.listwatch import ListWatch
from tfjob_operator.informers.reflector import ReflectorOptions
from tfjob_operator.informers.shared_informer import SharedIndexInformer
from tfjob_operator.informers.store import IndexFunction
from tfjob_operator.workqueue.clock import Clock
from tfjob_operator.workqueue.metrics import NO_METRICS, MetricsProvider


class _InformerKey(NamedTuple):
    """Two requests with the same key share an informer."""

    resource: Resource
    kind: type
    namespace: str
    label_selector: str
    field_selector: str

    @property
    def name(self) -> str:
        """The name in logs and metrics: `pods`, `pods/team-a`, `pods?tier=web`."""
        place = f"{self.resource}/{self.namespace}" if self.namespace else str(self.resource)
        narrowed = "&".join(filter(None, (self.label_selector, self.field_selector)))
        return f"{place}?{narrowed}" if narrowed else place


class SharedInformerFactory:
    """Creates informers over one client, and starts and stops them together.

    Invariants: an informer is started at most once, and none is started after `shut_down` was called. An informer requested
    after `start` runs only after `start` is called again.
    """

    def __init__(
        self,
        client: RestClient,
        *,
        clock: Clock | None = None,
        random: Callable[[], float] | None = None,
        metrics: MetricsProvider = NO_METRICS,
        idle_s: float = DEAD_PEER_S,
        options: ReflectorOptions | None = None,
    ) -> None:
        """Create informers over `client`.

        `random` returns a float in [0, 1), like `random.random`; it spreads watch timeouts and back-off. A watch that is silent
        for `idle_s` seconds is reopened. `options` apply to all reflectors.
        """
        self._client = client
        self._clock = clock
        self._random = random or stdlib_random.random
        self._metrics = metrics
        self._idle_s = idle_s
        self._options = options
        self._informers: dict[_InformerKey, SharedIndexInformer[Any]] = {}
        self._codecs: dict[_InformerKey, Codec[Any]] = {}
        self._required: set[_InformerKey] = set()
        self._running: dict[_InformerKey, asyncio.Task[None]] = {}
        self._shutting_down = False

    def informer(
        self,
        codec: Codec[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, IndexFunction[T]] | None = None,
        resync_s: float = 0.0,
        required: bool = True,
    ) -> SharedIndexInformer[T]:
        """Return the informer for this resource, type, namespace and selectors; it is created on the first request.

        `indexers` missing from an existing informer are added to it. Raises ValueError if an existing informer decodes with
        other hooks or has another `resync_s` than this call asks for, IndexerError if it has another function for an index of
        the same name. The informer is not started: call `start` again if it was called before. `wait_for_cache_sync` waits only
        for informers that some caller requires. Readers of an optional informer, whose resource may not exist, must check
        whether it has synced.
        """
        identity = _InformerKey(codec.resource, codec.kind, namespace, label_selector, field_selector)
        if required:
            self._required.add(identity)
        existing = cast("SharedIndexInformer[T] | None", self._informers.get(identity))
        if existing is not None:
            if not self._codecs[identity].is_like(codec) or resync_s not in {0.0, existing.resync_s}:
                raise ValueError(f"informer {existing.name} exists with other hooks of its codec, or another resync_s")
            missing: dict[str, IndexFunction[T]] = {}
            for name, function in (indexers or {}).items():
                found = existing.indexer.index_function(name)
                if found is None:
                    missing[name] = function
                elif found != function:
                    raise IndexerError(f"informer {existing.name} has another function for the index {name}")
            existing.add_indexers(missing)
            return existing
        self._codecs[identity] = codec
        informer = SharedIndexInformer(
            ListWatch(
                self._client,
                codec,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                idle_s=self._idle_s,
            ),
            codec.resource,
            name=self._unique_name(identity),
            indexers=indexers,
            resync_s=resync_s,
            options=self._options,
            clock=self._clock,
            random=self._random,
            metrics=self._metrics,
        )
        self._informers[identity] = informer
        return informer

    def _unique_name(self, identity: _InformerKey) -> str:
        """Return a unique name: informers of two types over one resource must not share metrics."""
        taken = any(informer.name == identity.name for informer in self._informers.values())
        return f"{identity.name} as {identity.kind.__name__}" if taken else identity.name

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start every informer that is not running, in a task of `tasks`. May be called again, but not after `shut_down`."""
        if self._shutting_down:
            return
        for identity, informer in self._informers.items():
            if identity not in self._running:
                self._running[identity] = tasks.create_task(informer.run(), name=f"informer {informer.name}")

    async def wait_for_cache_sync(self, timeout_s: float) -> dict[str, bool]:
        """Wait until every started and required informer has synced.

        Returns results by informer name: True, or False for an informer that stopped before it synced. Raises
        CacheSyncTimeoutError after `timeout_s` seconds, with the names of the informers that have not synced, and
        InformerNotStartedError if a required informer was requested after the last `start`.
        """
        if waiting := [self._informers[each].name for each in self._required if each not in self._running]:
            raise InformerNotStartedError(f"call start first: {', '.join(sorted(waiting))}")
        started = [self._informers[identity] for identity in self._running if identity in self._required]
        synced: dict[str, bool] = {}
        try:
            async with asyncio.timeout(timeout_s):
                for informer in started:
                    try:
                        await informer.wait_for_sync()
                    except InformerStoppedError:
                        synced[informer.name] = False
                    else:
                        synced[informer.name] = True
        except TimeoutError:
            raise CacheSyncTimeoutError(self.unsynced(), timeout_s) from None
        return synced

    def informers(self) -> list[SharedIndexInformer[Any]]:
        """Return all informers, whether they run or not."""
        return [*self._informers.values()]

    def unsynced(self) -> list[str]:
        """Return the names of the required informers that have not synced."""
        required = (each for identity, each in self._informers.items() if identity in self._required)
        return [each.name for each in required if not each.has_synced]

    def missing(self) -> list[str]:
        """Return the names of the informers, required or not, whose resources the server does not serve."""
        return [informer.name for informer in self._informers.values() if informer.is_missing]

    def disconnected(self, limit_s: float) -> dict[str, float]:
        """Map the name of each started informer without an open watch for over `limit_s` seconds to that time.

        Their caches are stale. Informers whose resource the server does not serve are not included.
        """
        seconds = {self._informers[each].name: self._informers[each].disconnected_s for each in self._running}
        return {name: for_s for name, for_s in seconds.items() if for_s > limit_s}

    async def shut_down(self) -> None:
        """Stop all informers and wait for them to end. Safe to call twice."""
        self._shutting_down = True
        for informer in self._informers.values():
            informer.stop()
        if self._running:
            await asyncio.wait(self._running.values())
