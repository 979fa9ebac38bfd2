"""The pages and what they ask for, over HTTP. Every response bears the headers of `security`; none changes anything."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from tfjob_operator.api.client.errors import ApiError, StatusError
from tfjob_operator.api.client.options import LogOptions
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import object_key
from tfjob_operator.cli.errors import ApiError as Refusal
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.page.files import read_files
from tfjob_operator.cli.page.security import HEADERS
from tfjob_operator.cli.page.streams import EVENT_STREAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.typedefs import Handler

    from tfjob_operator.cli.page.cluster import Cluster
    from tfjob_operator.cli.page.details import Details
    from tfjob_operator.cli.page.security import Door
    from tfjob_operator.cli.page.streams import Streams

OURS: Final = "/-/"
"""The prefix of all paths that are not pages: no namespace can have this name."""
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
MOST_LINES: Final = 10_000
_BAD_GATEWAY: Final = 502


class Page:
    """The handlers of one server."""

    def __init__(
        self,
        door: Door,
        cluster: Cluster,
        details: Details,
        streams: Streams,
        *,
        entered: Callable[[], None] = lambda: None,
    ) -> None:
        """`entered` is called when a browser was let in, and the token has changed."""
        self._door = door
        self._cluster = cluster
        self._details = details
        self._streams = streams
        self._entered = entered
        self._files = read_files()

    def application(self) -> web.Application:
        """Return what aiohttp runs."""
        app = web.Application(middlewares=[self._guard])
        job = "/{namespace}/{name}"
        app.add_routes(
            [
                web.get("/", self._index),
                web.get(job, self._index),
                web.get(f"{OURS}static/{{file}}", self._static),
                web.get(f"{OURS}stream", self._stream),
                web.get(f"{OURS}manifest{job}", self._manifest),
                web.get(f"{OURS}explain{job}", self._explain),
                web.get(f"{OURS}log{job}", self._log),
                web.get(f"{OURS}curves", self._curves),
            ]
        )
        app.on_shutdown.append(self._shut_down)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests that are not allowed, and give every response its headers."""
        refused = self._door.refusal(request.method, request.headers)
        try:
            if refused is not None:
                response: web.StreamResponse = _refusal(*refused)
            elif request.path == "/" and "token" in request.query:
                response = self._enter(request)
            elif not self._door.knows(request.cookies.get(self._door.cookie, "")) and not _is_public(request.path):
                response = self._no_entry(request)
            else:
                response = await handler(request)
        except web.HTTPException as error:
            response = _refusal(error.status, error.text or error.reason)
        except (ApiError, CliError) as error:
            response = _failure(error)
        if not response.prepared:
            response.headers.update(HEADERS)
        if refused is not None and refused[0] == web.HTTPMethodNotAllowed.status_code:
            response.headers["Allow"] = "GET, HEAD"
        return response

    def _enter(self, request: web.Request) -> web.Response:
        """Exchange the token for a session.

        The page that is sent then opens the list. For a redirect the browser would still count the page that led here as the
        sender, and leave the cookie out.
        """
        if self._door.knows(request.cookies.get(self._door.cookie, "")):
            return self._file("entered.html")
        session = self._door.let_in(request.query["token"])
        if session is None:
            return self._no_entry(request)
        self._entered()
        response = self._file("entered.html")
        response.set_cookie(self._door.cookie, session, httponly=True, samesite="Strict", path="/")
        return response

    def _no_entry(self, request: web.Request) -> web.Response:
        if request.path.startswith(OURS):
            return _refusal(
                401, "This browser was not let in: use the address that kubectl tfjob dashboard has printed."
            )
        return self._file("no-entry.html", status=401)

    async def _index(self, _: web.Request) -> web.Response:
        return self._file("index.html")

    async def _static(self, request: web.Request) -> web.Response:
        name = request.match_info["file"]
        if name not in self._files:
            raise web.HTTPNotFound(text="there is no such file")
        return self._file(name)

    def _file(self, name: str, status: int = 200) -> web.Response:
        body, kind = self._files[name]
        return web.Response(body=body, status=status, headers={"Content-Type": kind})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        return await self._streams.serve(request, HEADERS)

    async def _manifest(self, request: web.Request) -> web.Response:
        text = await self._details.manifest(*_place(request))
        return web.Response(text=text, headers={"Content-Type": TEXT})

    async def _explain(self, request: web.Request) -> web.Response:
        return web.Response(body=await self._details.diagnosis(*_place(request)), headers={"Content-Type": JSON})

    async def _log(self, request: web.Request) -> web.StreamResponse:
        """Send a log line by line, as it is written. Only pods of replicas are served: the page does not show other pods."""
        namespace, name = _place(request)
        if self._cluster.pod(object_key(namespace, name)) is None:
            raise web.HTTPNotFound(text=f"{PODS.kind} {name} is not there (any more)")
        query = request.query
        tail = query.get("tail", "")
        options = LogOptions(
            container=query.get("container", ""),
            follow=query.get("follow") == "true",
            previous=query.get("previous") == "true",
            tail_lines=min(int(tail), MOST_LINES) if tail.isdecimal() and len(tail) < 9 else MOST_LINES,
        )
        async with self._details.log(namespace, name, options) as lines:
            response = web.StreamResponse(headers={**HEADERS, "Content-Type": TEXT})
            await response.prepare(request)
            try:
                async with aclosing(lines) as open_lines:
                    async for some in open_lines:
                        await response.write("".join(f"{line}\n" for line in some).encode())
            except (ConnectionError, ApiError):
                return response  # the browser has gone, or the log: what was sent is all there is
        return response

    async def _curves(self, request: web.Request) -> web.StreamResponse:
        """Send the curves of some jobs, each whenever it changes."""
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": EVENT_STREAM})
        await response.prepare(request)
        try:
            async with aclosing(self._details.curves(self._cluster, request.query.getall("run", []))) as changes:
                async for body in changes:
                    await response.write(b"event: curves\ndata: %b\n\n" % body if body else b": beat\n\n")
        except ConnectionError:
            return response  # the browser has gone
        return response

    async def _shut_down(self, _: web.Application) -> None:
        self._streams.close()


def _place(request: web.Request) -> tuple[str, str]:
    return request.match_info["namespace"], request.match_info["name"]


def _is_public(path: str) -> bool:
    """Return whether a path needs no session: style and icon of the page that says that one is needed."""
    return path in {f"{OURS}static/page.css", f"{OURS}static/icon.svg"}


def _refusal(code: int, message: str) -> web.Response:
    return web.Response(body=msgspec.json.encode({"message": message}), status=code, headers={"Content-Type": JSON})


def _failure(error: ApiError | CliError) -> web.Response:
    """Return an error of the API server, or on the way to it: with its code if that is about the request, else as 502."""
    if isinstance(error, StatusError):
        code, message = error.code, error.status_message
    elif isinstance(error, Refusal):
        code, message = error.code, error.message
    else:
        code, message = 0, error.message
    return _refusal(code if code in {400, 403, 404} else _BAD_GATEWAY, message)
