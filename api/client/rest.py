"""The methods of the Kubernetes API over a `Transport`.

Bodies are sent as JSON. A response is decoded into the type `into`, or returned as bytes, which avoids decoding
responses that are not read. Failures raise the errors of `api.client.errors`. `api.client.exchange` defines which are
retried, and when.
"""

from __future__ import annotations

import asyncio
import random as stdlib_random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

import msgspec

from tfjob_operator.api.client.decoding import WatchLines, decode_response
from tfjob_operator.api.client.encoding import contains_type, encode, encode_change
from tfjob_operator.api.client.errors import AlreadyExistsError, ConflictError
from tfjob_operator.api.client.exchange import Exchange, Limiter, ServerClock
from tfjob_operator.api.client.http import Transport
from tfjob_operator.api.client.http.messages import JSON, Request
from tfjob_operator.api.client.metrics import RequestMetrics
from tfjob_operator.api.client.options import (
    APPLY_PATCH,
    MERGE_PATCH,
    ApplyOptions,
    CreateOptions,
    DeleteOptions,
    ListOptions,
    ListReadOptions,
    LogOptions,
    PatchOptions,
    ReadOptions,
    WriteOptions,
    delete_body,
)
from tfjob_operator.api.meta import Resource
from tfjob_operator.workqueue.clock import Clock
from tfjob_operator.workqueue.metrics import NO_METRICS, MetricsProvider

if TYPE_CHECKING:  # as a runtime feature, defaults (PEP 696) need Python 3.13
    from typing_extensions import TypeVar

    T = TypeVar("T", default=bytes)
_BYTES: Final[Any] = bytes
"""The default of `into`, typed so that type checkers use the default of `T`."""

REQUEST_S: Final = 40.0
"""The server times out a write after 34 s (1.20) and reports it; with a shorter timeout we would never receive that
response."""

LIST_S: Final = 70.0
"""The server's own request timeout is 60 s, which the list of a large collection may need."""

DEAD_PEER_S: Final = 80.0
"""The idle time after which a watch's peer is considered dead, and the watch is reopened. A server sends a
bookmark about every 60 s and caches events for 75 s, so by then something should have arrived and nothing is lost yet.
Servers before `IDLE_BOOKMARKS` (hack/kubernetes_versions.py) send none for an idle collection: there a watch is
reopened every 80 s at the cost of one request, since it resumes from the last version."""

LOG_SILENCE_S: Final = 4 * 3600.0
"""How long a log may be idle: kubelets also close idle streams after four hours. TCP keep-alive detects a dead peer within
minutes."""

_ANYTHING: Final = "application/json, */*"
"""Logs are text, but API servers of all versions reject (406) requests for them that do not accept JSON."""


