"""Authentication for the page in a cluster: every request identifies its viewer, and the API server verifies the identity.

The first of these methods that applies is used: a header that names the user, set by a proxy whose client certificate was
verified, as for an API server (`--requestheader-*`); a bearer token in `Authorization`; a token in a cookie, after a login.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec
from aiohttp import web

from tfjob_operator.cli.page.authenticator import (
    CROSS_SITE,
    INTERNAL_PREFIX,
    ONLY_READS,
    READS,
    UNKNOWN_NAME,
    is_of_another_page,
)
from tfjob_operator.cli.page.reviews import CachedResult, Reviews, User
from tfjob_operator.cli.page.viewers import ClusterViewer, DeniedError, UnauthenticatedError, Viewer

METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
COOKIE: Final = "tfjob-page"
MAX_COOKIE: Final = 3_800
"""The most bytes of a token in a cookie: browsers drop cookies of more than 4096."""
LOGIN: Final = f"{INTERNAL_PREFIX}login"
LOGOUT: Final = f"{INTERNAL_PREFIX}logout"
OPEN: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths without authentication: they reveal nothing about jobs."""
AUTHENTICATED: Final = "system:authenticated"
"""The group of all authenticated users."""


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """Proxies that may set user headers as in `--requestheader-*`: `allowed_names` are their certificates' common names."""

    allowed_names: frozenset[str]
    username: tuple[str, ...] = ("X-Remote-User",)
    group: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefix: tuple[str, ...] = ("X-Remote-Extra-",)


class _Login(msgspec.Struct):
    token: str


