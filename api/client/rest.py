"""The verbs of the Kubernetes API over a `Transport`: get, list, watch, create, update, patch, delete.

Bodies go out as JSON and come back as bytes: what they are decoded into is the caller's business. Failures are raised as the
errors of `api.client.errors`. What is tried again, and when, is in `api.client.exchange`.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from tfjob_operator.api.client.exchange import Exchange
from tfjob_operator.api.client.http import Request
from tfjob_operator.api.client.watch_lines import WatchLines

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tfjob_operator.api.client.http import Transport
    from tfjob_operator.api.client.metrics import RequestMetrics
    from tfjob_operator.api.client.throttle import Limiter
    from tfjob_operator.api.meta import Resource
    from tfjob_operator.workqueue.clock import Clock

T = TypeVar("T")

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

REQUEST_S: Final = 40.0
"""The server gives up a write after 34 s (1.20) and says so; a limit below that would hide its answer."""

LIST_S: Final = 70.0
"""The server's own limit for a request is 60 s, which the list of a large collection may need."""

DEAD_PEER_S: Final = 80.0
"""Silence after which the peer of a watch counts as gone, and the watch is opened anew (RF-29). A server sends a bookmark about
every 60 s (SV-03) and caches events for 75 s (SV-04), so by then something should have come and nothing is lost yet. Servers
before `IDLE_BOOKMARKS` (hack/kubernetes_versions.py) send none for a collection in which nothing happens: there a silent watch
is opened anew every 80 s, for the price of one request, since it goes on from the version that it had."""


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The query of a list or watch. Empty values are not sent; `limit` 0 means everything in one answer."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    limit: int = 0
    continue_token: str = ""
    timeout_s: int = 0
    allow_bookmarks: bool = False
    send_initial_events: bool = False
    """A watch begins with the whole collection: see `informers.initial_events`."""

    def query(self) -> dict[str, str]:
        """The query parameters under the names that the API server knows."""
        named = {
            "labelSelector": self.label_selector,
            "fieldSelector": self.field_selector,
            "resourceVersion": self.resource_version,
            "resourceVersionMatch": self.resource_version_match,
            "limit": str(self.limit) if self.limit else "",
            "continue": self.continue_token,
            "timeoutSeconds": str(self.timeout_s) if self.timeout_s else "",
            "allowWatchBookmarks": "true" if self.allow_bookmarks else "",
            "sendInitialEvents": "true" if self.send_initial_events else "",
        }
        return {name: value for name, value in named.items() if value}


