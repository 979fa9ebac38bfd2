"""Who is let in, and why everybody else is refused.

The page on its user's own machine lets in whoever has the secret of a browser session, which is given for a one-time token.
Other users of the machine can connect to 127.0.0.1 too, and other pages in the same browser can send requests there. So what is
read from the cluster needs the secret, in a header, where no other server of this machine is sent it; a request names this
server in its `Host` (else a page could make its own name point here), and comes from this page itself (`Sec-Fetch-Site`).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Final, NamedTuple

from aiohttp import web

from tfjob_operator.cli.page.viewers import NotLetInError, Viewer

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class File(NamedTuple):
    """What a browser gets."""

    body: bytes
    kind: str


def read_files() -> dict[str, File]:
    """Return all files by name."""
    folder = files("tfjob_operator.cli.page").joinpath("static")
    return {
        each.name: File(each.read_bytes(), _TYPES[each.name.rpartition(".")[2]])
        for each in folder.iterdir()
        if each.name.rpartition(".")[2] in _TYPES
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
"""On every response. Nothing is loaded from anywhere else, no script may write HTML, and nobody may frame the page."""
MOST_SESSIONS: Final = 50
"""Browsers that are let in at a time; the first is forgotten for a newer one."""

READS: Final = frozenset({"GET", "HEAD"})
ONLY_READS: Final = (405, "This page only shows: it takes no other requests than GET.")
UNKNOWN_NAME: Final = (421, "This server is not known under that name.")
FOREIGN: Final = (403, "Requests of other pages are not answered.")
"""Refusals: a code, and a sentence."""


def is_of_another_page(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that another page sends this request, and not somebody who follows a link or types an address."""
    navigates = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest", "document") == "document"
    return headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"} and not navigates


def _same(given: str, kept: str) -> bool:
    """Compare two texts in a time that does not tell how much of them agrees."""
    return hmac.compare_digest(given.encode(errors="replace"), kept.encode())


OURS: Final = "/-/"
"""The prefix of all paths that are not pages: no namespace can have this name."""
ENTER: Final = f"{OURS}enter"
TOKEN: Final = "TFJob-Token"  # noqa: S105 - the name of a header
SESSION: Final = "TFJob-Session"
"""Headers."""


class TokenEntrance:
    """For the page on its user's own machine, on a port: a browser that has used the printed address is the user's."""

    login_page = ""
    """The file that an unknown viewer gets in place of a page, "" if the page itself shows what to do."""
    words = "Access denied. Open the link printed by kubectl tfjob dashboard; each link works in one browser."
    """The message for an unknown viewer."""

    def __init__(self, port: int, entered: Callable[[], None]) -> None:
        """`entered` is called when a browser was let in, and the token has changed."""
        self._host = f"127.0.0.1:{port}"
        self._entered = entered
        self._owner = Viewer()
        self._sessions: dict[str, None] = {}
        self.token = secrets.token_urlsafe(32)
        """Good for one browser. As soon as it is used, another one replaces it."""

    def routes(self) -> list[web.RouteDef]:
        """Return the routes that need no viewer: those to get in, and those about the server itself."""
        return [web.get(ENTER, self._enter)]

    async def _enter(self, request: web.Request) -> web.Response:
        """Exchange the token for the secret of a session."""
        session = self.let_in(request.headers.get(TOKEN, ""))
        if session is None:
            raise NotLetInError
        self._entered()
        return web.json_response({"session": session})

    def let_in(self, token: str) -> str | None:
        """Return the secret of a new session for the token, which is used up by that; None for a wrong one."""
        if not _same(token, self.token):
            return None
        self.token = secrets.token_urlsafe(32)
        session = secrets.token_urlsafe(32)
        self._sessions[session] = None
        while len(self._sessions) > MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session

    def knows(self, session: str) -> bool:
        """Whether this is the secret of a session."""
        return any(_same(session, each) for each in self._sessions)

    def refusal(self, request: web.Request) -> tuple[int, str] | None:
        """Return why a request is refused for any viewer, as a code and a sentence; None if it is allowed."""
        if request.method not in READS:
            return ONLY_READS
        if request.headers.get("Host", "") != self._host:
            return UNKNOWN_NAME
        return FOREIGN if is_of_another_page(request.headers) else None

    async def viewer(self, request: web.Request) -> Viewer | None:
        """Return who sends a request, None if unknown."""
        return self._owner if self.knows(request.headers.get(SESSION, "")) else None
