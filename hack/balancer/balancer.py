"""Passes TCP connections on to backends that serve, as the load balancer before the API servers of a cluster does.

It does not look into what it passes on. A backend serves when it accepts connections and says so by `check`; one that
does not accept is dead at once, and one that says no, or nothing, when it has done so several times. The connections of
a dead backend are cut, and new ones go to the others, to the one that has fewest.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

LOOPBACK: Final = "127.0.0.1"
PERIOD_S: Final = 0.5
FALL: Final = 3
"""How often in a row a backend that accepts connections must fail to say that it serves. A busy one may be slow."""
ANSWER_S: Final = 5.0
PIECE_BYTES: Final = 65536


async def is_ready(port: int) -> bool:
    """Ask an API server on loopback for /readyz. Raises OSError if it does not accept connections, TimeoutError.

    Its certificate is not looked at: whether it is valid is for the clients to decide.
    """
    tls = ssl.create_default_context()
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    async with asyncio.timeout(ANSWER_S):
        reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=tls)
        try:
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return (await reader.readline()).split()[1:2] == [b"200"]
        finally:
            writer.transport.abort()


class Backend:
    """One server behind the balancer, and the connections to it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.serves = False
        self.connections: set[asyncio.Task[None]] = set()
        self._failures = 0

    async def look(self, check: Callable[[int], Awaitable[bool]]) -> None:
        """Find out whether it serves."""
        try:
            ready = await check(self.port)
        except ConnectionRefusedError:
            self._failures = FALL
        except OSError:  # a TimeoutError is one
            self._failures += 1
        else:
            self._failures = 0 if ready else self._failures + 1
        if self._failures == 0:
            self.serves = True
        elif self._failures >= FALL:
            self.die()

    def die(self) -> None:
        """Take no more connections, and cut those that are open."""
        self.serves = False
        self.cut()

    def cut(self) -> None:
        """Cut the connections that are open."""
        for connection in self.connections:
            connection.cancel()


class Balancer:
    """Use `balancer`."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = backends
        self.port = 0
        """Where it listens."""

    def cut(self) -> None:
        """Cut all connections; new ones are taken as before."""
        for backend in self._backends:
            backend.cut()

    async def serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Pass one connection on until one side breaks or both have ended. Without a backend it is cut at once."""
        connection = cast("asyncio.Task[None]", asyncio.current_task())
        writers = [to_client]
        try:
            while (backend := self.choose()) is not None:
                backend.connections.add(connection)
                connection.add_done_callback(backend.connections.discard)
                try:
                    from_server, to_server = await asyncio.open_connection(LOOPBACK, backend.port)
                except OSError:
                    backend.connections.discard(connection)
                    backend.die()
                    continue
                writers.append(to_server)
                async with asyncio.TaskGroup() as sides:
                    sides.create_task(_pass_on(from_client, to_server))
                    sides.create_task(_pass_on(from_server, to_client))
                return
        except* OSError:
            pass  # one side has gone, and the group has ended the other one
        finally:
            for writer in writers:
                writer.transport.abort()

    def choose(self) -> Backend | None:
        """Return the backend for the next connection, None if none serves."""
        serving = [backend for backend in self._backends if backend.serves]
        return min(serving, key=lambda backend: len(backend.connections), default=None)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()


async def stop_listening(server: asyncio.Server) -> None:
    """Close a server; connections that it has accepted stay open.

    `Server.close` alone would forget a connection that is being accepted, and leave it open for ever (CPython 3.11, 3.12).
    """
    loop = asyncio.get_running_loop()
    for each in server.sockets:
        loop.remove_reader(each.fileno())
    await asyncio.sleep(0)  # what was accepted gets its transport, which a closed server refuses
    server.close()


@asynccontextmanager
async def balancer(
    port: int,
    backends: Sequence[int],
    *,
    check: Callable[[int], Awaitable[bool]] = is_ready,
    period_s: float = PERIOD_S,
) -> AsyncIterator[Balancer]:
    """Listen on a port of loopback, 0 for any, and pass on to these ports. The block's end cuts everything.

    Backends are looked at every `period_s` seconds.
    """
    servers = [Backend(each) for each in backends]
    passing = Balancer(servers)
    serving: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not listening.is_serving():  # accepted in the last moment
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(passing.serve(reader, writer), name="balanced connection")
        serving.add(task)
        task.add_done_callback(serving.discard)
        task.add_done_callback(lambda _: writer.transport.abort())  # also of a task that is cancelled before it begins

    async def watch(backend: Backend) -> None:
        while True:
            await backend.look(check)
            await asyncio.sleep(period_s)

    listening = await asyncio.start_server(serve, LOOPBACK, port)
    tasks = [asyncio.create_task(watch(backend), name=f"look at {backend.port}") for backend in servers]
    try:
        passing.port = listening.sockets[0].getsockname()[1]
        yield passing
    finally:
        await stop_listening(listening)
        left = [*tasks, *serving]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