class RestClient:
    """Methods for one server. Safe to share between tasks, since it has no state.

    All methods raise ApiError: TransportError if no response arrived, StatusError if the server reported a failure, DecodeError
    if the response is not JSON or not of the type `into`. Cancelling a method closes its connection immediately; it is then
    unknown whether the server processed the request.

    Methods raise ValueError or TypeError before anything is sent if the name is missing, or the namespace that the kind needs
    (`Resource.check_object`), and if a body has a struct that omits defaults or an empty precondition (`encoding`).
    """

    def __init__(
        self,
        transport: Transport,
        *,
        field_manager: str = "",
        limiter: Limiter | None = None,
        metrics: MetricsProvider = NO_METRICS,
        host: str = "",
        clock: Clock | None = None,
        server_clock: ServerClock | None = None,
        request_s: float = REQUEST_S,
        list_s: float = LIST_S,
        watch_s: float = DEAD_PEER_S,
    ) -> None:
        """Send requests through `transport`; `field_manager` identifies us in every write.

        `limiter` delays requests, but a watch only when it is retried. An attempt takes at most `request_s` seconds, or
        `list_s` for a list; leases need a shorter limit than the default. The response head of a watch may take `watch_s`: some
        proxies delay it until the first byte of the body, which for an idle collection is the first bookmark. `server_clock` is
        shared by all clients of the server.
        """
        self.transport = transport
        counted = RequestMetrics(metrics, host) if metrics is not NO_METRICS else None
        self._exchange = Exchange(transport, limiter=limiter, metrics=counted, clock=clock, server_clock=server_clock)
        self.field_manager = field_manager
        self._request_s = request_s
        self._list_s = list_s
        self._watch_s = watch_s

    async def get(
        self, resource: Resource, namespace: str, name: str, into: type[T] = _BYTES, **options: Unpack[ReadOptions]
    ) -> T:
        """Read one object from the server, not from a cache."""
        path = resource.path(namespace, name, options.get("subresource"))
        return await self._read(self._request("GET", path, options.get("query"), accept=options.get("accept")), into)

    async def get_raw(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """Read a path that is not a resource, such as `/openapi/v2`."""
        return await self._read(self._request("GET", path, query), bytes)

    async def list_page(
        self, resource: Resource, options: ListOptions, into: type[T] = _BYTES, **how: Unpack[ListReadOptions]
    ) -> T:
        """Read one page of a collection."""
        return await self._read(self._list_request(resource, options, how), into)

    async def read_list(
        self,
        resource: Resource,
        options: ListOptions,
        take: Callable[[AsyncIterator[bytes]], Awaitable[T]],
        **how: Unpack[ListReadOptions],
    ) -> T:
        """Return what `take` returns for a page's chunks; the read and `take` are repeated if the connection is lost."""
        request = self._list_request(resource, options, how, idle_s=self._list_s)
        return await self._exchange.read_while_it_arrives(request, take)

    @asynccontextmanager
    async def watch(
        self, resource: Resource, options: ListOptions, *, idle_s: float = DEAD_PEER_S, accept: str | None = None
    ) -> AsyncIterator[WatchLines]:
        """Open a watch; in the context, iterate over batches of whole lines, one event per line.

        The iteration ends when the server closes the stream. Raises RequestTimeoutError after `idle_s` seconds without
        data, ConnectionLostError if the connection breaks. Leaving the context closes the stream immediately.
        """
        resource.check_namespace(options.namespace)
        query = options.query() | {"watch": "true"}
        path = resource.path(options.namespace)
        request = self._request("GET", path, query, accept=accept, total_s=self._watch_s, idle_s=idle_s)
        response = await self._exchange.open(request)
        try:
            yield WatchLines(response.chunks(), request=str(request))
        finally:
            response.close()

    @asynccontextmanager
    async def logs(
        self,
        pods: Resource,
        namespace: str,
        name: str,
        options: LogOptions | None = None,
        *,
        idle_s: float = LOG_SILENCE_S,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open the log of a pod; in the context, iterate over chunks of any size as they arrive.

        The iteration ends with the log, which is empty until the pod has been scheduled. BadRequestError means that the
        container has not started. Raises RequestTimeoutError after `idle_s` seconds without data, ConnectionLostError
        if the connection breaks. Leaving the context closes the stream immediately.
        """
        path, query = pods.path(namespace, name, "log"), (options or LogOptions()).query()
        request = self._request("GET", path, query, accept=_ANYTHING, idle_s=idle_s)
        response = await self._exchange.open(request, content_type="text/plain")
        try:
            yield response.chunks()
        finally:
            response.close()

    async def create(
        self,
        resource: Resource,
        namespace: str,
        body: object,
        into: type[T] = _BYTES,
        **options: Unpack[CreateOptions],
    ) -> T:
        """Create an object.

        AlreadyExistsError: the name is taken, by another object or by an earlier attempt whose response was lost.
        """
        path = resource.path(namespace, options.get("name"), options.get("subresource"))
        if resource.namespaced and not namespace:
            raise ValueError(f"{resource} are namespaced: a create needs a namespace")
        return await self._read(self._request("POST", path, self._write_query(options), body), into)

    async def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: object,
        into: type[T] = _BYTES,
        **options: Unpack[WriteOptions],
    ) -> T:
        """Replace an object. ConflictError: it has changed since `body` was read.

        Without `metadata.resourceVersion` in `body`, the server replaces any object of the name. It removes every field that
        `body` lacks and returns 200. So `body` must be the whole object, as a dict or JSON. A struct or a dataclass has only
        the fields of its type: raises TypeError if `body` is or contains one. As in `patch`, `subresource` must be that of the
        changed fields.
        """
        if not isinstance(body, (dict, bytes, msgspec.Raw)) or contains_type(body):
            raise TypeError(
                f"an update with a struct would remove the fields that it lacks from {resource.plural} {namespace}/{name}:"
                " use patch or apply, or read the object as dict[str, Any]"
            )
        path = resource.path(namespace, name, options.get("subresource"))
        return await self._read(self._request("PUT", path, self._write_query(options), encode_change(body)), into)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: object,
        into: type[T] = _BYTES,
        **options: Unpack[PatchOptions],
    ) -> T:
        """Change part of an object.

        With `metadata.resourceVersion` in the body, an outdated patch raises ConflictError; with `metadata.uid`, a patch of
        another object of the name raises ConflictError or InvalidError, depending on the server's version. Without both, the
        patch changes any object of the name, even if another controller owns it (see `is_controlled_by`). In a merge patch a
        null removes a field, and a list replaces the whole list, including owner references and finalizers of others. A JSON
        patch changes what is at its index now: test the resourceVersion in the same patch.

        The server returns 200 and ignores what it does not know or does not expect here: a misspelled field, with
        `query={"fieldValidation": "Strict"}` an error since 1.25; a `status` without `subresource="status"`, if the kind has
        this subresource; and with it, everything else than the status.
        """
        path = resource.path(namespace, name, options.get("subresource"))
        kind = options.get("content_type", MERGE_PATCH)
        return await self._read(
            self._request("PATCH", path, self._write_query(options), encode_change(body), kind), into
        )

    async def apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: object,
        into: type[T] = _BYTES,
        **options: Unpack[ApplyOptions],
    ) -> T:
        """Server-side apply: set these fields and make us their owner.

        `body` has `metadata.name` and the fields that we manage: a field that was applied before and is now missing is removed.
        In a dict, `apiVersion` and `kind` may be missing. An object that does not exist is created. ConflictError: another
        manager owns a field with a different value; with `force`, which controllers set, we take the field over, even if
        another controller owns the object (see `is_controlled_by`). With `metadata.uid`, no object is created, and another one
        of this name is not changed: ConflictError or InvalidError. Raises ValueError for a client without a field manager.
        """
        if not self.field_manager:
            raise ValueError("server-side apply needs a field manager")
        path = resource.path(namespace, name, options.get("subresource"))
        if isinstance(body, dict):
            body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        query = self._write_query(options) | ({"force": "true"} if options.get("force") else {})
        return await self._read(self._request("PATCH", path, query, encode_change(body), APPLY_PATCH), into)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        **options: Unpack[DeleteOptions],
    ) -> bytes:
        """Delete an object. ConflictError: its UID or resourceVersion differs from the given one.

        Without `uid`, any object of the name is deleted, also one that was created after the caller decided to delete. Without
        `propagation`, the server decides by kind: it orphans the pods of a Job of batch/v1, which continue to run. Raises
        ValueError for a negative `grace_s`, which servers treat as one second.
        """
        body = delete_body(uid, resource_version, **options)
        return await self._read(self._request("DELETE", resource.path(namespace, name), None, body), bytes)

    def _write_query(self, options: WriteOptions) -> dict[str, str]:
        query = {"fieldManager": self.field_manager} if self.field_manager else {}
        if options.get("dry_run"):
            query["dryRun"] = "All"
        return query | dict(options.get("query", ()))

    def _list_request(
        self, resource: Resource, options: ListOptions, how: ListReadOptions, *, idle_s: float | None = None
    ) -> Request:
        resource.check_namespace(options.namespace)
        return self._request(
            "GET",
            resource.path(options.namespace),
            options.query(),
            accept=how.get("accept"),
            gzip=how.get("gzip", False),
            total_s=self._list_s,
            idle_s=idle_s,
        )

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        *,
        accept: str | None = None,
        gzip: bool = False,
        total_s: float | None = None,
        idle_s: float | None = None,
    ) -> Request:
        encoded = None if body is None else encode(body)
        limit = self._request_s if total_s is None else total_s
        return Request(method, path, query or {}, encoded, content_type, limit, idle_s, accept or JSON, gzip)

    async def _read(self, request: Request, into: type[T]) -> T:
        raw = await self._exchange.read(request)
        return cast("T", raw) if into is bytes else decode_response(raw, into, request=str(request))


CONFLICT_TRIES: Final = 5
CONFLICT_PAUSE_S: Final = 0.01
CONFLICT_JITTER: Final = 0.1
"""Client-go's DefaultRetry: for an object that several clients write now and then."""


async def retry_on_conflict(
    write: Callable[[], Awaitable[T]], *, random: Callable[[], float] = stdlib_random.random
) -> T:
    """Call `write` until it raises no ConflictError, at most five times, and return its result.

    `write` must read the object from the server in each call: with the object of a cache it would fail five times. Raises the
    last ConflictError, and immediately any error that reading again does not resolve: AlreadyExistsError, and the conflict of
    an apply with another field manager. `random` returns a float in [0, 1), like `random.random`. A sync does not need this
    function: its key is retried.
    """
    for _ in range(CONFLICT_TRIES - 1):
        try:
            return await write()
        except ConflictError as error:
            if isinstance(error, AlreadyExistsError) or error.by_field_manager:
                raise
            await asyncio.sleep(CONFLICT_PAUSE_S * (1 + CONFLICT_JITTER * random()))
    return await write()
