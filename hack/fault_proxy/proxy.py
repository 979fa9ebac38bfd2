"""A proxy between a client and a real API server that injects faults.

It forwards requests and the bytes of watches, records every request, numbers the writes, and applies rules:

    async with Proxy(control_plane.kubeconfig) as proxy, HttpTransport(Settings(proxy.url)) as transport:
        proxy.rule(lambda seen: seen.verb == "watch", answer_status(429, "TooManyRequests"), times=2)

The oldest rule that matches a request handles it. The actions of rules are at the end of this file.

With a server certificate of the control plane's authority it uses TLS and requires a client certificate of the same authority;
`kubeconfig_through` then writes a kubeconfig for any program. Without a certificate it uses plain HTTP on loopback, where
every client has the permissions of the kubeconfig's user: use this only with test servers.
"""

from __future__ import annotations

import asyncio
import copy
import json
import math
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from hack.control_plane.run.pki import Credential
from hack.http_server import stop_accepting
from tfjob_operator.cli.target import Target

Action = Callable[["Exchange"], Awaitable[web.StreamResponse]]
"""The action of a rule: answer the request, forward it, or close its connection."""
Matcher = Callable[["Seen"], bool]

LOOPBACK: Final = "127.0.0.1"
FLUSH_S: Final = 0.02  # the client, which runs on the same loop, must read the data before the connection is closed
STOP_S: Final = 1.0  # time for handlers to finish; their clients are gone before the proxy stops
REQUEST_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
ANSWER_HEADERS: Final = ("Content-Type", "Content-Encoding", "Date", "Retry-After")
WRITES: Final = frozenset({"create", "update", "patch", "delete"})
STEP_S: Final = 0.1  # between the pieces of a slow response


@dataclass(frozen=True, slots=True)
class Place:
    """The parts of an API path; missing ones are empty."""

    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""

    @classmethod
    def of(cls, path: str) -> Place:
        """Read a path such as `/apis/GROUP/v1/namespaces/NS/RESOURCE/NAME/SUBRESOURCE`."""
        parts = path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        resource, name, subresource = (*rest[:3], "", "", "")[:3]
        return cls(namespace, resource, name, subresource)


@dataclass(slots=True)
class Seen:
    """A recorded request. `status` is the status code of the server or a rule, None before the response.

    `number` counts the writes of a proxy from 1 in the order of arrival. It is 0 for reads, and for writes of Leases, because
    the number of Lease writes depends on time. `body` is the request body of a write.
    """

    method: str
    path: str
    query: dict[str, str]
    at: float
    status: int | None = None
    number: int = 0
    body: bytes = b""
    place: Place = field(init=False)
    verb: str = field(init=False)
    """As in RBAC: get, list, watch, create, update, patch, delete."""

    def __post_init__(self) -> None:
        self.place = Place.of(self.path)
        read = "get" if self.place.name else "list"
        verbs = {"GET": read, "POST": "create", "PUT": "update"}
        self.verb = "watch" if "watch" in self.query else verbs.get(self.method, self.method.lower())

    @property
    def is_write(self) -> bool:
        """Whether it gets a number."""
        return self.verb in WRITES and self.place.resource != "leases"

    def __str__(self) -> str:
        place = self.place
        return "/".join(filter(None, (f"{self.verb} {place.resource}", place.name, place.subresource)))


@dataclass(slots=True)
class Rule:
    """A condition on requests, an action, and how many more requests the rule handles."""

    matches: Matcher
    action: Action
    left: float


def _any(_: Seen) -> bool:
    return True


class Stream:
    """An open watch."""

    def __init__(self, transport: asyncio.Transport, seen: Seen) -> None:
        self.seen = seen
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._transport = transport

    def cut(self, *, reset: bool) -> None:
        """Close the connection in the middle of the response, like a crashing process; with `reset`, like a router."""
        if reset:
            connection: socket.socket = self._transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def close_half(self) -> None:
        """Send the end of the stream like a process that crashes, but keep the other half of the connection open."""
        connection: socket.socket = self._transport.get_extra_info("socket")
        connection.shutdown(socket.SHUT_WR)


