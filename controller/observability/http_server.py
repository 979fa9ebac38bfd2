"""The page for Prometheus and the answers for probes: plain HTTP, served by the loop that does the work.

That is on purpose: a loop that is stuck does not answer its liveness probe, and gauges can be read without locks.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, cast

import structlog
from aiohttp import web

from tfjob_operator.controller.observability.metrics import CONTENT_TYPE, exposition
from tfjob_operator.controller.observability.visitors import Visitors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from aiohttp.typedefs import Handler
    from prometheus_client import CollectorRegistry


GOODBYE_S: Final = 0.5
"""How long an answer that is under way when we stop may take to end."""
BACKLOG: Final = 128
"""Connections that wait to be accepted: a scraper and a kubelet are two, and others must not keep them out."""

log = structlog.get_logger(__name__)


class ListenError(Exception):
    """The address can not be listened on."""


def make_app(
    registry: CollectorRegistry,
    *,
    healthz: Mapping[str, Callable[[], str | None]],
    readyz: Mapping[str, Callable[[], str | None]],
) -> web.Application:
    """The three pages: /metrics, /healthz and /readyz. A check answers what is wrong, or None."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=exposition(registry), headers={"Content-Type": CONTENT_TYPE})

    async def health(_: web.Request) -> web.Response:
        return _verdict(healthz)

    async def ready(_: web.Request) -> web.Response:
        return _verdict(readyz)

    app = web.Application(middlewares=[_crashes_told])
    app.on_response_prepare.append(_close_after)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", health)
    app.router.add_get("/readyz", ready)
    return app


def _verdict(checks: Mapping[str, Callable[[], str | None]]) -> web.Response:
    """`ok`, or 500 with what fails: the form that people know from the API server's own pages."""
    results = {name: check() for name, check in checks.items()}
    wrong = [f"[-]{name} failed: {complaint}\n" for name, complaint in results.items() if complaint is not None]
    if not wrong:
        return web.Response(text="ok")
    fine = [f"[+]{name} ok\n" for name, complaint in results.items() if complaint is None]
    return web.Response(status=500, text="".join(fine + wrong))


@web.middleware
async def _crashes_told(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except Exception:  # a bug of ours; what a stranger sends is told nowhere
        log.exception("page_crashed", path=request.path)
        raise web.HTTPInternalServerError from None


async def _close_after(_: web.Request, answer: web.StreamResponse) -> None:
    """One request a connection: for those who come every few seconds another one costs nothing."""
    answer.force_close()


@asynccontextmanager
async def serving(app: web.Application, address: str, port: int) -> AsyncIterator[None]:
    """Serve the pages inside the block; an empty address means all interfaces. Raises ListenError."""
    runner = web.AppRunner(app, handle_signals=False, access_log=None, logger=_silence(), shutdown_timeout=GOODBYE_S)
    await runner.setup()
    try:
        listening = await _listen(runner, address, port)
        try:
            yield
        finally:
            listening.close()
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, address: str, port: int) -> asyncio.Server:
    """Not by a site of aiohttp's, which takes as many connections as come, for as long as they like."""
    serve = cast("Callable[[], asyncio.Protocol]", runner.server)
    try:
        return await asyncio.get_running_loop().create_server(Visitors(serve), address or None, port, backlog=BACKLOG)
    except OSError as error:
        raise ListenError(f"can not listen on {address or '*'}:{port}: {error}") from error


def _silence() -> logging.Logger:
    """A logger for aiohttp that says nothing: it tells of every request that is none, with a traceback."""
    logger = logging.getLogger("controller.pages")
    logger.disabled = True
    return logger
