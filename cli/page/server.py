"""The HTTP handlers. All responses have the headers defined in `authenticator`; all requests are read-only."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from tfjob_operator.api.client.errors import ApiError, StatusError
from tfjob_operator.api.client.options import LogOptions
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.meta import object_key
from tfjob_operator.api.text import clean
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.cli.commands.top_ import NOT_AVAILABLE, POD_METRICS
from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.page.authenticator import HEADERS, INTERNAL_PREFIX, ONLY_READS, LocalAuthenticator, read_files
from tfjob_operator.cli.page.board import Board
from tfjob_operator.cli.page.cluster import Cluster
from tfjob_operator.cli.page.cluster_authenticator import ClusterAuthenticator
from tfjob_operator.cli.page.details import Details
from tfjob_operator.cli.page.log_streams import MAX_RUNS, Logs, Run
from tfjob_operator.cli.page.long_responses import LongResponses
from tfjob_operator.cli.page.objects import TENSORFLOW_V1ALPHA1, TENSORFLOW_V1ALPHA1_NAME, JobKey, read_key
from tfjob_operator.cli.page.reviews import DENIED_TTL_S, ReviewFailedError
from tfjob_operator.cli.page.streams import Streams
from tfjob_operator.cli.page.viewers import DeniedError, UnauthenticatedError, Viewer
from tfjob_operator.cli.page.views import MAX_TEXT_BYTES
from tfjob_operator.cli.permissions import ResourceAttributes

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
EVENT_STREAM: Final = "text/event-stream"
MAX_LINES: Final = 10_000
_VIEWER: Final[ContextVar[Viewer]] = ContextVar("viewer")
"""The sender of the current request."""
_JOBS: Final = ("/{namespace}/{name}", f"/{{namespace}}/{{kind:{re.escape(TENSORFLOW_V1ALPHA1_NAME)}}}/{{name}}")
"""The paths of jobs, see `JobKey`."""
_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A DNS name, as of namespaces, jobs, pods and containers. Static files have such names, too."""


class Parts(NamedTuple):
    """The parts of a page: the caches and their views, the objects that read on demand, and a client."""

    board: Board
    cluster: Cluster
    details: Details
    logs: Logs
    client: RestClient


