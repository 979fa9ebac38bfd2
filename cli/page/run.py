"""Puts the page together and runs it: client, informers, board and server, on one loop.

The page acts as the plugin's user: the kubeconfig is read again each minute, as tokens in files rotate, and people log in again
while the page is open.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog
from aiohttp import web

from tfjob_operator.api.client.auth import credentials
from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.client.http.errors import CredentialsError
from tfjob_operator.api.client.http.messages import Credentials, Settings
from tfjob_operator.api.client.http.transport import HttpTransport
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.cli.credentials import run_plugin
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.kubeconfig import Access
from tfjob_operator.cli.page.board import Board
from tfjob_operator.cli.page.cluster import Cluster, readable_scope
from tfjob_operator.cli.page.details import Details
from tfjob_operator.cli.page.entrance import Door, TokenEntrance, read_files
from tfjob_operator.cli.page.logs import Logs
from tfjob_operator.cli.page.server import Page, Parts
from tfjob_operator.cli.session import proxy_of_environment

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
    host, port = plan.listening.getsockname()[:2]
    door, files = Door(port), read_files()

    def tell() -> None:
        plan.told(f"http://{host}:{port}/?token={door.token}")

    entrance = TokenEntrance(door, files["entered.html"], tell)
    async with (
        reading(plan.read, everywhere=plan.everywhere) as parts,
        listening(Page(entrance, parts, files), plan.listening),
    ):
        tell()
        yield


@asynccontextmanager
async def reading(
    read: Callable[[str | None], Access], *, everywhere: bool | None, shared: bool = False
) -> AsyncIterator[Parts]:
    """Read the cluster as long as the block lasts; see `Plan`. `shared`: not all viewers may see all. Raises CliError."""
    access = read(None)
    try:
        settings = await asyncio.to_thread(settings_of, lambda: read(None))
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
        scope = await readable_scope(client, own=access.namespace, everywhere=everywhere)
        about = {"server": "" if shared else access.server, "context": "" if shared else access.context}
        board = Board(about, bare=shared)
        async with _caches(streams, scope, board) as cluster:
            details = Details(client, read)
            try:
                yield Parts(board, cluster, details, Logs(streams, cluster), client)
            finally:
                await details.close()


@asynccontextmanager
async def _caches(client: RestClient, scope: str, board: Board) -> AsyncIterator[Cluster]:
    cluster = Cluster(client, scope, board.changed)
    async with asyncio.TaskGroup() as tasks:
        running = [*cluster.start(tasks), tasks.create_task(board.run(cluster), name="board")]
        try:
            yield cluster
        finally:
            for task in running:
                task.cancel()


@asynccontextmanager
async def listening(page: Page, on: socket.socket, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """Answer requests as long as the block lasts."""
    runner = web.AppRunner(page.application(), access_log=None, handler_cancellation=True, shutdown_timeout=END_S)
    await runner.setup()
    try:
        await web.SockSite(runner, on, ssl_context=tls).start()
        yield
    finally:
        await runner.cleanup()


_WHERE: Final = "the kubeconfig"


def settings_of(read: Callable[[], Access]) -> Settings:
    """Return settings with refreshed credentials. Blocks; raises CliError, ConfigError, CredentialsError, OSError."""
    access = read()
    tls = credentials.address_of(access.server).tls
    trust = credentials.Trust(access.authority, verify=access.verify) if tls else None
    reader = _Reader(read, trust)
    proxy = access.proxy or proxy_of_environment(access.server)
    first = reader() if access.command is None else None  # a plugin may ask on the terminal: the first request runs it
    return Settings(
        access.server,
        credentials.RefreshedCredentials(reader, first=first),
        tls_server_name=access.tls_server_name,
        proxy=credentials.usable_proxy(proxy),
    )


class _Reader:
    """Reads credentials. A context is made anew only for another certificate: a new one closes all connections."""

    def __init__(self, read: Callable[[], Access], trust: credentials.Trust | None) -> None:
        self._read = read
        self._trust = trust
        self._pair: tuple[str | None, str | None] = (None, None)
        self._context: ssl.SSLContext | None = trust.context() if trust is not None else None

    def __call__(self) -> Credentials:
        """Return what the kubeconfig holds now. Raises CredentialsError."""
        try:
            access = self._read()
            context = self._context_of(access)
            if access.command is not None:
                return credentials.PluginReader(
                    str(access.command.get("command")), _runs(access), self._trust, context
                )()
            return Credentials(_authorization(access), context, credentials.FILE_REFRESH_S)
        except CliError as error:
            raise CredentialsError(error.message) from error
        except OSError as error:
            raise CredentialsError(f"the certificates of {_WHERE} cannot be used: {error}") from error

    def _context_of(self, access: Access) -> ssl.SSLContext | None:
        pair = access.certificate, access.key
        if self._trust is not None and pair != self._pair:
            certificate, key = pair
            both = certificate and key
            self._context = (
                self._trust.context_from_pem(certificate or "", key or "") if both else self._trust.context()
            )
            self._pair = pair
        return self._context


def _runs(access: Access) -> Callable[[], Mapping[str, str]]:
    command, cluster = access.command or {}, access.cluster

    def status() -> Mapping[str, str]:
        try:
            return run_plugin(command, cluster)
        except CliError as error:
            raise CredentialsError(error.message) from error

    return status


def _authorization(access: Access) -> str | None:
    """Return the Authorization header. A password wins over a token, as in kubectl."""
    if access.basic is not None:
        return f"Basic {base64.b64encode(':'.join(access.basic).encode()).decode()}"
    return credentials.authorization(f"Bearer {access.token}", f"the token of {_WHERE}") if access.token else None
