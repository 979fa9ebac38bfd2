"""The pages and what they ask for, over HTTP. Every response bears the headers of `entrance`; none changes anything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import aclosing
from contextvars import ContextVar
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from tfjob_operator.api.client.errors import ApiError, StatusError
from tfjob_operator.api.client.options import LogOptions
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import object_key
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.cli.errors import ApiError as Refusal
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.page.cluster import Cluster
from tfjob_operator.cli.page.details import MOST_RUNS, Details, no_curves
from tfjob_operator.cli.page.entrance import HEADERS, ONLY_READS, OURS, Entrance, File
from tfjob_operator.cli.page.objects import FIRST, FIRST_NAME, JobKey
from tfjob_operator.cli.page.reviews import REFUSED_S, Question, UnansweredError
from tfjob_operator.cli.page.streams import EVENT_STREAM, Streams
from tfjob_operator.cli.page.viewers import DeniedError, NotLetInError, Viewer

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
MOST_LINES: Final = 10_000
_VIEWER: Final[ContextVar[Viewer]] = ContextVar("viewer")
"""Who sends the request that a handler answers."""
_JOBS: Final = ("/{namespace}/{name}", f"/{{namespace}}/{{kind:{re.escape(FIRST_NAME)}}}/{{name}}")
"""The paths of jobs, see `JobKey`."""
_BAD_GATEWAY: Final = 502
_WITHDRAWN: Final = (DeniedError, NotLetInError, UnansweredError)
"""What ends a response that has begun: it goes on only as long as its right is confirmed."""


class Page:
    """The handlers of one server."""

    def __init__(
        self, entrance: Entrance, cluster: Cluster, details: Details, streams: Streams, files: Mapping[str, File]
    ) -> None:
        self._entrance = entrance
        self._cluster = cluster
        self._details = details
        self._streams = streams
        self._files = files

    def application(self) -> web.Application:
        """Return what aiohttp runs."""
        app = web.Application(middlewares=[self._guard])
        app.add_routes(
            [
                web.get("/", self._index),
                web.get(f"{OURS}static/{{file}}", self._static),
                web.get(f"{OURS}stream", self._stream),
                web.get(f"{OURS}log/{{namespace}}/{{name}}", self._log),
                web.get(f"{OURS}curves", self._curves),
            ]
        )
        for job in _JOBS:
            app.add_routes(
                [
                    web.get(job, self._index),
                    web.get(f"{OURS}manifest{job}", self._manifest),
                    web.get(f"{OURS}explain{job}", self._explain),
                ]
            )
        app.on_shutdown.append(self._shut_down)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests that are not allowed, and give every response its headers."""
        try:
            response = await self._response(request, handler)
        except web.HTTPException as error:
            response = _refusal(error.status, error.text or error.reason)
        except NotLetInError:
            response = self._no_entry(request)
        except DeniedError as error:
            response = _refusal(403, error.message)
        except UnansweredError as error:
            response = _refusal(503, error.message)
            response.headers["Retry-After"] = f"{REFUSED_S:.0f}"
        except (ApiError, CliError) as error:
            response = _failure(error)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _response(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        refused = self._entrance.refusal(request)
        if refused is not None:
            response = _refusal(*refused)
            if refused == ONLY_READS:
                response.headers["Allow"] = "GET, HEAD"
            return response
        own = await self._entrance.own(request)
        if own is not None:
            return own
        if request.path.removeprefix(f"{OURS}static/") in self._entrance.public:
            return await handler(request)
        viewer = await self._entrance.viewer(request)
        if viewer is None:
            return self._no_entry(request)
        _VIEWER.set(viewer)
        return await handler(request)

    def _no_entry(self, request: web.Request) -> web.Response:
        if request.path.startswith(OURS):
            return _refusal(401, self._entrance.words)
        return self._file(self._entrance.title_page, status=401)

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
        return await self._streams.serve(request, _VIEWER.get(), HEADERS)

    async def _manifest(self, request: web.Request) -> web.Response:
        job = _job(request)
        await _VIEWER.get().require(Question("get", *job))
        text = await self._details.manifest(job)
        return web.Response(text=text, headers={"Content-Type": TEXT})

    async def _explain(self, request: web.Request) -> web.Response:
        job, viewer = _job(request), _VIEWER.get()
        await viewer.require(Question("get", *job))
        body = await self._details.diagnosis(job, await viewer.readable(job))
        return web.Response(body=body, headers={"Content-Type": JSON})

    async def _log(self, request: web.Request) -> web.StreamResponse:
        """Send a log line by line, as it is written. Only pods of replicas are served: the page does not show other pods."""
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        viewer, question = _VIEWER.get(), Question("get", PODS, namespace, name, "log")
        await viewer.require(question)
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
                        await viewer.require(question)
                        await response.write("".join(f"{line}\n" for line in some).encode())
            except (ConnectionError, ApiError, *_WITHDRAWN):
                return response  # the browser has gone, or the log, or the right: what was sent is all there is
        return response

    async def _curves(self, request: web.Request) -> web.StreamResponse:
        """Send the curves of some jobs, each whenever it changes, and why there are none of others."""
        viewer, runs = _VIEWER.get(), [*dict.fromkeys(request.query.getall("run", []))][:MOST_RUNS]
        reads = {run: Question("get", PODS, run.partition("/")[0], subresource="log") for run in runs}
        allowed = [run for run in reads if await viewer.may(reads[run])]
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": EVENT_STREAM})
        await response.prepare(request)
        try:
            for run in [each for each in reads if each not in allowed]:
                await response.write(b"event: curves\ndata: %b\n\n" % no_curves(run, "you may not read logs there"))
            async with aclosing(self._details.curves(self._cluster, allowed)) as changes:
                async for body in changes:
                    for run in allowed:
                        await viewer.require(reads[run])
                    await response.write(b"event: curves\ndata: %b\n\n" % body if body else b": beat\n\n")
        except (ConnectionError, *_WITHDRAWN):
            return response  # the browser has gone, or asks again with the rights that are left
        return response

    async def _shut_down(self, _: web.Application) -> None:
        self._streams.close()


def _job(request: web.Request) -> JobKey:
    found = request.match_info
    return JobKey(FIRST if "kind" in found else TFJOBS, found["namespace"], found["name"])


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
