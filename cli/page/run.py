"""Assembles the page and runs it: client, informers, board and server, on one loop.

The page uses the plugin user's credentials. It reloads the kubeconfig each minute, since tokens in files rotate and users log
in again while the page is open.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from tfjob_operator.api.access import Access, AccessError
from tfjob_operator.api.client.auth.settings import settings_of
from tfjob_operator.api.client.http.transport import HttpTransport
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.page.authenticator import LocalAuthenticator
from tfjob_operator.cli.page.board import Board
from tfjob_operator.cli.page.cluster import Cluster, background_tasks, readable_scope
from tfjob_operator.cli.page.details import Details
from tfjob_operator.cli.page.log_streams import Logs
from tfjob_operator.cli.page.server import Page, Parts
from tfjob_operator.cli.printing import echo
from tfjob_operator.cli.target import Target

AGENT: Final = "kubectl-tfjob"
SHUTDOWN_S: Final = 1.0
"""The timeout of open requests after Ctrl-C."""


Read = Callable[[str | None], Access]
"""Returns the access to the server for a namespace; None selects the namespace of the context."""


async def run(
    target: Target, listener: socket.socket, print_link: Callable[[str], None], *, everywhere: bool | None
) -> None:
    """Serve until cancelled, see `serving`. Raises CliError if the API server cannot be reached."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))  # the page shows errors
    logging.lastResort = TerminalHandler(logging.WARNING)
    async with serving(target.access, listener, print_link, everywhere=everywhere, flags=target.shown):
        await asyncio.Event().wait()


@asynccontextmanager
async def serving(
    read: Read, listener: socket.socket, print_link: Callable[[str], None], *, everywhere: bool | None, flags: str = ""
) -> AsyncIterator[None]:
    """Serve on a loopback socket within the context. Raises CliError. `flags` are the options of commands on the page.

    `print_link` is called with the link to open in a browser, and with a new link each time a link has been used.
    """
    host, port = listener.getsockname()[:2]

    def print_new_link() -> None:
        print_link(f"http://{host}:{port}/#token={authenticator.token}")

    authenticator = LocalAuthenticator(port, print_new_link)
    async with (
        reading(read, everywhere=everywhere, flags=flags) as parts,
        listening(Page(authenticator, parts), listener),
    ):
        print_new_link()
        yield


@asynccontextmanager
async def reading(
    read: Read, *, everywhere: bool | None, shared: bool = False, flags: str = ""
) -> AsyncIterator[Parts]:
    """Read the cluster until the async with block ends. `shared`: viewers have different permissions. Raises CliError.

    With `everywhere` None, the page shows all namespaces if the user may list jobs in all of them; otherwise, it shows only the
    namespace that `read` selects.
    """
    access = read(None)
    try:
        settings = await asyncio.to_thread(settings_of, partial(_again, read))
    except AccessError as error:
        raise CliError(error.message) from error
    # Long requests use separate connections: a page with many logs would otherwise delay its short ones.
    async with (
        HttpTransport(settings, user_agent=AGENT) as short,
        HttpTransport(settings, user_agent=AGENT, max_connections=0) as lasting,
    ):
        client, streams = RestClient(short), RestClient(lasting)
        scope = await readable_scope(client, own=access.namespace, everywhere=everywhere)
        server, context = ("", "") if shared else (access.shown, access.context)
        about = {"server": server, "context": context, "flags": flags}
        board = Board(about, bare=shared)
        cluster = Cluster(streams, scope, board.changed, reads_workloads=not shared)
        async with cluster.running(), background_tasks(board.run(cluster)):
            details = Details(client, read)
            try:
                yield Parts(board, cluster, details, Logs(streams, cluster), client)
            finally:
                await details.close()


@asynccontextmanager
async def listening(page: Page, listener: socket.socket, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """Handle requests within the context."""
    logger = logging.getLogger(__name__)
    logger.addFilter(_is_ours)
    runner = web.AppRunner(
        page.application(), access_log=None, logger=logger, handler_cancellation=True, shutdown_timeout=SHUTDOWN_S
    )
    await runner.setup()
    try:
        await web.SockSite(runner, listener, ssl_context=tls).start()
        yield
    finally:
        await runner.cleanup()


class TerminalHandler(logging.Handler):
    """Prints the warnings of libraries, which may quote the API server."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        echo(*self.format(record).split("\n"), err=True)


def _again(read: Read) -> Access:
    try:
        return read(None)
    except CliError as error:
        raise AccessError(error.message) from error


def _is_ours(record: logging.LogRecord) -> bool:
    """Return False for the traceback of a malformed request; the client got a 400 response."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)