class Page:
    """The handlers of one server."""

    def __init__(self, authenticator: LocalAuthenticator | ClusterAuthenticator, parts: Parts) -> None:
        self._authenticator = authenticator
        self._parts = parts
        self._streams = Streams(parts.board)
        self._files = read_files()
        self._open: set[object] = {self._static} if authenticator.login_page else {self._static, self._index}
        """The handlers without authentication: their responses do not depend on the cluster."""
        self.long_responses = LongResponses()
        """The open streams, logs and curves."""

    def application(self) -> web.Application:
        """Return the aiohttp application."""
        app = web.Application(middlewares=[self._guard])
        long = {"stream": self._stream, "curves": self._curves, "log/{namespace}/{name}": self._log}
        long |= {f"logs{job}": self._job_logs for job in _JOBS}
        short = {
            "manifest": self._manifest,
            "explain": self._explain,
            "usage": self._usage,
            "tensorboard": self._tensorboard,
        }
        app.add_routes([web.get(INTERNAL_PREFIX + path, handler, allow_head=False) for path, handler in long.items()])
        app.add_routes([web.get("/", self._index), web.get(f"{INTERNAL_PREFIX}static/{{file}}", self._static)])
        for job in _JOBS:
            app.add_routes([web.get(f"{INTERNAL_PREFIX}{path}{job}", handler) for path, handler in short.items()])
            app.add_routes([web.get(job, self._index)])
        own = self._authenticator.routes()
        app.add_routes(own)
        self._open |= {each.handler for each in own}
        app.on_shutdown.append(self.long_responses.close)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject requests that are not allowed, and add the headers to every response."""
        try:
            response = await self._response(request, handler)
        except web.HTTPException as error:
            response = _refusal(error.status, error.text or error.reason)
            if "Retry-After" in error.headers:
                response.headers["Retry-After"] = error.headers["Retry-After"]
        except UnauthenticatedError:
            response = self._no_entry(request)
        except DeniedError as error:
            response = _refusal(403, str(error))
        except ReviewFailedError as error:
            response = _refusal(503, str(error))
            response.headers["Retry-After"] = f"{DENIED_TTL_S:.0f}"
        except (ApiError, CliError) as error:
            response = _failure(error)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _response(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        refused = self._authenticator.refusal(request)
        if refused is not None:
            response = _refusal(*refused)
            if refused == ONLY_READS:
                response.headers["Allow"] = "GET, HEAD"
            return response
        for name in request.match_info.values():
            require_name(name)
        if request.match_info.handler not in self._open:
            viewer = await self._authenticator.viewer(request)
            if viewer is None:
                raise UnauthenticatedError
            _VIEWER.set(viewer)
        return await handler(request)

    def _no_entry(self, request: web.Request) -> web.Response:
        if request.path.startswith(INTERNAL_PREFIX) or not self._authenticator.login_page:
            return _refusal(401, self._authenticator.words)
        return self._file(self._authenticator.login_page, status=401)

    async def _index(self, _: web.Request) -> web.Response:
        return self._file("index.html")

    async def _static(self, request: web.Request) -> web.Response:
        name = request.match_info["file"]
        if name not in self._files:
            raise web.HTTPNotFound(text="file not found")
        return self._file(name)

    def _file(self, name: str, status: int = 200) -> web.Response:
        body, kind = self._files[name]
        return web.Response(body=body, status=status, headers={"Content-Type": kind})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        job = _keys(request, "job")[:1]
        seen = request.headers.get("Last-Event-ID") or request.query.get("since", "")
        messages = self._streams.messages(_VIEWER.get(), seen, *job or [""])
        return await self.long_responses.send(request, _VIEWER.get(), messages, {"Content-Type": EVENT_STREAM})

    async def _manifest(self, request: web.Request) -> web.Response:
        job = _job(request)
        await _VIEWER.get().require(ResourceAttributes("get", *job))
        text = await self._parts.details.manifest(job)
        return web.Response(text=text, headers={"Content-Type": TEXT})

    async def _explain(self, request: web.Request) -> web.Response:
        job, viewer = _job(request), _VIEWER.get()
        await viewer.require(ResourceAttributes("get", *job))
        body = await self._parts.details.diagnosis(job, await viewer.granted(job))
        return web.Response(body=body, headers={"Content-Type": JSON})

    async def _usage(self, request: web.Request) -> web.Response:
        job = _job(request)
        await _VIEWER.get().require(ResourceAttributes("list", POD_METRICS, job.namespace))
        used = await self._parts.details.usage(job.namespace)
        pods = {pod.metadata.name for pod in self._parts.cluster.pods_of(str(job))}
        shown = {pod: usage for pod, usage in (used or {}).items() if pod in pods}
        message = NOT_AVAILABLE if used is None else "" if shown else "No usage has been measured for these pods yet"
        return _json({"pods": shown, "message": message})

    async def _tensorboard(self, request: web.Request) -> web.Response:
        job = _job(request)
        await _VIEWER.get().require(ResourceAttributes("list", SERVICES, job.namespace))
        return _json({"url": await self._parts.details.tensorboard(job)})

    async def _log(self, request: web.Request) -> web.StreamResponse:
        """Send the log of a replica's pod line by line as it is written."""
        namespace, name, options = request.match_info["namespace"], request.match_info["name"], _log_options(request)
        needs = ResourceAttributes("get", PODS, namespace, name, "log")
        await _VIEWER.get().require(needs)
        if self._parts.cluster.pod(object_key(namespace, name)) is None:
            raise web.HTTPNotFound(text=f"{PODS.kind} {name} not found")
        lines = self._parts.logs.of_pod(namespace, name, options)
        return await self.long_responses.send(request, _VIEWER.get(), _text(lines), _log_headers(request, name), needs)

    async def _job_logs(self, request: web.Request) -> web.StreamResponse:
        """Send the logs of all replicas of a job. Requires `list` of pods and `get` of logs in its namespace."""
        job, viewer, options = _job(request), _VIEWER.get(), _log_options(request)
        needs = (
            ResourceAttributes("list", PODS, job.namespace),
            ResourceAttributes("get", PODS, job.namespace, subresource="log"),
        )
        for attributes in needs:
            await viewer.require(attributes)
        if self._parts.cluster.job(str(job)) is None:
            raise web.HTTPNotFound(text=f"{job.resource.kind} {job.name} not found")
        lines = self._parts.logs.of_job(str(job), options)
        return await self.long_responses.send(request, viewer, _text(lines), _log_headers(request, job.name), *needs)

    async def _curves(self, request: web.Request) -> web.StreamResponse:
        """Send the curves of jobs whenever they change, or the reason why a job has none."""
        viewer, runs = _VIEWER.get(), _keys(request, "run")[:MAX_RUNS]
        reads = {run: ResourceAttributes("get", PODS, run.partition("/")[0], subresource="log") for run in runs}
        allowed = [run for run in reads if await viewer.may(reads[run])]

        async def messages() -> AsyncGenerator[bytes, None]:
            yield b""
            for run in [read for read in reads if read not in allowed]:
                yield b"event: curves\ndata: %b\n\n" % Run(run, "you are not allowed to read its logs").body()
            async with aclosing(self._parts.logs.curves(allowed)) as changes:
                async for body in changes:
                    yield b"event: curves\ndata: %b\n\n" % body if body else b": beat\n\n"

        needs = (reads[run] for run in allowed)
        return await self.long_responses.send(request, viewer, messages(), {"Content-Type": EVENT_STREAM}, *needs)


