"""The model API server: maps one HTTP request to one response, without an await. It has no tasks, only timers of watches.

It is independent of the network between it and its clients: see `model.transport` and `network`.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from kit.model.kinds import KINDS, Kind
from kit.model.reads import Lag, Lister, get, no_lag
from kit.model.refusals import Refusal, bad_request, initializing, no_field_manager, no_such_group, no_such_path
from kit.model.storage import Collection, Storage
from kit.model.versions import CACHES_KNOW_PROGRESS, NEWEST, WATCH_REFUSED_WHILE_INITIALISING
from kit.model.watches import Manners, Watch
from kit.model.writes import Writer
from kit.virtual_loop import EPOCH
from tfjob_operator.api.client.http import Request
from tfjob_operator.api.client.options import APPLY_PATCH

INITIALIZING_S: Final = 0.1
"""How long a custom resource's watch cache takes to fill; at 1.36.3, a watch succeeded 0.11s after a rejected one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: a complete body, or a watch to be opened. `delay_s`: the server's processing time."""

    status: int
    body: bytes = b""
    watch: Watch | None = None
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Write:
    at: float
    client: str
    method: str
    path: str
    rv: int


@dataclass(frozen=True, slots=True)
class _Target:
    collection: Collection
    namespace: str
    name: str = ""
    subresource: str = ""


class ModelServer:
    """A kube-apiserver with its etcd, as seen by clients.

    Invariant: requests are atomic, and `writes` has every request that changed something.
    """

    def __init__(self, seed: int | str = 0, *, kinds: Iterable[Kind] = KINDS, kubernetes: int = NEWEST) -> None:
        """`kubernetes`: the minor version that the server imitates."""
        kinds = tuple(kinds)
        self.kubernetes = kubernetes
        self.storage = Storage(kinds, knows_progress=CACHES_KNOW_PROGRESS.is_in(kubernetes))
        self.writes: list[Write] = []
        self._writer = Writer(self.storage, self.now, Random(f"server {seed}"), kubernetes)
        self._lister = Lister(self.storage, kubernetes)
        self._manners = Manners(kubernetes)
        self._cold = {kind.resource.plural for kind in kinds if kind.custom}
        """Custom resources without a request so far: the first request makes the server create a cache."""
        self._initializing: dict[str, float] = {}
        self._watches: dict[Watch, None] = {}
        self.lag: Lag = no_lag
        """How far the watch cache behind a list lags; each API server of a cluster has its own cache."""
        self.admission: list[Callable[[Request, str], Request]] = []
        """Called with every request before it is carried out, and with its client. Each returns the request to carry out,
        or raises Refusal, as admission webhooks do."""
        self.on_change: list[Callable[[], None]] = []
        """Called after each request that changed something. The model's controllers register here."""
        self.on_answer: list[Callable[[Request, str, Answer], None]] = []
        """Called after `on_change` with each response except rejections, and with its client."""

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=asyncio.get_running_loop().time())

    def exchange(self, request: Request, client: str) -> Answer:
        """Execute a request. Never raises."""
        before = self.storage.rv
        try:
            for admit in self.admission:
                request = admit(request, client)
            answer = self._route(request, request.query.get("fieldManager") or client)
        except Refusal as refusal:
            return Answer(refusal.code, refusal.body(), headers=refusal.headers | self._date(), delay_s=refusal.delay_s)
        answer.headers.update(self._date())
        if self.storage.rv != before:
            now = asyncio.get_running_loop().time()
            self.writes.append(Write(now, client, request.method, request.path, self.storage.rv))
            for listener in self.on_change:
                listener()
        for hear in self.on_answer:
            hear(request, client, answer)
        return answer

    def _date(self) -> dict[str, str]:
        return {"Date": f"{self.now():%a, %d %b %Y %H:%M:%S GMT}"}

    def ask(self, client: str, method: str, path: str, body: object) -> int:
        """Send a request without network faults; a PATCH is a merge patch. Return the status."""
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return self.exchange(Request(method, path, {}, msgspec.json.encode(body), content_type), client).status

    def opened(self, watch: Watch) -> None:
        self._watches[watch] = None

    def closed(self, watch: Watch) -> None:
        self._watches.pop(watch, None)

    @property
    def open_watches(self) -> int:
        return len(self._watches)

    def restart(self) -> None:
        """Break all open watches, and start with new watch caches."""
        for collection in self.storage.collections.values():
            collection.begin_anew(self.storage.rv)
            if collection.kind.custom:
                self._cold.add(collection.kind.resource.plural)
        for watch in [*self._watches]:
            watch.lose()

    def define(self, kind: Kind) -> None:
        self.storage.add(kind)
        self._cold.add(kind.resource.plural)

    def redefine(self, plural: str) -> None:
        """Change the CustomResourceDefinition: open watches end without an error, and a new cache is filled."""
        collection = self.storage.collections[plural]
        for watch in [*self._watches]:
            if watch.collection is collection:
                watch.end()
        collection.begin_anew(self.storage.rv)
        self._cold.add(plural)

    def undefine(self, plural: str) -> None:
        """Delete the CustomResourceDefinition with its objects: its watches end, and the resource is unknown."""
        collection = self.storage.collections[plural]
        for key in [*collection.objects]:
            self.storage.remove(collection, key)
        for watch in [*self._watches]:
            if watch.collection is collection:
                watch.end()
        del self.storage.collections[plural]

    def _route(self, request: Request, manager: str) -> Answer:
        target = self._find(request.path)
        self._warm(target.collection)
        dry_run = request.query.get("dryRun") == "All"
        match request.method:
            case "GET":
                return self._read(target, request)
            case "POST" if target.subresource == "binding":
                key = (target.namespace, target.name)
                return Answer(201, self._writer.bind(target.collection, key, _json(request)))
            case "POST" if not target.name:
                body = _json(request)
                return Answer(201, self._writer.create(target.collection, target.namespace, body, dry_run=dry_run))
            case "PUT" if target.name:
                code, raw = self._writer.update(
                    target.collection,
                    (target.namespace, target.name),
                    _json(request),
                    manager=manager,
                    subresource=target.subresource,
                    dry_run=dry_run,
                )
                return Answer(code, raw)
            case "PATCH" if target.name:
                return self._patch(target, request, manager, dry_run=dry_run)
            case "DELETE" if target.name:
                options = _json(request) if request.body else {}
                return Answer(200, self._writer.delete(target.collection, (target.namespace, target.name), options))
        raise Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})

    def _read(self, target: _Target, request: Request) -> Answer:
        if target.name:
            return Answer(200, get(target.collection, target.namespace, target.name, request.query))
        if request.query.get("watch") == "true":
            self._check_initialized(target.collection)
            collection, manners = target.collection, self._manners
            watch = Watch(self.storage, collection, target.namespace, request.query, manners=manners, lag=self.lag)
            return Answer(200, watch=watch)
        return Answer(200, self._lister.page(target.collection, target.namespace, request.query, self.lag))

    def _warm(self, collection: Collection) -> None:
        """Start filling the cache of a custom resource at its first request."""
        plural = collection.kind.resource.plural
        if plural in self._cold:
            self._cold.discard(plural)
            self._initializing[plural] = asyncio.get_running_loop().time() + INITIALIZING_S

    def _check_initialized(self, collection: Collection) -> None:
        """Raise Refusal while the cache is being filled, in versions in which watches do not wait for it."""
        until = self._initializing.get(collection.kind.resource.plural, 0.0)
        if WATCH_REFUSED_WHILE_INITIALISING.is_in(self.kubernetes) and asyncio.get_running_loop().time() < until:
            raise initializing()

    def _patch(self, target: _Target, request: Request, manager: str, *, dry_run: bool) -> Answer:
        collection, key, body = target.collection, (target.namespace, target.name), _json(request)
        sub = target.subresource
        if request.content_type == APPLY_PATCH:
            if "fieldManager" not in request.query:
                raise no_field_manager()
            force = request.query.get("force") == "true"
            code, raw = self._writer.apply(
                collection, key, body, manager=manager, force=force, subresource=sub, dry_run=dry_run
            )
            return Answer(code, raw)
        kind = request.content_type
        raw = self._writer.patch(collection, key, kind, body, manager=manager, subresource=sub, dry_run=dry_run)
        return Answer(200, raw)

    def _find(self, path: str) -> _Target:
        parts = [unquote(part) for part in path.split("/")[1:]]
        match parts:
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                raise no_such_path()
        served = {
            plural: collection
            for plural, collection in self.storage.collections.items()
            if (collection.kind.resource.group, collection.kind.resource.version) == (group, version)
        }
        if not served:
            raise no_such_group()
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] in served:
            namespace, rest = rest[1], rest[2:]
        collection = served.get(rest[0] if rest else "")
        if collection is None and all(each.kind.custom for each in served.values()):
            raise no_such_group()
        if collection is None or len(rest) > 3:
            raise no_such_path()
        if collection.kind.resource.namespaced != bool(namespace) and len(rest) > 1:
            raise no_such_path()
        target = _Target(collection, namespace, *rest[1:])
        known = target.subresource in {"", *(["status"] if collection.kind.status else [])}
        if not known and (collection.kind.resource.plural, target.subresource) != ("pods", "binding"):
            raise no_such_path()
        return target


def _json(request: Request) -> Any:
    try:
        return msgspec.json.decode(request.body or b"")
    except msgspec.DecodeError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error