class ClusterAuthenticator:
    """Authentication of cluster users. `is_ready` returns True once the caches have synced; `metrics` returns the metrics."""

    login_page = "login.html"
    words = "Log in: the token is missing or no longer valid."

    def __init__(
        self,
        reviews: Reviews,
        is_ready: Callable[[], bool],
        metrics: Callable[[], str],
        *,
        scope: str = "",
        hosts: frozenset[str] = frozenset(),
        proxies: RequestHeaders | None = None,
    ) -> None:
        """`scope` is the only namespace of the page, "" for all; `hosts` are its accepted host names, any if empty."""
        self._reviews = reviews
        self._is_ready = is_ready
        self._metrics = metrics
        self._scope = scope
        self._hosts = hosts
        self._proxies = proxies

    def routes(self) -> list[web.RouteDef]:
        """See `LocalAuthenticator.routes`."""
        own = {"/metrics": self._show_metrics, "/healthz": self._health, "/readyz": self._health}
        return [
            web.post(LOGIN, self._log_in),
            web.post(LOGOUT, self._log_out),
            *(web.get(path, handler) for path, handler in own.items()),
        ]

    async def _show_metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=self._metrics(), headers={"Content-Type": METRICS})

    async def _health(self, request: web.Request) -> web.Response:
        good = request.path == "/healthz" or self._is_ready()
        return web.Response(text="ok" if good else "the caches have not synced", status=200 if good else 503)

    async def _log_out(self, _: web.Request) -> web.Response:
        response = web.Response(status=204)
        response.del_cookie(COOKIE, path="/")
        return response

    def refusal(self, request: web.Request) -> tuple[int, str] | None:
        """See `LocalAuthenticator.refusal`.

        The kubelet and Prometheus use the pod's address, so their paths accept any host name.
        """
        logs_in = request.method == "POST" and request.path in {LOGIN, LOGOUT}
        if request.method not in READS and not logs_in:
            return ONLY_READS
        if request.path in OPEN:
            return None
        if self._hosts and _host(request.headers.get("Host", "")) not in self._hosts:
            return UNKNOWN_NAME
        if logs_in and (request.content_type != "application/json" or not _is_from_here(request)):
            return CROSS_SITE
        return CROSS_SITE if is_of_another_page(request.headers) else None

    async def viewer(self, request: web.Request) -> Viewer | None:
        """See `LocalAuthenticator.viewer`. Raises ReviewFailedError, and DeniedError if an unknown proxy names a user."""
        user = self._named_by_proxy(request)
        if user is not None:

            async def identify() -> CachedResult[User | None]:
                return CachedResult(user, math.inf)

            return self._guest(identify, user, "proxy")
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        by = "token" if scheme.lower() == "bearer" and token.strip() else "cookie"
        shown = token.strip() if by == "token" else request.cookies.get(COOKIE, "")
        if not shown:
            return None
        found = (await self._reviews.user(shown)).value
        return self._guest(lambda: self._reviews.user(shown), found, by) if found is not None else None

    def _guest(self, identify: Callable[[], Awaitable[CachedResult[User | None]]], user: User, by: str) -> Viewer:
        return ClusterViewer(self._reviews, identify, user.name, scope=self._scope, by=by)

    async def _log_in(self, request: web.Request) -> web.Response:
        """Store a token in a session cookie of the browser. The page itself does not store it."""
        try:
            token = msgspec.json.decode(await request.read(), type=_Login).token.strip()
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise web.HTTPBadRequest(text="a token is required") from None
        if len(token) > MAX_COOKIE:
            raise DeniedError("This token is too long for a browser's cookie: a proxy can send it as a header.")
        if not token or (await self._reviews.user(token)).value is None:
            raise UnauthenticatedError
        response = web.Response(status=204)
        response.set_cookie(COOKIE, token, httponly=True, secure=True, samesite="Strict", path="/")
        return response

    def _named_by_proxy(self, request: web.Request) -> User | None:
        proxies = self._proxies
        if proxies is None:
            return None  # such headers are ignored
        name = next((value for each in proxies.username if (value := request.headers.get(each, ""))), "")
        if not name:
            return None
        if _common_name(request) not in proxies.allowed_names:
            raise DeniedError(
                "Only a proxy with a client certificate that this page knows may name a user in a header."
            )
        groups = [value for each in proxies.group for value in request.headers.getall(each, ()) if value]
        extra: dict[str, list[str]] = {}
        for key, value in request.headers.items():
            for prefix in proxies.extra_prefix:
                if key.lower().startswith(prefix.lower()):
                    extra.setdefault(unquote(key[len(prefix) :]).lower(), []).append(value)
        return User(
            name,
            groups=tuple(dict.fromkeys([*groups, AUTHENTICATED])),
            extra=tuple(sorted((key, tuple(values)) for key, values in extra.items())),
        )


def _common_name(request: web.Request) -> str | None:
    """Return the common name in the client certificate of a connection, None without a verified certificate."""
    transport = request.transport
    shown: dict[str, Any] = (transport.get_extra_info("peercert") if transport is not None else None) or {}
    names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
    return names[-1] if names else None


def _host(name: str) -> str:
    return (urlsplit(f"//{name}").hostname or "").lower() if "@" not in name and "/" not in name else ""


def _is_from_here(request: web.Request) -> bool:
    """Return False if the browser reports that the request comes from another site."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("Origin")
    return origin is None or urlsplit(origin).netloc.lower() == request.headers.get("Host", "").lower()


def exposition(reviews: Mapping[tuple[str, str], int], streams: int, jobs: int) -> str:
    """Return the metrics: reviews by kind (`TokenReview`) and result (`yes`, `no`, `failed`), open streams, cached jobs."""
    counted = "".join(
        f'tfjob_page_reviews_total{{kind="{kind}",answer="{answer}"}} {count}\n'
        for (kind, answer), count in sorted(reviews.items())
    )
    return f"""\
# HELP tfjob_page_reviews_total Reviews that the API server was asked for, by kind and answer.
# TYPE tfjob_page_reviews_total counter
{counted}# HELP tfjob_page_streams Streams, logs and curves that are open.
# TYPE tfjob_page_streams gauge
tfjob_page_streams {streams}
# HELP tfjob_page_jobs Jobs in the cache.
# TYPE tfjob_page_jobs gauge
tfjob_page_jobs {jobs}
"""
