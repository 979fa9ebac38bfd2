"""A proxy that misbehaves when told to: plain HTTP on loopback towards a client, TLS towards a real API server.

It passes requests on, and the bytes of watches as they come; it writes every request down; and it obeys rules:

    async with Proxy(control_plane.kubeconfig) as proxy, HttpTransport(Settings(proxy.url)) as transport:
        proxy.rule(lambda seen: seen.verb == "watch", answer_status(429, "TooManyRequests"), times=2)

The oldest rule that matches a request handles it; what rules can do is in `actions.py`.
Whoever can connect to the port is an administrator of the server, so use this only with servers that exist for a test.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NoReturn, Self

import aiohttp
from aiohttp import web
from yarl import URL

if TYPE_CHECKING:
    from types import TracebackType

Action = Callable[["Exchange"], Awaitable[web.StreamResponse]]
"""What a rule does with a request: answers it, passes it on in some way, or ends its connection."""
Matcher = Callable[["Seen"], bool]

LOOPBACK: Final = "127.0.0.1"
FLUSH_S: Final = 0.02  # the client reads what came before a cut; it runs on the same loop, so a moment is enough
STOP_S: Final = 1.0  # how long handlers get to end; their clients are gone before the proxy stops
REQUEST_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
ANSWER_HEADERS: Final = ("Content-Type", "Date", "Retry-After")


@dataclass(slots=True)
class Seen:
    """One request as it was seen. `status` is what the server or a rule answered; None as long as nobody did."""

    method: str
    path: str
    query: dict[str, str]
    at: float
    status: int | None = None
    verb: str = field(init=False)
    """As in RBAC: get, list, watch, create, update, patch, delete."""

    def __post_init__(self) -> None:
        self.verb = "watch" if "watch" in self.query else _verb(self.method, self.path)


@dataclass(slots=True)
class Rule:
    """Which requests it takes, what it does with them, and how many more it takes."""

    matches: Matcher
    action: Action
    left: float


class Stream:
    """A watch under way."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._transport = transport

    def cut(self, *, reset: bool) -> None:
        """End the connection in the middle of the response, as a process that dies does, or with `reset` as a router does."""
        if reset:
            connection: socket.socket = self._transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()


class Proxy:
    """Use as an async context manager. Invariant: `history` has every request that arrived, in the order of arrival."""

    def __init__(self, kubeconfig: Path) -> None:
        """Reads the file, which blocks for a moment."""
        self.server, self._tls = _administrator(kubeconfig)
        self.history: list[Seen] = []
        self.streams: set[Stream] = set()
        self._rules: list[Rule] = []
        self._port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{LOOPBACK}:{self._port}"

    async def __aenter__(self) -> Self:
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=STOP_S)
        await self._runner.setup()
        await self.accept()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self.session.close()

    async def accept(self) -> None:
        """Listen, on the same port as before."""
        self._site = web.TCPSite(self._runner, LOOPBACK, self._port)
        await self._site.start()
        self._port = self._runner.addresses[0][1]

    async def refuse(self) -> None:
        """Let new connections be refused until `accept`. Those that are open stay so."""
        await self._site.stop()

    def rule(self, matches: Matcher, action: Action, *, times: float = 1) -> None:
        """Let `action` have the next `times` requests that match."""
        self._rules.append(Rule(matches, action, times))

    def cut_streams(self, *, reset: bool = False) -> None:
        """Cut every open watch."""
        for stream in self.streams:
            stream.cut(reset=reset)

    def freeze_streams(self) -> None:
        """Let no byte more pass on the watches that are open now, and keep their connections."""
        for stream in self.streams:
            stream.flowing.clear()

    def thaw_streams(self) -> None:
        """Let frozen watches go on where they stopped."""
        for stream in self.streams:
            stream.flowing.set()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        seen = Seen(request.method, request.path, dict(request.query), asyncio.get_running_loop().time())
        self.history.append(seen)
        return await self._action_for(seen)(Exchange(self, request, seen))

    def _action_for(self, seen: Seen) -> Action:
        for rule in self._rules:
            if rule.left > 0 and rule.matches(seen):
                rule.left -= 1
                return rule.action
        return Exchange.forward


class Exchange:
    """One request, and what an action may do with it."""

    def __init__(self, proxy: Proxy, request: web.BaseRequest, seen: Seen) -> None:
        self._proxy = proxy
        self._request = request
        self.seen = seen

    async def forward(
        self, *, query: Mapping[str, str] | None = None, cut_after: float = math.inf
    ) -> web.StreamResponse:
        """Pass the request on, its query updated by `query`, and the response back. A watch is cut after `cut_after` bytes."""
        target = URL(self._proxy.server).join(self._request.rel_url)
        headers = {name: value for name, value in self._request.headers.items() if name in REQUEST_HEADERS}
        try:
            async with self._proxy.session.request(
                self.seen.method,
                target.update_query(query) if query else target,
                data=await self._request.read(),
                headers=headers,
            ) as answer:
                self.seen.status = answer.status
                if self.seen.verb == "watch" and answer.status == 200:
                    return await self._stream(answer, cut_after)
                return web.Response(status=answer.status, body=await answer.read(), headers=_kept(answer))
        except aiohttp.ClientError:  # the server is gone: from here that looks like a connection that ends
            await self.hang_up()

    async def _stream(self, answer: aiohttp.ClientResponse, cut_after: float) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=_kept(answer))
        await response.prepare(self._request)
        stream = Stream(self._transport())
        self._proxy.streams.add(stream)
        try:
            async for chunk in answer.content.iter_any():
                await stream.flowing.wait()
                if len(chunk) >= cut_after:
                    await response.write(chunk[: int(cut_after)])
                    await asyncio.sleep(FLUSH_S)
                    await self.hang_up()
                await response.write(chunk)
                cut_after -= len(chunk)
        finally:
            self._proxy.streams.discard(stream)
        return response

    def answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> web.Response:
        """Answer without asking the server."""
        self.seen.status = status
        return web.Response(status=status, body=body, headers=headers)

    async def hang_up(self) -> NoReturn:
        """End the connection without a response, or in the middle of one."""
        self._transport().abort()
        await self.wait_for_the_client_to_go()

    async def wait_for_the_client_to_go(self) -> NoReturn:
        """Do nothing; the server cancels the handler of a connection that has ended."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody sets this future")

    def _transport(self) -> asyncio.Transport:
        transport = self._request.transport
        if transport is None:
            raise asyncio.CancelledError  # the client left a moment ago
        return transport


def _kept(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name in ANSWER_HEADERS}


def _verb(method: str, path: str) -> str:
    parts = path.strip("/").split("/")
    place = parts[2:] if parts[0] == "api" else parts[3:]  # api/v1/..., apis/GROUP/v1/...
    if place[:1] == ["namespaces"] and len(place) > 2:
        place = place[2:]
    read = "get" if len(place) > 1 else "list"
    return {"GET": read, "POST": "create", "PUT": "update"}.get(method, method.lower())


def _administrator(kubeconfig: Path) -> tuple[str, ssl.SSLContext]:
    """The URL of the server, and a TLS context with the certificate of the kubeconfig's user."""
    document = json.loads(kubeconfig.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with TemporaryDirectory() as folder:  # OpenSSL reads certificates from files only
        for name in ("certificate", "key"):
            Path(folder, name).write_bytes(base64.b64decode(user[f"client-{name}-data"]))
        context.load_cert_chain(Path(folder, "certificate"), Path(folder, "key"))
    return cluster["server"], context
