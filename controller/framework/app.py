"""An application of controllers: declared once, then built and run, in tests several times."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import structlog

from tfjob_operator.api.client import AccessError, Settings, Transport, load_settings
from tfjob_operator.api.client.http.messages import Origin
from tfjob_operator.api.kinds import Kind
from tfjob_operator.api.meta import meta_key, owner_key
from tfjob_operator.controller.framework.request import (
    OWNER,
    K,
    Memory,
    Request,
    Shared,
    index_by_owner_uid,
)
from tfjob_operator.controller.leaderelection import Election, LeadershipLostError, hostname_uuid
from tfjob_operator.controller.manager import Controller, Manager, Predicate, Result, any_of, stop_on_signals
from tfjob_operator.controller.manager.parts import Parts, Transports, open_transports
from tfjob_operator.controller.observability import ListenError
from tfjob_operator.informers import Codec, EventHandlerFuncs, SharedIndexInformer, Tombstone, object_of
from tfjob_operator.informers.store import IndexFunction
from tfjob_operator.workqueue import NO_METRICS, Clock, MetricsProvider

if TYPE_CHECKING:  # it imports prometheus_client, which a controller without metrics does not need
    from tfjob_operator.controller.observability.http_server import PageServer

log = structlog.get_logger(__name__)
W = TypeVar("W", bound=Kind)
Sync = Callable[[Request[K]], Awaitable[Result | None]]


@dataclass(frozen=True, slots=True)
class Watches(Generic[W]):
    """Another kind of object whose changes cause syncs: `keys_of` returns the keys of the objects to sync, or None.

    To only read objects of a kind, return None. `predicate` ignores events (see `Controller.watch`).
    """

    kind: type[W]
    keys_of: Callable[[W], str | Iterable[str] | None]
    predicate: Predicate[W] | None = None


@dataclass(frozen=True, slots=True)
class References(Generic[K]):
    """Another kind of object that the controller's objects name, such as Secrets: a change of one syncs all that name it.

    `keys_in` returns the keys that an object of the controller's own kind names: `namespace/name`, for a cluster-scoped kind
    the name; one, several or None. It indexes the cache, like a field index of controller-runtime. If it raises an error, that
    is logged, and changes of what the object names do not sync it.
    """

    kind: type[Kind]
    keys_in: Callable[[K], str | Iterable[str] | None]


def _as_keys(found: str | Iterable[str] | None) -> tuple[str, ...]:
    return () if found is None else (found,) if isinstance(found, str) else tuple(found)


def _is_finalizing(_old: Kind | None, new: Kind | None) -> bool:
    """Let the deletion of an object with finalizers through: one of them may wait for the controller."""
    return new is not None and new.metadata.deletion_timestamp is not None and bool(new.metadata.finalizers)


@dataclass(frozen=True, slots=True)
class _Declared(Generic[K]):
    """A controller as declared."""

    name: str
    kind: type[K]
    sync: Sync[K]
    owns: Sequence[type[Kind]]
    watches: Sequence[Watches[Any] | References[K]]
    predicate: Predicate[K] | None
    workers: int
    sync_timeout_s: float | None


class App:
    """Controllers that run in one process, with the caches, events, election and metrics that they share."""

    def __init__(
        self,
        name: str,
        *,
        namespace: str = "",
        election: Election | None = None,
        monitoring_port: int = 0,
    ) -> None:
        """Declare an application without controllers.

        name: the field manager of its writes, the source of its events and its user agent. It must not change: an object's
            fields belong to the name that applied them.
        namespace: the only namespace of the objects, "" for all. Cluster-scoped kinds are not affected.
        election: the lease for which replicas compete; None for a single replica.
        monitoring_port: serves `/metrics`, `/healthz` and `/readyz` on this port; 0 for none. Needs prometheus_client.
        """
        self.name = name
        self.namespace = namespace
        self.election = election
        self.monitoring_port = monitoring_port
        self._declared: list[_Declared[Any]] = []

    def controller(
        self,
        kind: type[K],
        *,
        owns: Sequence[type[Kind]] = (),
        watches: Sequence[Watches[Any] | References[K]] = (),
        predicate: Predicate[K] | None = None,
        name: str = "",
        workers: int = 1,
        sync_timeout_s: float | None = None,
    ) -> Callable[[Sync[K]], Sync[K]]:
        """Declare the decorated function as the sync of the objects of `kind`.

        It is called for an object after each change of it, of the objects that it controls (`owns`), and of those in `watches`;
        never twice at once for one object, and not for one that is gone (see `Request.finalizer`). For the errors that it may
        raise and what it may return, see `Controller`.

        predicate: ignores events of `kind`, but not those of an object with finalizers that is being deleted: its clean-up may
            be waited for, although the predicate no longer applies.
        name: of the controller in logs and metrics; by default the plural of the kind.
        """

        def declare(sync: Sync[K]) -> Sync[K]:
            given = name or kind.resource.plural
            self._declared.append(_Declared(given, kind, sync, owns, watches, predicate, workers, sync_timeout_s))
            return sync

        return declare

    def build(self, parts: Parts, stop: asyncio.Event, *, pages: PageServer | None = None) -> Manager:
        """Return the manager of the declared controllers over these parts; see `Manager`.

        Raises ValueError without a controller.
        """
        if not self._declared:
            raise ValueError(f"app {self.name} has no controllers: declare one with @app.controller before it runs")
        controllers = [self._controller(parts, declared) for declared in self._declared]
        return parts.manager(*controllers, stop=stop, pages=pages)

    def _controller(self, parts: Parts, declared: _Declared[K]) -> Controller:
        async def sync(key: str) -> Result | None:
            request = Request.of(shared, key)
            if request is None:
                return None
            structlog.contextvars.bind_contextvars(uid=request.object.metadata.uid)
            try:
                return await declared.sync(request)
            finally:
                if caches[declared.kind].indexer.get(key) is None:
                    memory.forget(request.object)  # a second time, because this sync has added state

        controller = Controller(
            declared.name,
            sync,
            workers=declared.workers,
            sync_timeout_s=declared.sync_timeout_s,
            metrics=parts.metrics,
            clock=parts.clock,
        )
        memory, caches = Memory(), dict[type[Kind], SharedIndexInformer[Any]]()
        resource = declared.kind.resource
        shared = Shared(
            declared.kind,
            resource,
            caches,
            parts.writer,
            parts.recorder,
            parts.server_clock,
            memory,
            sync_after=controller.queue.add_after,
        )

        def deleted(item: Kind | Tombstone[Kind]) -> None:
            if (waiting := memory.forget(object_of(item))) is not None:
                controller.queue.add(waiting)

        predicate = declared.predicate and any_of(_is_finalizing, declared.predicate)
        watches: list[Watches[Any]] = [
            Watches(declared.kind, lambda item: meta_key(item.metadata), predicate),
            *(Watches(kind, lambda child: owner_key(child.metadata, resource)) for kind in declared.owns),
            *(self._watch_of(parts, declared, number, watch) for number, watch in enumerate(declared.watches)),
        ]
        for watch in watches:
            informer = self._informer(parts, watch.kind, {OWNER: index_by_owner_uid})
            if watch.kind not in caches:
                informer.add_event_handler(EventHandlerFuncs(on_delete=deleted))
            caches[watch.kind] = informer
            controller.watch(informer, watch.keys_of, predicate=watch.predicate)
        return controller

    def _informer(
        self, parts: Parts, kind: type[W], indexers: Mapping[str, IndexFunction[W]]
    ) -> SharedIndexInformer[W]:
        return parts.informers.informer(
            Codec(kind.resource, kind),
            namespace=self.namespace if kind.resource.namespaced else "",
            indexers=indexers,
        )

    def _watch_of(
        self, parts: Parts, declared: _Declared[K], number: int, watch: Watches[Any] | References[K]
    ) -> Watches[Any]:
        """Return the watch, that of references with an index of the objects by the keys that they name."""
        if isinstance(watch, Watches):
            return watch
        name = f"{declared.name} references {number}"

        def index(item: K) -> tuple[str, ...]:
            try:
                return _as_keys(watch.keys_in(item))
            except Exception:  # an error of an index function ends the process
                log.exception("references_failed", controller=declared.name, key=meta_key(item.metadata))
                return ()

        owners = self._informer(parts, declared.kind, {name: index})

        def keys_of(referenced: Kind) -> list[str]:
            return [meta_key(each.metadata) for each in owners.indexer.by_index(name, meta_key(referenced.metadata))]

        return Watches(watch.kind, keys_of)

    async def run(
        self,
        *,
        stop: asyncio.Event | None = None,
        settings: Settings | None = None,
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Run until `stop` is set, by default by SIGTERM or Ctrl-C, then stop gracefully. Cancelling stops immediately.

        settings: the API server; by default `load_settings()`.
        transport, clock: for tests: send all requests through this transport, take the time from this clock. The monitoring
            port is then not opened.

        Raises AccessError if there are no settings, ListenError if the monitoring port is in use, ImportError if its
        package is missing, LeadershipLostError if the lease is lost: then exit and restart. Raises an ExceptionGroup if a
        controller fails because of a bug.
        """
        stop = stop or stop_on_signals()
        if transport is not None:
            parts = self._parts(Transports(transport, transport, transport), clock=clock)
            await self.build(parts, stop).run()
            return
        found = settings if settings is not None else await asyncio.to_thread(load_settings)
        pages, metrics = self._monitoring() if self.monitoring_port else (None, NO_METRICS)
        async with open_transports(found, self.name) as transports:
            host = Origin.of(found.server).host_header
            parts = self._parts(transports, metrics=metrics, host=host, clock=clock)
            await self.build(parts, stop, pages=pages).run()

    def _monitoring(self) -> tuple[PageServer, MetricsProvider]:
        """Return the server of the pages, and the metrics that it serves. Raises ImportError with the remedy."""
        try:
            from tfjob_operator.controller.observability.http_server import PageServer
            from tfjob_operator.controller.observability.metrics import PrometheusMetrics, new_registry
        except ImportError as error:
            raise ImportError(f"monitoring_port needs a package: pip install prometheus-client ({error})") from error
        registry = new_registry()
        return PageServer(registry, "", self.monitoring_port), PrometheusMetrics(registry)

    def _parts(
        self, transports: Transports, *, metrics: MetricsProvider = NO_METRICS, host: str = "", clock: Clock | None
    ) -> Parts:
        return Parts(
            transports,
            component=self.name,
            election=self.election,
            identity=hostname_uuid() if self.election is not None else "",
            metrics=metrics,
            host=host,
            clock=clock,
        )

    def main(self) -> None:
        """Run in a new event loop; for an error that `run` raises for its caller, exit with 1 and a message."""
        try:
            asyncio.run(self.run())
        except (AccessError, ImportError, LeadershipLostError, ListenError) as error:
            sys.exit(f"{self.name}: {error}")
