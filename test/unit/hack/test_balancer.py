"""The balancer between clients and small servers, on loopback."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web

from hack.balancer.balancer import FALL, LOOPBACK, Backend, Balancer, balancer, is_ready, stop_listening
from hack.control_plane.run.pki import Authority
from support.waiting import until

pytestmark = pytest.mark.sockets
TICK_S = 0.01


class Talk(asyncio.Protocol):
    """Says a name, and then repeats what it is told."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(f"{self._server.name}\n".encode())
        self._server.open.add(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.open.discard(self)


class Server:
    """A server with a name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = True
        self.port = 0
        self.open: set[Talk] = set()

    async def start(self) -> None:
        """Listen, where it did before."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Talk(self), LOOPBACK, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Accept nothing more; what is open stays so."""
        await stop_listening(self._server)

    async def end(self) -> None:
        """Stop, and close all connections."""
        await self.stop()
        for talk in [*self.open]:
            talk.transport.abort()


class Scene:
    """Two servers behind a balancer."""

    def __init__(self, servers: dict[str, Server]) -> None:
        self.servers = servers
        self.balancer = Balancer([])
        self._writers: list[asyncio.StreamWriter] = []

    async def check(self, port: int) -> bool:
        """What the balancer asks."""
        server = next(each for each in self.servers.values() if each.port == port)
        _, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.transport.abort()
        return server.ready

    async def connect(self) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the balancer; return the name of the server, "" where the connection was cut."""
        reader, writer = await asyncio.open_connection(LOOPBACK, self.balancer.port)
        self._writers.append(writer)
        try:
            return (await reader.readline()).decode().strip(), reader, writer
        except ConnectionError:
            return "", reader, writer

    async def comes_to(self, *names: str) -> None:
        """Wait until new connections go to these servers and no others."""
        async with asyncio.timeout(60):
            while await self._names(4) != set(names):  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(TICK_S)

    async def _names(self, connections: int) -> set[str]:
        """Where so many new connections go, which end again."""
        found = [await self.connect() for _ in range(connections)]
        for _, _, writer in found:
            writer.transport.abort()
        return {name for name, _, _ in found}

    def hang_up(self) -> None:
        """End all connections."""
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    servers = {name: Server(name) for name in ("a", "b")}
    it = Scene(servers)
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:
        for server in servers.values():
            await server.start()
            stack.push_async_callback(server.end)
        backends = [server.port for server in servers.values()]
        it.balancer = await stack.enter_async_context(balancer(0, backends, check=it.check, period_s=TICK_S))
        stack.callback(it.hang_up)
        await it.comes_to("a", "b")
        yield it
    # A connection that is being accepted has a task of asyncio's own, and is opened after its server has ended.
    await until(lambda: asyncio.all_tasks() <= before)
    for server in servers.values():
        await server.end()


async def is_cut(reader: asyncio.StreamReader) -> None:
    """Wait for the end of a connection, however it ends."""
    async with asyncio.timeout(60):
        with suppress(ConnectionError):
            assert await reader.read() == b""


def test_a_new_connection_goes_to_the_server_that_has_fewest() -> None:
    busy, idle, dead = (Backend(port) for port in (1, 2, 3))
    busy.serves = idle.serves = True
    busy.connections = {object()}  # type: ignore[arg-type]
    assert Balancer([busy, idle, dead]).choose() is idle
    idle.serves = False
    assert Balancer([busy, idle, dead]).choose() is busy
    busy.serves = False
    assert Balancer([busy, idle, dead]).choose() is None


async def test_what_is_said_is_passed_on_both_ways() -> None:
    async with scene() as it:
        _, reader, writer = await it.connect()
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"


async def test_the_end_of_one_direction_is_passed_on_and_the_other_one_goes_on() -> None:
    async with scene() as it:
        _, reader, writer = await it.connect()
        writer.write(b"last")
        writer.write_eof()
        assert await reader.read() == b"last"


async def test_connections_of_a_server_that_accepts_no_more_are_cut_and_new_ones_go_to_the_other() -> None:
    """As when an API server is told to end: what is open would stay open for a minute."""
    async with scene() as it:
        found: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        while len(found) < 2:
            name, reader, writer = await it.connect()
            found[name] = (reader, writer)
        await it.servers["a"].stop()
        await is_cut(found["a"][0])
        await it.comes_to("b")
        reader, writer = found["b"]
        writer.write(b"alive")
        assert await reader.readexactly(5) == b"alive"
        await it.servers["a"].start()
        await it.comes_to("a", "b")


async def test_a_server_that_accepts_and_says_that_it_is_not_ready_gets_nothing() -> None:
    async with scene() as it:
        it.servers["a"].ready = False
        await it.comes_to("b")
        it.servers["a"].ready = True
        await it.comes_to("a", "b")


async def test_with_no_server_left_connections_are_cut_at_once() -> None:
    async with scene() as it:
        for server in it.servers.values():
            await server.end()
        await it.comes_to("")


async def test_all_connections_can_be_cut_and_new_ones_are_taken() -> None:
    async with scene() as it:
        readers = [(await it.connect())[1] for _ in range(3)]
        it.balancer.cut()
        for reader in readers:
            await is_cut(reader)
        await it.comes_to("a", "b")


async def test_a_server_that_says_no_once_keeps_its_connections() -> None:
    """A busy one may be slow, and its check of etcd may fail while a leader is elected."""
    backend = Backend(1)
    connection = asyncio.create_task(asyncio.Event().wait())
    backend.connections.add(connection)  # type: ignore[arg-type]
    said = iter([True, *[False] * (FALL - 1), True, *[False] * FALL])

    async def check(_: int) -> bool:
        return next(said)

    for _ in range(FALL + 1):
        await backend.look(check)
        assert backend.serves
    assert not connection.cancelling()
    for _ in range(FALL):
        await backend.look(check)
    assert not backend.serves
    await until(connection.cancelled)


async def test_readiness_is_what_the_server_answers_whatever_its_certificate(tmp_path: Path) -> None:
    """Also one whose certificate nobody knows, or that has expired: that is for clients to judge."""
    serving = Authority.make(tmp_path).server("server", [LOOPBACK])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(serving.certificate, serving.key)
    status = 200

    async def handle(request: web.BaseRequest) -> web.Response:
        assert request.path == "/readyz"
        return web.Response(status=status)

    runner = web.ServerRunner(web.Server(handle, access_log=None), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0, ssl_context=tls).start()
    try:
        port = runner.addresses[0][1]
        assert await is_ready(port)
        status = 500
        assert not await is_ready(port)
    finally:
        await runner.cleanup()
    with pytest.raises(ConnectionRefusedError):
        await is_ready(port)
