"""The verbs of the Kubernetes API over a `Transport`: get, list, watch, create, update, patch, delete.

Bodies go out as JSON and come back as bytes: what they are decoded into is the caller's business. Failures are raised as the
errors of `api.client.errors`. A request is tried again here only where that is always safe: the server answered 429 or 5xx
with a Retry-After header, or a GET lost its connection (WR-06). Everything else is the caller's decision.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from api.client.errors import (
    ConnectionLostError,
    StatusError,
    TooLargeResourceVersionError,
    TransportError,
    error_from_answer,
)
from api.client.transport import Request, Response, Transport
from workqueue.clock import Clock, LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.meta import Resource

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

MAX_RETRIES: Final = 10
"""WR-06: client-go gives up after ten."""

DEAD_PEER_S: Final = 80.0
"""Silence on a watch that means the peer is gone. The server sends a bookmark about every 60 s (SV-03) and caches events for
75 s (SV-04), so between 70 and 90 s nothing false is reported and no event is lost to the cache (RF-29)."""

_ERROR_CODE: Final = "<error>"
"""What client-go writes into the `code` label when no answer came."""


class Limiter(Protocol):
    """A client-side rate limit, as `workqueue.TokenBucket` is one."""

    async def wait(self) -> None:
        """Return when the next request may leave."""
        ...


class RequestMetrics(Protocol):
    """Where requests are counted. `code` is the HTTP status as text, or `<error>`."""

    def observe_request(self, method: str, code: str, seconds: float) -> None:
        """Count one attempt and the time until its answer was read (a watch: until its head arrived)."""
        ...


class _NoMetrics:
    def observe_request(self, method: str, code: str, seconds: float) -> None:
        """Count nothing."""


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
        }
        return {name: value for name, value in named.items() if value}


class RestClient:
    """Verbs against one server. Safe to share between tasks: it holds no state but its collaborators.

    `field_manager` names us on every write (WR-03); `limiter` holds back requests, not watches (WR-05).
    """

    def __init__(
        self,
        transport: Transport,
        *,
        field_manager: str = "",
        limiter: Limiter | None = None,
        metrics: RequestMetrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._transport = transport
        self._field_manager = field_manager
        self._limiter = limiter
        self._metrics = metrics or _NoMetrics()
        self._clock = clock or LoopClock()

    async def get(self, resource: Resource, namespace: str, name: str) -> bytes:
        """Read one object from the server, not from any cache."""
        return await self._exchange(Request("GET", resource.path(namespace, name)))

    async def list_page(self, resource: Resource, options: ListOptions) -> bytes:
        """Read one page of a collection."""
        return await self._exchange(Request("GET", resource.path(options.namespace), options.query(), total_s=60.0))

    @asynccontextmanager
    async def watch(
        self, resource: Resource, options: ListOptions, *, idle_s: float = DEAD_PEER_S
    ) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Open a watch; inside the block iterate over batches of whole lines, one event a line.

        The iteration ends when the server closes the stream. Raises RequestTimeoutError after `idle_s` seconds of silence,
        ConnectionLostError when the stream breaks. Leaving the block closes the stream at once.
        """
        query = options.query() | {"watch": "true"}
        request = Request("GET", resource.path(options.namespace), query, total_s=None, idle_s=idle_s)
        started = self._clock.monotonic()
        try:
            response = await self._transport.send(request)
        except TransportError:
            self._metrics.observe_request("WATCH", _ERROR_CODE, self._clock.monotonic() - started)
            raise
        try:
            self._metrics.observe_request("WATCH", str(response.status), self._clock.monotonic() - started)
            if response.status >= 400:
                raise self._error(request, response, await response.body())
            yield _lines(response)
        finally:
            response.close()

    async def create(self, resource: Resource, namespace: str, body: object, *, dry_run: bool = False) -> bytes:
        """Create an object. AlreadyExistsError says that the name is taken, perhaps by our own lost attempt (WR-07)."""
        return await self._exchange(
            Request("POST", resource.path(namespace), self._write_query(dry_run=dry_run), _encode(body))
        )

    async def update(
        self, resource: Resource, namespace: str, name: str, body: object, *, subresource: str | None = None
    ) -> bytes:
        """Replace an object. ConflictError says that it changed since `body` was read."""
        path = resource.path(namespace, name, subresource)
        return await self._exchange(Request("PUT", path, self._write_query(), _encode(body)))

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: object,
        *,
        subresource: str | None = None,
        content_type: str = MERGE_PATCH,
    ) -> bytes:
        """Change a part of an object. With `metadata.resourceVersion` in the body a stale view gets ConflictError."""
        path = resource.path(namespace, name, subresource)
        return await self._exchange(
            Request("PATCH", path, self._write_query(), _encode(body), content_type=content_type)
        )

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
    ) -> bytes:
        """Delete an object. ConflictError says that it is another one than `uid` or `resource_version` name (WR-08)."""
        preconditions = {
            field: value for field, value in (("uid", uid), ("resourceVersion", resource_version)) if value is not None
        }
        options: dict[str, object] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if preconditions:
            options["preconditions"] = preconditions
        if propagation is not None:
            options["propagationPolicy"] = propagation
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        return await self._exchange(Request("DELETE", resource.path(namespace, name), {}, _encode(options)))

    def _write_query(self, *, dry_run: bool = False) -> dict[str, str]:
        query = {"fieldManager": self._field_manager} if self._field_manager else {}
        return query | {"dryRun": "All"} if dry_run else query

    async def _exchange(self, request: Request) -> bytes:
        """Send a request and read its whole answer, trying again where that is safe."""
        for retries_left in range(MAX_RETRIES, -1, -1):
            if self._limiter is not None:
                await self._limiter.wait()
            started = self._clock.monotonic()
            code = _ERROR_CODE
            try:
                response = await self._transport.send(request)
                try:
                    body = await response.body()
                finally:
                    response.close()
                code = str(response.status)
                if response.status < 400:
                    return body
                raise self._error(request, response, body)
            except (StatusError, ConnectionLostError) as error:
                delay = _retry_delay(error, request)
                if delay is None or retries_left == 0:
                    raise
            finally:
                self._metrics.observe_request(request.method, code, self._clock.monotonic() - started)
            await asyncio.sleep(delay)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _error(self, request: Request, response: Response, body: bytes) -> StatusError:
        return error_from_answer(
            response.status,
            body,
            request=str(request),
            retry_after=response.headers.get("Retry-After"),
            now=self._clock.now(),
        )


def _retry_delay(error: StatusError | ConnectionLostError, request: Request) -> float | None:
    """Seconds until another attempt, or None where there must be none (WR-06)."""
    if isinstance(error, ConnectionLostError):
        return 1.0 if request.method == "GET" else None
    if isinstance(error, TooLargeResourceVersionError):
        return None  # the reflector's rule RF-04 answers this at once; waiting would not help
    if error.code == 429 or error.code >= 500:
        return error.retry_after_s
    return None


def _encode(body: object) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


async def _lines(response: Response) -> AsyncIterator[list[bytes]]:
    """Cut a stream into lines; each batch holds the whole lines of one chunk. A last line without its end is dropped."""
    rest = b""
    async for chunk in response.chunks():
        if b"\n" not in chunk:
            rest += chunk
            continue
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        yield [line for line in lines if line]


def with_page(options: ListOptions, *, continue_token: str) -> ListOptions:
    """The options of the next page: the token carries the version, so version and match are cleared (RF-08)."""
    return replace(options, continue_token=continue_token, resource_version="", resource_version_match="")
