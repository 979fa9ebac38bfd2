"""Puts the page together and runs it: client, informers, board and server, on one loop."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
from aiohttp import web

from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.client.http.transport import HttpTransport
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.page.access import settings_of
from tfjob_operator.cli.page.board import Board
from tfjob_operator.cli.page.cluster import Cluster, readable_scope
from tfjob_operator.cli.page.details import Details
from tfjob_operator.cli.page.security import Door
from tfjob_operator.cli.page.server import Page
from tfjob_operator.cli.page.streams import Streams

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable

    from tfjob_operator.cli.kubeconfig import Access

AGENT: Final = "kubectl-tfjob"
END_S: Final = 1.0
"""How long requests may go on after Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to serve. `read` returns the access to the server for a namespace, None for the context's own.

    `everywhere` None shows all namespaces if the user may list their jobs, else the one that `read` finds. `listening` is a
    socket of this machine's loopback. `told` is called with the address for a browser, again whenever one was let in.
    """

    read: Callable[[str | None], Access]
    everywhere: bool | None
    listening: socket.socket
    told: Callable[[str], None]


async def run(plan: Plan) -> None:
    """Serve until it is cancelled. Raises CliError where the API server cannot be asked."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
    )  # the page says what fails
    async with serving(plan):
        await asyncio.Event().wait()


@asynccontextmanager
async def serving(plan: Plan) -> AsyncIterator[None]:
    """Serve as long as the block lasts. Raises CliError."""
    access = plan.read(None)
    try:
        settings = await asyncio.to_thread(settings_of, lambda: plan.read(None))
    except ApiError as error:
        raise CliError(error.message) from error
    except OSError as error:
        raise CliError(f"the kubeconfig's certificates can not be used: {error}") from error
    # Long requests have connections of their own: else a page with many logs would keep its short ones waiting.
    async with (
        HttpTransport(settings, user_agent=AGENT) as short,
        HttpTransport(settings, user_agent=AGENT, max_connections=0) as lasting,
    ):
        client, streams = RestClient(short), RestClient(lasting)
        scope = await readable_scope(client, own=access.namespace, everywhere=plan.everywhere)
        async with _caches(streams, scope, access) as (board, cluster):
            details = Details(client, streams, plan.read)
            async with _server(plan, board, cluster, details):
                yield


@asynccontextmanager
async def _caches(client: RestClient, scope: str, access: Access) -> AsyncIterator[tuple[Board, Cluster]]:
    board = Board({"server": access.server, "context": access.context})
    cluster = Cluster(client, scope, board.changed)
    async with asyncio.TaskGroup() as tasks:
        running = [*cluster.start(tasks), tasks.create_task(board.run(cluster), name="board")]
        try:
            yield board, cluster
        finally:
            for task in running:
                task.cancel()


@asynccontextmanager
async def _server(plan: Plan, board: Board, cluster: Cluster, details: Details) -> AsyncIterator[None]:
    host, port = plan.listening.getsockname()[:2]
    door = Door(port)

    def tell() -> None:
        plan.told(f"http://{host}:{port}/?token={door.token}")

    page = Page(door, cluster, details, Streams(board), entered=tell)
    runner = web.AppRunner(page.application(), access_log=None, handler_cancellation=True, shutdown_timeout=END_S)
    await runner.setup()
    try:
        await web.SockSite(runner, plan.listening).start()
        tell()
        yield
    finally:
        await runner.cleanup()
