"""Where requests come in: who is let in, and what everybody else is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from aiohttp import web

from tfjob_operator.cli.page.viewers import Owner

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfjob_operator.cli.page.files import File
    from tfjob_operator.cli.page.security import Door
    from tfjob_operator.cli.page.viewers import Viewer

OURS: Final = "/-/"
"""The prefix of all paths that are not pages: no namespace can have this name."""


class Entrance(Protocol):
    """Lets people in."""

    title_page: str
    """The file that is shown to whoever is not let in."""
    words: str
    """The same for a script, in a sentence."""
    public: frozenset[str]
    """The files that `title_page` needs."""

    async def own(self, request: web.Request) -> web.StreamResponse | None:
        """Answer a request that is about being let in, or about the server itself; None for any other."""
        ...

    def refusal(self, request: web.Request) -> tuple[int, str] | None:
        """Return why a request is refused whoever sends it, as a code and a sentence; None for one that is in order."""
        ...

    async def viewer(self, request: web.Request) -> Viewer | None:
        """Return who sends a request, None for somebody unknown. Raises UnansweredError, and DeniedError."""
        ...


class TokenEntrance:
    """For the page on its user's own machine: a browser that has used the printed address is the user's."""

    title_page = "no-entry.html"
    words = "Access denied. Open the link printed by `kubectl tfjob dashboard`; each link works in one browser."
    public = frozenset({"page.css", "icon.svg"})

    def __init__(self, door: Door, entered: File, entered_now: Callable[[], None]) -> None:
        """`entered` goes on to the list; `entered_now` is called when a browser was let in, and the token has changed."""
        self._door = door
        self._page = entered
        self._entered = entered_now
        self._owner = Owner()

    async def own(self, request: web.Request) -> web.StreamResponse | None:
        """Exchange the token for a session.

        The page that is sent then opens the list. For a redirect the browser would still count the page that led here as the
        sender, and leave the cookie out.
        """
        if request.path != "/" or "token" not in request.query:
            return None
        response = web.Response(body=self._page.body, headers={"Content-Type": self._page.kind})
        if self._knows(request):
            return response
        session = self._door.let_in(request.query["token"])
        if session is None:
            return None
        self._entered()
        response.set_cookie(self._door.cookie, session, httponly=True, samesite="Strict", path="/")
        return response

    def refusal(self, request: web.Request) -> tuple[int, str] | None:
        """See `Entrance.refusal`."""
        return self._door.refusal(request.method, request.headers)

    async def viewer(self, request: web.Request) -> Viewer | None:
        """See `Entrance.viewer`."""
        return self._owner if self._knows(request) else None

    def _knows(self, request: web.Request) -> bool:
        return self._door.knows(request.cookies.get(self._door.cookie, ""))