class RestClient:
    """Verbs against one server. Safe to share between tasks: it holds no state but its collaborators.

    All verbs raise ApiError: TransportError where no answer came, StatusError where the server said no, DecodeError where
    the answer is not JSON. Cancelling one closes its connection at once; the server may or may not have acted then.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        field_manager: str = "",
        limiter: Limiter | None = None,
        metrics: RequestMetrics | None = None,
        clock: Clock | None = None,
        request_s: float = REQUEST_S,
        list_s: float = LIST_S,
        watch_s: float = DEAD_PEER_S,
    ) -> None:
        """`field_manager` names us on every write (WR-03); `limiter` holds back requests, but watches only when they are tried
        again (WR-05). One attempt takes at most `request_s` seconds, of a list `list_s`; a lease needs less than the default.
        The head of a watch may take `watch_s`: some proxies keep it back until there is a body, in a quiet collection until the
        first bookmark.
        """
        self._exchange = Exchange(transport, limiter=limiter, metrics=metrics, clock=clock)
        self._field_manager = field_manager
        self._request_s = request_s
        self._list_s = list_s
        self._watch_s = watch_s

    async def get(self, resource: Resource, namespace: str, name: str) -> bytes:
        """Read one object from the server, not from any cache."""
        return await self._send("GET", resource.path(namespace, name))

    async def get_page(self, path: str) -> bytes:
        """Read what is no resource, by its path: `/openapi/v2`."""
        return await self._send("GET", path)

    async def list_page(self, resource: Resource, options: ListOptions) -> bytes:
        """Read one page of a collection."""
        return await self._send("GET", resource.path(options.namespace), options.query(), total_s=self._list_s)

    async def read_list(
        self, resource: Resource, options: ListOptions, take: Callable[[AsyncIterator[bytes]], Awaitable[T]]
    ) -> T:
        """Read one page of a collection while it arrives: answer what `take` makes of the chunks of its body.

        When the connection is lost under way the page is read anew, and `take` called again. What it raises comes out.
        """
        path, seconds = resource.path(options.namespace), self._list_s
        request = Request("GET", path, options.query(), total_s=seconds, idle_s=seconds)
        return await self._exchange.read_while_it_arrives(request, take)

    @asynccontextmanager
    async def watch(
        self, resource: Resource, options: ListOptions, *, idle_s: float = DEAD_PEER_S
    ) -> AsyncIterator[WatchLines]:
        """Open a watch; inside the block iterate over batches of whole lines, one event a line.

        The iteration ends when the server closes the stream. Raises RequestTimeoutError after `idle_s` seconds of silence,
        ConnectionLostError when the stream breaks. Leaving the block closes the stream at once.
        """
        query = options.query() | {"watch": "true"}
        path = resource.path(options.namespace)
        request = Request("GET", path, query, total_s=self._watch_s, idle_s=idle_s)
        response = await self._exchange.open(request)
        try:
            yield WatchLines(response.chunks(), request=str(request))
        finally:
            response.close()

    async def create(self, resource: Resource, namespace: str, body: object, *, dry_run: bool = False) -> bytes:
        """Create an object. AlreadyExistsError says that the name is taken, perhaps by our own lost attempt (WR-07)."""
        return await self._send("POST", resource.path(namespace), self._write_query(dry_run=dry_run), body)

    async def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: object,
        *,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> bytes:
        """Replace an object. ConflictError says that it changed since `body` was read."""
        path = resource.path(namespace, name, subresource)
        return await self._send("PUT", path, self._write_query(dry_run=dry_run), body)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: object,
        *,
        subresource: str | None = None,
        content_type: str = MERGE_PATCH,
        dry_run: bool = False,
    ) -> bytes:
        """Change a part of an object. With `metadata.resourceVersion` in the body a stale view gets ConflictError."""
        path = resource.path(namespace, name, subresource)
        return await self._send("PATCH", path, self._write_query(dry_run=dry_run), body, content_type=content_type)

    async def apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: object,
        *,
        force: bool = False,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> bytes:
        """Let the server see to it that these fields have these values, and are ours (server-side apply, WR-04).

        `body` has apiVersion, kind, metadata.name and the fields that we want, no others: what we applied before and leave out
        now is removed. An object that is not there is created. ConflictError says that another manager owns a field and wants
        another value; with `force`, which is what controllers use, it is taken over. Raises ValueError for a client without a
        field manager.
        """
        if not self._field_manager:
            raise ValueError("server-side apply needs a field manager")
        path = resource.path(namespace, name, subresource)
        query = self._write_query(dry_run=dry_run) | ({"force": "true"} if force else {})
        return await self._send("PATCH", path, query, body, content_type=APPLY_PATCH)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
        grace_s: int | None = None,
        dry_run: bool = False,
    ) -> bytes:
        """Delete an object. ConflictError says that it is another one than `uid` or `resource_version` name (WR-08)."""
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {name: value for name, value in preconditions.items() if value is not None} or None,
            "propagationPolicy": propagation,
            "gracePeriodSeconds": grace_s,
            "dryRun": ["All"] if dry_run else None,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return await self._send("DELETE", resource.path(namespace, name), body=given)

    def _write_query(self, *, dry_run: bool) -> dict[str, str]:
        query = {"fieldManager": self._field_manager} if self._field_manager else {}
        return query | {"dryRun": "All"} if dry_run else query

    async def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: object = None,
        *,
        content_type: str = "application/json",
        total_s: float | None = None,
    ) -> bytes:
        """Send a request and read its whole answer."""
        limit = total_s or self._request_s
        encoded = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        request = Request(method, path, query or {}, encoded, content_type, total_s=limit)
        return await self._exchange.read(request)


def with_page(options: ListOptions, *, continue_token: str) -> ListOptions:
    """The options of the next page: the token carries the version, so version and match are cleared (RF-08)."""
    return replace(options, continue_token=continue_token, resource_version="", resource_version_match="")
