"""A proxy between a kube-apiserver and etcd that can delay etcd's watch events, so the API server's watch cache lags.

Reads and writes continue. Such an API server stores new objects, but answers a list with resourceVersion 0 from its stale
cache, like the slowest of several API servers.

etcd uses gRPC over HTTP/2. A call with a closed request stream is a read or a write; a call with an open one is a watch.
Therefore only the headers of frames are decoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9
DATA, HEADERS, RST_STREAM = 0x0, 0x1, 0x3
END_STREAM: Final = 0x1


class Frame(NamedTuple):
    """An HTTP/2 frame with its decoded header."""

    kind: int
    flags: int
    stream: int
    raw: bytes

    @property
    def ends(self) -> bool:
        """Whether it is the sender's last frame on this stream."""
        return self.kind == RST_STREAM or (self.kind in {DATA, HEADERS} and bool(self.flags & END_STREAM))

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> Frame:
        """Read the next frame. Raises IncompleteReadError at the end."""
        head = await reader.readexactly(HEAD_BYTES)
        body = await reader.readexactly(int.from_bytes(head[:3]))
        return cls(head[3], head[4], int.from_bytes(head[5:]) & 0x7FFFFFFF, head + body)


class Connection:
    """One connection of an API server; invariant: the frames of a stream keep their order.

    `frozen` are substrings: a watch is delayed if its key contains one of these.
    """

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._client = client
        self._server = server
        self._keys: dict[int, bytes] = {}
        self._held: list[Frame] = []
        self.frozen: Sequence[bytes] = ()

    def thaw(self) -> None:
        """Forward the delayed frames."""
        self.frozen = ()
        self._client.writelines(frame.raw for frame in self._held)
        self._held.clear()

    async def pass_requests(self, reader: asyncio.StreamReader) -> None:
        """Forward the API server's frames, and record which calls stay open."""
        self._server.write(await reader.readexactly(len(PREFACE)))
        while True:
            frame = await Frame.read(reader)
            if frame.ends:
                self._keys.pop(frame.stream, None)
            elif frame.kind == HEADERS:
                self._keys[frame.stream] = b""
            elif frame.kind == DATA:
                self._keys[frame.stream] += frame.raw
            self._server.write(frame.raw)
            await self._server.drain()

    async def pass_responses(self, reader: asyncio.StreamReader) -> None:
        """Forward etcd's frames, except those of frozen watches."""
        while True:
            frame = await Frame.read(reader)
            asked = self._keys.get(frame.stream)
            if asked is not None and frame.kind in {DATA, HEADERS} and any(key in asked for key in self.frozen):
                self._held.append(frame)
                continue
            self._client.write(frame.raw)
            await self._client.drain()

    def close(self) -> None:
        """Close both sides."""
        self._client.close()
        self._server.close()


class EtcdProxy:
    """Listens on one socket and forwards to another. Use `etcd_proxy`."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._connections: set[Connection] = set()
        self._frozen: Sequence[bytes] = ()

    def freeze(self, keys: Iterable[str] = ("/",)) -> None:
        """Delay watch events from now on, for keys that contain one of these (default: all keys)."""
        self._frozen = [key.encode() for key in keys]
        for connection in self._connections:
            connection.frozen = self._frozen

    def thaw(self) -> None:
        """Forward the delayed events, and delay no more."""
        self._frozen = ()
        for connection in self._connections:
            connection.thaw()

    async def serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Serve one connection until one side closes it."""
        from_server, to_server = await asyncio.open_unix_connection(str(self._target))
        connection = Connection(to_client, to_server)
        connection.frozen = self._frozen
        self._connections.add(connection)
        try:
            async with asyncio.TaskGroup() as sides:
                sides.create_task(connection.pass_requests(from_client))
                sides.create_task(connection.pass_responses(from_server))
        except* (asyncio.IncompleteReadError, ConnectionError):
            pass  # one side is closed, and the group closed the other one
        finally:
            self._connections.discard(connection)
            connection.close()


@asynccontextmanager
async def etcd_proxy(path: Path, target: Path) -> AsyncIterator[EtcdProxy]:
    """Create the socket `path`, and forward its connections to etcd's socket `target` until the end of the block."""
    proxy = EtcdProxy(target)
    serving: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(proxy.serve(reader, writer), name="etcd proxy")
        serving.add(task)
        task.add_done_callback(serving.discard)

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield proxy
    finally:
        server.close()
        left = [*serving]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