class Proxy:
    """Use as an async context manager. Invariant: `history` has every request in the order of arrival."""

    def __init__(self, kubeconfig: Path, *, serving: Credential | None = None) -> None:
        """Use the permissions of a kubeconfig; `serving` is the certificate for TLS. Reads the files, which blocks."""
        self._kubeconfig = json.loads(kubeconfig.read_text())
        access = Target(kubeconfig=str(kubeconfig)).access()
        self.server, self._tls = access.server, access.tls_context() or ssl.create_default_context()
        self._serving = _serving(serving, access.authority) if serving is not None else None
        self.writes = 0
        self.history: list[Seen] = []
        self.streams: set[Stream] = set()
        self._rules: list[Rule] = []
        self._port = 0

    @property
    def url(self) -> str:
        """The URL on which it listens."""
        return f"{'http' if self._serving is None else 'https'}://{LOOPBACK}:{self._port}"

    def kubeconfig_through(self, path: Path) -> Path:
        """Write the kubeconfig with this proxy as its server, readable only by its owner; return its path."""
        document = copy.deepcopy(self._kubeconfig)
        document["clusters"][0]["cluster"]["server"] = self.url
        path.touch(mode=0o600)
        path.write_text(json.dumps(document))
        return path

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
        if self._runner.sites:
            await self.refuse()
        await self._runner.cleanup()
        await self.session.close()

    async def accept(self) -> None:
        """Listen, on the same port as before."""
        self._listener = socket.create_server((LOOPBACK, self._port))
        self._port = self._listener.getsockname()[1]
        self._site = web.SockSite(self._runner, self._listener, ssl_context=self._serving)
        await self._site.start()

    async def refuse(self) -> None:
        """Refuse new connections until `accept`. Open connections stay open."""
        await stop_accepting(self._listener)
        await self._site.stop()

    def rule(self, matches: Matcher, action: Action, *, times: float = 1) -> Rule:
        """Apply `action` to the next `times` requests that match."""
        rule = Rule(matches, action, times)
        self._rules.append(rule)
        return rule

    def withdraw(self, rule: Rule) -> None:
        """Remove a rule of this proxy, once."""
        self._rules.remove(rule)

    def cut_streams(self, *, reset: bool = False, matches: Matcher = _any) -> None:
        """Close the connections of open watches that match."""
        for stream in self._streams(matches):
            stream.cut(reset=reset)

    def half_close_streams(self, matches: Matcher = _any) -> None:
        """Send the end of the stream on open watches that match, without closing their connections."""
        for stream in self._streams(matches):
            stream.close_half()

    def freeze_streams(self, matches: Matcher = _any) -> None:
        """Delay all further bytes of open watches that match, without closing their connections."""
        for stream in self._streams(matches):
            stream.flowing.clear()

    def thaw_streams(self, matches: Matcher = _any) -> None:
        """Continue the frozen watches where they stopped."""
        for stream in self._streams(matches):
            stream.flowing.set()

    def _streams(self, matches: Matcher) -> list[Stream]:
        return [stream for stream in self.streams if matches(stream.seen)]

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        seen = Seen(request.method, request.path, dict(request.query), asyncio.get_running_loop().time())
        if seen.is_write:
            self.writes += 1
            seen.number = self.writes
        self.history.append(seen)
        if seen.number:
            seen.body = await request.read()
        return await self._action_for(seen)(Exchange(self, request, seen))

    def _action_for(self, seen: Seen) -> Action:
        for rule in self._rules:
            if rule.left > 0 and rule.matches(seen):
                rule.left -= 1
                return rule.action
        return Exchange.forward


