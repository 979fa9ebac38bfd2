"""Authentication for the page on its user's own machine. The page in a cluster uses parts of it.

Access requires the secret of a browser session, which is obtained with a one-time token. Other users of the machine can also
connect to 127.0.0.1, and other pages in the same browser can send requests there. Three checks prevent such access. Data of the
cluster requires the secret in a header; no other server of this machine receives this header. `Host` must name this server;
otherwise the host name of another page could resolve to this server. `Sec-Fetch-Site` must show that this page sent the
request.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Final, NamedTuple

from aiohttp import web

from tfjob_operator.cli.page.viewers import UnauthenticatedError, Viewer

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class File(NamedTuple):
    """A static file and its content type."""

    body: bytes
    kind: str


def read_files() -> dict[str, File]:
    """Return all files by name."""
    folder = files("tfjob_operator.cli.page").joinpath("static")
    return {
        path.name: File(path.read_bytes(), _TYPES[path.name.rpartition(".")[2]])
        for path in folder.iterdir()
        if path.name.rpartition(".")[2] in _TYPES
    }


HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
    "Server": "kubectl-tfjob",
}
"""On every response. No external resources are loaded, no script may write HTML, and the page cannot be framed."""
MAX_SESSIONS: Final = 50
"""The most browser sessions; a new one replaces the oldest."""

READS: Final = frozenset({"GET", "HEAD"})
ONLY_READS: Final = (405, "The dashboard is read-only: only GET is allowed.")
UNKNOWN_NAME: Final = (421, "Unknown host name: open the page by its own address.")
CROSS_SITE: Final = (403, "Requests from other sites are refused.")
"""Refusals: a status code and a message."""


def is_of_another_page(headers: Mapping[str, str]) -> bool:
    """Return True if the browser reports that another site sends this request; following a link is allowed."""
    navigates = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest", "document") == "document"
    return headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"} and not navigates


def _same(given: str, kept: str) -> bool:
    """Compare two texts in constant time."""
    return hmac.compare_digest(given.encode(errors="replace"), kept.encode())


INTERNAL_PREFIX: Final = "/-/"
"""The prefix of all paths that are not pages: no namespace can have this name."""
ENTER: Final = f"{INTERNAL_PREFIX}enter"
TOKEN: Final = "TFJob-Token"  # noqa: S105 - the name of a header
SESSION: Final = "TFJob-Session"
"""Headers."""


class LocalAuthenticator:
    """Authentication on the user's own machine: a browser that has used the printed link is the user's."""

    login_page = ""
    """The file for an unknown viewer in place of a page, "" if the page itself shows what to do."""
    words = "Access denied. Open the link printed by kubectl tfjob dashboard; each link works in one browser."
    """The message for an unknown viewer."""

    def __init__(self, port: int, on_login: Callable[[], None]) -> None:
        """`on_login` is called when a browser has used the token and a new token has replaced it."""
        self._host = f"127.0.0.1:{port}"
        self._on_login = on_login
        self._owner = Viewer()
        self._sessions: dict[str, None] = {}
        self.token = secrets.token_urlsafe(32)
        """Valid for one browser. A new one replaces it when it is used."""

    def routes(self) -> list[web.RouteDef]:
        """Return the routes without authentication: those to log in, and those about the server itself."""
        return [web.get(ENTER, self._enter)]

    async def _enter(self, request: web.Request) -> web.Response:
        """Exchange the token for a session secret."""
        session = self.create_session(request.headers.get(TOKEN, ""))
        if session is None:
            raise UnauthenticatedError
        self._on_login()
        return web.json_response({"session": session})

    def create_session(self, token: str) -> str | None:
        """Return the secret of a new session, None if the token is wrong. A token works once."""
        if not _same(token, self.token):
            return None
        self.token = secrets.token_urlsafe(32)
        session = secrets.token_urlsafe(32)
        self._sessions[session] = None
        while len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session

    def knows(self, session: str) -> bool:
        """Return True if this is the secret of a session."""
        return any(_same(session, each) for each in self._sessions)

    def refusal(self, request: web.Request) -> tuple[int, str] | None:
        """Return why a request is refused for any viewer, as a code and a sentence; None if it is allowed."""
        if request.method not in READS:
            return ONLY_READS
        if request.headers.get("Host", "") != self._host:
            return UNKNOWN_NAME
        return CROSS_SITE if is_of_another_page(request.headers) else None

    async def viewer(self, request: web.Request) -> Viewer | None:
        """Return who sends a request, None if unknown."""
        return self._owner if self.knows(request.headers.get(SESSION, "")) else None
