"""A scripted server on loopback, with the misbehavior of real servers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from hack.control_plane.run.pki import Authority
from tfjob_operator.api.access import Access
from tfjob_operator.api.client import HttpTransport, ListOptions, RestClient
from tfjob_operator.api.client.http import Credentials, FixedCredentials, OnLeave, Request, unchanged
from tfjob_operator.api.meta import Resource

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
AT_ONCE_S = 5.0
"""The maximum time on a busy machine of something that takes milliseconds; the waits to distinguish take 10s or more."""


class Peer:
    """The server's side of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: list[Heard]) -> None:
        self.reader = reader
        self.writer = writer
        self._heard = heard

    async def request(self) -> Heard:
        """Read one request. Raises IncompleteReadError at the end of the connection."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = lines[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        self._heard.append(Heard(method, target, headers, body))
        return self._heard[-1]

    async def say(self, data: bytes) -> None:
        """Send bytes unchanged."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, body: bytes = b"{}", *, status: str = "200 OK", headers: str = "") -> None:
        """Send a whole response; `headers` are lines, each with its end."""
        kind = "" if "content-type" in headers.lower() else "Content-Type: application/json\r\n"
        await self.say(f"HTTP/1.1 {status}\r\n{kind}Content-Length: {len(body)}\r\n{headers}\r\n".encode() + body)

    async def open_stream(self) -> None:
        """Start a chunked response."""
        await self.say(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        """Send one chunk."""
        await self.say(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def gone(self) -> None:
        """Wait until the client has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def reset(self) -> None:
        """End the connection with RST."""
        raw: socket.socket = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.writer.transport.abort()


@dataclass(frozen=True)
class Heard:
    """A received request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Server:
    """What a test's server received."""

    url: str = ""
    port: int = 0
    heard: list[Heard] = field(default_factory=list)
    connections: int = 0
    open: int = 0


Behaviour = Callable[[Peer], Awaitable[object]]


@asynccontextmanager
async def serving(
    behave: Behaviour, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Server]:
    """Run a server on a local address inside the block; it passes each connection to `behave`."""
    seen = Server()
    tasks: set[asyncio.Task[Any]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        seen.connections += 1
        seen.open += 1
        try:
            await behave(Peer(reader, writer, seen.heard))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            seen.open -= 1
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(connected, host, port, ssl=tls)
    seen.port = server.sockets[0].getsockname()[1]
    seen.url = f"{'https' if tls else 'http'}://{host}:{seen.port}"
    try:
        yield seen
    finally:
        server.close()
        told: set[asyncio.Task[Any]] = set()
        # A handshake that the client abandoned may still become a connection, much later on a busy machine.
        while tasks or _accepted_by(host, seen.port):
            for task in tasks - told:
                task.cancel()
            told |= tasks
            await asyncio.sleep(0.001)
        # One turn later, asyncio's task that waits for a handshake learns that the connection was reset.
        await asyncio.sleep(0)


def _accepted_by(*address: str | int) -> list[asyncio.BaseTransport]:
    """Return this loop's open connections to that local address."""
    known: Mapping[int, asyncio.BaseTransport] = getattr(asyncio.get_running_loop(), "_transports", {})
    mine = [each for each in known.values() if each.get_extra_info("sockname", ())[:2] == address]
    return [each for each in mine if each.get_extra_info("socket").fileno() >= 0]


def get(total_s: float = 0.4) -> Request:
    """Return a request for all pods."""
    return Request("GET", "/api/v1/pods", total_s=total_s)


async def body_of(transport: HttpTransport, request: Request, on_leave: OnLeave = unchanged) -> bytes:
    """Send a request and return the body of its response."""
    response = await transport.send(request, on_leave)
    try:
        return await response.body()
    finally:
        response.close()


async def never_answers(peer: Peer) -> None:
    """Read a request, and send nothing until the client disconnects."""
    await peer.request()
    await peer.gone()


async def stalls_after_the_head(peer: Peer) -> None:
    """Send the head of a response without a body."""
    await peer.request()
    await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
    await peer.gone()


async def trickles(peer: Peer) -> None:
    """Send data slowly and endlessly: never silent longer than a read may take, so only the total limit ends it."""
    await peer.request()
    await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        await peer.say(b" ")
        await asyncio.sleep(0.02)


async def closes_without_a_word(peer: Peer) -> None:
    """Read a request, and close the connection."""
    await peer.request()


async def resets(peer: Peer) -> None:
    """Read a request, and reset the connection."""
    await peer.request()
    peer.reset()


async def fine_for_ever(peer: Peer) -> None:
    """Respond to all requests with an empty object."""
    while True:
        await peer.request()
        await peer.answer()


async def forward(peer: Peer, host: str, port: int) -> None:
    """Copy bytes in both directions until one side closes."""
    reader, writer = await asyncio.open_connection(host, port)

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()

    try:
        ways = [asyncio.ensure_future(copy(peer.reader, writer)), asyncio.ensure_future(copy(reader, peer.writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
    finally:
        writer.transport.abort()


def server_context(authority: Authority) -> ssl.SSLContext:
    """Return the context of a server for 127.0.0.1 that asks for a client certificate and also accepts clients without one."""
    made = authority.server("server", ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def trusting(authority: Authority) -> FixedCredentials:
    """Return client credentials that trust the servers of this authority."""
    return FixedCredentials(
        Credentials(None, Access("https://", authority=authority.certificate.read_text()).tls_context())
    )


async def follow(
    client: RestClient, seen: list[bytes], *, idle_s: float = 5.0, options: ListOptions | None = None
) -> None:
    """Watch config maps, and add each received line to `seen`."""
    async with client.watch(CONFIG_MAPS, options or ListOptions(namespace="ns"), idle_s=idle_s) as lines:
        async for batch in lines:
            seen.extend(batch)