class Exchange:
    """A request with the operations that actions use."""

    def __init__(self, proxy: Proxy, request: web.BaseRequest, seen: Seen) -> None:
        self._proxy = proxy
        self._request = request
        self.seen = seen

    async def forward(
        self,
        *,
        query: Mapping[str, str] | None = None,
        cut_after: float = math.inf,
        lag_s: float = 0.0,
        bytes_per_s: float = math.inf,
    ) -> web.StreamResponse:
        """Forward the request, with its query updated by `query`; then forward the response.

        A watch is cut after `cut_after` bytes, and each piece of it is delayed by `lag_s` seconds. `bytes_per_s`
        slows down any response.
        """
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
                if (self.seen.verb == "watch" and answer.status == 200) or bytes_per_s < math.inf:
                    return await self._stream(answer, cut_after, lag_s, bytes_per_s)
                return web.Response(status=answer.status, body=await answer.read(), headers=_kept(answer))
        except aiohttp.ClientError:  # the server is gone: for the client the connection ends
            await self.hang_up()

    async def _stream(
        self, answer: aiohttp.ClientResponse, cut_after: float, lag_s: float, bytes_per_s: float
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=_kept(answer))
        response.content_length = answer.content_length
        await response.prepare(self._request)
        stream = Stream(self._transport(), self.seen)
        self._proxy.streams.add(stream)
        try:
            async for chunk in answer.content.iter_any():
                await asyncio.sleep(lag_s)
                await stream.flowing.wait()
                if len(chunk) >= cut_after:
                    await response.write(chunk[: int(cut_after)])
                    await asyncio.sleep(FLUSH_S)
                    await self.hang_up()
                for piece in _pieces(chunk, bytes_per_s):
                    await response.write(piece)
                    if bytes_per_s < math.inf:
                        await asyncio.sleep(len(piece) / bytes_per_s)
                cut_after -= len(chunk)
        finally:
            self._proxy.streams.discard(stream)
        return response

    def answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> web.Response:
        """Answer without the server."""
        self.seen.status = status
        return web.Response(status=status, body=body, headers=headers)

    async def hang_up(self) -> NoReturn:
        """Close the connection without a response, or in the middle of one."""
        self._transport().abort()
        await self.wait_for_the_client_to_go()

    async def wait_for_the_client_to_go(self) -> NoReturn:
        """Do nothing; the server cancels the handler when the connection is closed."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError("this future is never set")

    def _transport(self) -> asyncio.Transport:
        transport = self._request.transport
        if transport is None:
            raise asyncio.CancelledError  # the client has just closed it
        return transport


def _kept(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name in ANSWER_HEADERS}


def _pieces(chunk: bytes, bytes_per_s: float) -> Iterator[bytes]:
    """Split a chunk into pieces that are sent in one step."""
    size = len(chunk) if bytes_per_s == math.inf else max(1, int(bytes_per_s * STEP_S))
    return (chunk[start : start + size] for start in range(0, len(chunk), size))


def _serving(credential: Credential, authority: str | None) -> ssl.SSLContext:
    """Return a server's TLS context with this certificate; clients must have a certificate of the same authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority)
    context.load_cert_chain(credential.certificate, credential.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


# The actions of rules. A rule's action is one of these functions, or a function returned by one of them.


async def lose_request(exchange: Exchange) -> web.StreamResponse:
    """Close the connection; the server never sees the request."""
    await exchange.hang_up()


async def lose_reply(exchange: Exchange) -> web.StreamResponse:
    """Forward the request, and close the connection instead of sending the response."""
    await exchange.forward()
    await exchange.hang_up()


async def black_hole(exchange: Exchange) -> web.StreamResponse:
    """Accept the request and never answer."""
    await exchange.wait_for_the_client_to_go()


def kill_before(kill: Callable[[], object]) -> Action:
    """Call `kill`, which kills the client (SIGKILL); the server never sees the request."""

    async def act(exchange: Exchange) -> web.StreamResponse:
        kill()
        await exchange.hang_up()

    return act


def kill_after(kill: Callable[[], object]) -> Action:
    """Forward the request, then call `kill`; the response is not delivered."""

    async def act(exchange: Exchange) -> web.StreamResponse:
        await exchange.forward()
        kill()
        await exchange.hang_up()

    return act


def delay_events(seconds: float) -> Action:
    """Delay every piece of a watch, so other responses overtake it."""
    return lambda exchange: exchange.forward(lag_s=seconds)


def slow_down(bytes_per_s: float) -> Action:
    """Forward the request, and the response at that rate."""
    return lambda exchange: exchange.forward(bytes_per_s=bytes_per_s)


def delay(seconds: float) -> Action:
    """Forward the request after a delay."""

    async def act(exchange: Exchange) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await exchange.forward()

    return act


def rewrite(**query: str) -> Action:
    """Forward the request with other query parameters, to get the server's response to those."""
    return lambda exchange: exchange.forward(query=query)


def answer_status(code: int, reason: str, *, cause: str = "", retry_after_s: int = 0) -> Action:
    """Answer with a Status, as the API server does when it rejects a request."""
    headers = {"Retry-After": str(retry_after_s)} if retry_after_s else {}
    return _answer(code, "application/json", msgspec.json.encode(_status(code, reason, cause, retry_after_s)), headers)


def answer_html(code: int) -> Action:
    """Answer with an HTML page, as a load balancer may."""
    return _answer(code, "text/html", b"<html><body>Welcome</body></html>")


def error_event(code: int, reason: str) -> Action:
    """Answer with a stream that contains only an ERROR event."""
    event = {"type": "ERROR", "object": _status(code, reason)}
    return _answer(200, "application/json", msgspec.json.encode(event) + b"\n")


def _answer(code: int, content_type: str, body: bytes, headers: Mapping[str, str] | None = None) -> Action:
    async def act(exchange: Exchange) -> web.StreamResponse:
        return exchange.answer(code, body, {"Content-Type": content_type, **(headers or {})})

    return act


def _status(code: int, reason: str, cause: str = "", retry_after_s: int = 0) -> dict[str, object]:
    details = {"causes": [{"reason": cause}] if cause else [], "retryAfterSeconds": retry_after_s}
    return {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": reason, "details": details}
