"""The page for Prometheus and the answers for probes: plain HTTP, served by the loop that does the work.

That is on purpose: a loop that is stuck does not answer its liveness probe, and gauges can be read without locks.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from aiohttp import web

from controller.observability.metrics import CONTENT_TYPE, exposition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from prometheus_client import CollectorRegistry


GOODBYE_S: Final = 0.5
"""How long an answer that is under way when we stop may take to end."""
BACKLOG: Final = 16
"""Connections that wait to be accepted: a scraper and a kubelet are two."""


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

    app = web.Application()
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


@asynccontextmanager
async def serving(app: web.Application, address: str, port: int) -> AsyncIterator[None]:
    """Serve the pages inside the block; an empty address means all interfaces. Raises ListenError."""
    runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=GOODBYE_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, address or None, port, backlog=BACKLOG).start()
        except OSError as error:
            raise ListenError(f"can not listen on {address or '*'}:{port}: {error}") from error
        yield
    finally:
        await runner.cleanup()