def require_name(name: str) -> None:
    """Raise HTTPBadRequest if this is not a DNS name: it becomes part of API paths and access reviews."""
    if not _NAME.fullmatch(name):
        raise web.HTTPBadRequest(text=f"{clean(name, MAX_TEXT_BYTES)!r} is not a valid name")


def _job(request: web.Request) -> JobKey:
    found = request.match_info
    return JobKey(TENSORFLOW_V1ALPHA1 if "kind" in found else TFJOBS, found["namespace"], found["name"])


def _keys(request: web.Request, field: str) -> list[str]:
    """Return the unique keys of jobs in a query. Raises HTTPBadRequest."""
    keys = [*dict.fromkeys(each for each in request.query.getall(field, []) if each)]
    for key in keys:
        job = read_key(key)
        require_name(job.namespace)
        require_name(job.name)
        if str(job) != key:
            raise web.HTTPBadRequest(text=f"{clean(key, MAX_TEXT_BYTES)!r} is not a job")
    return keys


def _log_options(request: web.Request) -> LogOptions:
    query = request.query
    container, tail = query.get("container", ""), query.get("tail", "")
    if container:
        require_name(container)
    return LogOptions(
        container=container,
        follow=query.get("follow") == "true",
        previous=query.get("previous") == "true",
        tail_lines=min(int(tail), MAX_LINES) if tail.isdecimal() and len(tail) < 9 else MAX_LINES,
    )


def _log_headers(request: web.Request, name: str) -> dict[str, str]:
    """Return the headers of a log; `name` and all others in the path are DNS names."""
    kept = {"Content-Disposition": f'attachment; filename="{request.match_info["namespace"]}-{name}.log"'}
    return {"Content-Type": TEXT, **(kept if request.query.get("download") == "true" else {})}


async def _text(lines: AsyncGenerator[list[str], None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(lines):
        async for some in lines:
            yield "".join(f"{line}\n" for line in some).encode()


def _json(value: dict[str, Any], code: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=code, headers={"Content-Type": JSON})


def _refusal(code: int, message: str) -> web.Response:
    return _json({"message": message}, code)


def _failure(error: ApiError | CliError) -> web.Response:
    """Return the response for an error of the API server or the connection to it: 400, 403 and 404 as is, others as 502."""
    code = error.code if isinstance(error, (StatusError, ApiServerError)) else 0
    message = error.status_message if isinstance(error, StatusError) else error.message
    return _refusal(code if code in {400, 403, 404} else 502, message)
