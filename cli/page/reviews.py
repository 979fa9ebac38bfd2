"""Authentication and authorization of viewers by the API server's TokenReview and SubjectAccessReview.

Results are cached for a while, and concurrent requests for the same result share a review. A failed review is neither yes nor
no: `ReviewFailedError`. Tokens never appear in messages, log lines or cache keys.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from tfjob_operator.api.client.errors import ApiError, StatusError
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.api.meta import Resource, Struct
from tfjob_operator.cli.permissions import ResourceAttributes

V = TypeVar("V")

MAX_CACHED: Final = 10_000
"""The most cached results; a new one replaces the oldest."""


class CachedResult(NamedTuple, Generic[V]):
    """The result of a review; `at` is the event loop's time when the review was sent."""

    value: V
    at: float


class ResultCache(Generic[V]):
    """Cached results by request. Belongs to one loop.

    Invariants: at most one review per request is in flight; the age of a result counts from its request, so callers miss a
    change for no longer than they accept; failures are not cached.
    """

    def __init__(self, most: int = MAX_CACHED) -> None:
        """Cache up to `most` results."""
        self._most = most
        self._kept: dict[Hashable, CachedResult[V]] = {}
        self._asking: dict[Hashable, asyncio.Task[CachedResult[V]]] = {}

    async def get(
        self, key: Hashable, ask: Callable[[], Awaitable[V]], keep_s: Callable[[V], float]
    ) -> CachedResult[V]:
        """Return a result younger than `keep_s`, or call `ask` once for all waiters.

        Cancelling a waiter does not end the call.
        """
        kept = self._kept.get(key)
        if kept is not None and asyncio.get_running_loop().time() - kept.at < keep_s(kept.value):
            return kept
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self._ask(key, ask), name="review")
            asking.add_done_callback(lambda task: self._asked(key, task))
        return await asyncio.shield(asking)

    async def close(self) -> None:
        """Cancel all reviews."""
        asking = [*self._asking.values()]
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _ask(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> CachedResult[V]:
        at = asyncio.get_running_loop().time()
        answer = CachedResult(await ask(), at)
        self._kept.pop(key, None)
        self._kept[key] = answer
        while len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return answer

    def _asked(self, key: Hashable, task: asyncio.Task[CachedResult[V]]) -> None:
        del self._asking[key]
        if not task.cancelled():
            task.exception()  # waiters have received it; there may be none left


T = TypeVar("T")

ALLOWED_TTL_S: Final = 20.0
"""How long a yes is cached. Including the time until the next check, a withdrawn permission works for 30 s at most."""
DENIED_TTL_S: Final = 5.0
"""How long a no is cached: the longest wait until a granted permission takes effect."""
STREAM_DENIED_TTL_S: Final = 60.0
"""How long a stream uses a no: of a hundred namespaces most viewers may see only one."""
REVIEW_S: Final = 4.0
"""The timeout of a review."""
MAX_CONCURRENT: Final = 20
"""The most concurrent reviews: a client that sends a thousand wrong tokens waits, and does not load the API server."""
TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]{1,16000}=*")
"""RFC 6750."""


class User(NamedTuple):
    """A user as the API server's authorizer identifies them."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class ReviewFailedError(Exception):
    """A review failed. The message is the reason, in one line for users."""


class _UserInfo(Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _TokenStatus(Struct, frozen=True):
    authenticated: bool = False
    user: _UserInfo | None = None
    audiences: tuple[str, ...] | None = None


class _AccessStatus(Struct, frozen=True):
    allowed: bool
    denied: bool = False


class _Review(Struct, Generic[T], frozen=True):
    status: T


class Reviews:
    """Sends reviews and caches results. Belongs to one loop."""

    def __init__(self, client: RestClient, audiences: Sequence[str] = ()) -> None:
        """Accept tokens with one of `audiences`; if `audiences` is empty, with one of the API server's own audiences."""
        self._client = client
        self._audiences = [*audiences]
        self._users = ResultCache[User | None]()
        self._rights = ResultCache[bool]()
        self._some = asyncio.Semaphore(MAX_CONCURRENT)
        kinds = TOKEN_REVIEWS.kind, ACCESS_REVIEWS.kind
        self.counts = {(kind, answer): 0 for kind in kinds for answer in ("yes", "no", "failed")}
        """The number of reviews by kind and result."""

    async def user(self, token: str) -> CachedResult[User | None]:
        """Return the user of a token, None if it is invalid or expired. Raises ReviewFailedError."""
        key = hashlib.sha256(token.encode(errors="replace")).digest()
        return await self._users.get(
            key, lambda: self._review_token(token), lambda user: DENIED_TTL_S if user is None else ALLOWED_TTL_S
        )

    async def may(
        self, user: User, attributes: ResourceAttributes, *, refused_s: float = DENIED_TTL_S
    ) -> CachedResult[bool]:
        """Return whether a user has a permission; a cached denial may be `refused_s` seconds old. Raises ReviewFailedError."""
        return await self._rights.get(
            (user, attributes),
            lambda: self._review_right(user, attributes),
            lambda allowed: ALLOWED_TTL_S if allowed else refused_s,
        )

    async def close(self) -> None:
        """Cancel all reviews."""
        await self._users.close()
        await self._rights.close()

    async def _review_token(self, token: str) -> User | None:
        if not _TOKEN.fullmatch(token):
            return None
        spec: dict[str, Any] = {"token": token}
        if self._audiences:
            spec["audiences"] = self._audiences
        return await self._ask(TOKEN_REVIEWS, spec, _Review[_TokenStatus], self._user_in)

    def _user_in(self, status: _TokenStatus) -> User | None:
        info = status.user
        if not status.authenticated or info is None or not info.username:
            return None
        if self._audiences and not {*self._audiences} & {*(status.audiences or ())}:
            return None  # the authenticator does not support audiences: the token is for the API server
        return User(info.username, info.uid, info.groups or (), tuple(sorted((info.extra or {}).items())))

    async def _review_right(self, user: User, attributes: ResourceAttributes) -> bool:
        fields = {
            "verb": attributes.verb,
            "group": attributes.resource.group,
            "version": attributes.resource.version,
            "resource": attributes.resource.plural,
            "subresource": attributes.subresource,
            "namespace": attributes.namespace,
            "name": attributes.name,
        }
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": user.groups,
            "extra": dict(user.extra),
            "resourceAttributes": {key: value for key, value in fields.items() if value},
        }
        return await self._ask(
            ACCESS_REVIEWS, spec, _Review[_AccessStatus], lambda status: status.allowed and not status.denied
        )

    async def _ask(self, resource: Resource, spec: dict[str, Any], into: type[_Review[T]], read: Callable[[T], V]) -> V:
        """Send a review, return what `read` extracts from its result, and count it."""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        answer = "failed"
        try:
            async with asyncio.timeout(REVIEW_S), self._some:
                found = read((await self._client.create(resource, "", body, into)).status)
        except TimeoutError as error:
            raise ReviewFailedError(f"the API server did not answer a {resource.kind} in time") from error
        except StatusError as error:
            raise ReviewFailedError(f"the API server refused a {resource.kind}: {error.status_message}") from error
        except ApiError as error:
            raise ReviewFailedError(
                f"the API server could not be asked for a {resource.kind}: {error.message}"
            ) from error
        else:
            answer = "yes" if found else "no"
            return found
        finally:
            self.counts[resource.kind, answer] += 1
