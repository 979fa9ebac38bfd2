"""The API client on real sockets: servers that misbehave in every way we know, and the real API server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from hack.control_plane.pki import Authority
from tfjob_operator.api.client import (
    JSON_PATCH,
    HttpTransport,
    ListOptions,
    RestClient,
    Settings,
    load_settings,
    retry_on_conflict,
)
from tfjob_operator.api.client.credentials import Credentials, FixedCredentials, RefreshedCredentials
from tfjob_operator.api.client.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ConnectError,
    ConnectionLostError,
    CredentialsError,
    DecodeError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RequestTimeoutError,
    ServerError,
    StatusError,
    TLSError,
    TransportError,
    UnauthorizedError,
)
from tfjob_operator.api.client.tls import Trust
from tfjob_operator.api.client.transport import Request
from tfjob_operator.api.meta import Resource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from hack.control_plane import ControlPlane

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRET = "s3cret-s3cret"


# A server that does as it is told


class Peer:
    """One connection, from the server's side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> Heard:
        """Read one request. Raises IncompleteReadError at the end of the connection."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = lines[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Heard(method, target, headers, body)

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, body: bytes = b"{}", *, status: str = "200 OK", headers: str = "") -> None:
        kind = "" if "content-type" in headers.lower() else "Content-Type: application/json\r\n"
        await self.say(f"HTTP/1.1 {status}\r\n{kind}Content-Length: {len(body)}\r\n{headers}\r\n".encode() + body)

    async def open_stream(self) -> None:
        await self.say(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.say(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def gone(self) -> None:
        """Return when the client has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def reset(self) -> None:
        raw: socket.socket = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.writer.transport.abort()


@dataclass(frozen=True)
class Heard:
    """A request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Server:
    """What a test's server saw."""

    url: str = ""
    port: int = 0
    heard: list[Heard] = field(default_factory=list)
    connections: int = 0
    open: int = 0


Behaviour = Callable[[Peer], Awaitable[object]]


@asynccontextmanager
async def serving(behave: Behaviour, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """A server on loopback that treats each connection with `behave`, and is gone after the block."""
    seen = Server()
    tasks: set[asyncio.Task[Any]] = set()

    class Noting(Peer):
        async def request(self) -> Heard:
            heard = await super().request()
            seen.heard.append(heard)
            return heard

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        seen.connections += 1
        seen.open += 1
        try:
            await behave(Noting(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            seen.open -= 1
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    seen.port = server.sockets[0].getsockname()[1]
    seen.url = f"{'https' if tls else 'http'}://127.0.0.1:{seen.port}"
    try:
        yield seen
    finally:
        server.close()
        await asyncio.sleep(0.01)  # a handshake that the client gave up may still become a connection
        left = [*tasks]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def until(condition: Callable[[], object], limit_s: float = 1.0) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - what it looks at are sockets, which set no event
            await asyncio.sleep(0.005)


def get(total_s: float = 0.4) -> Request:
    return Request("GET", "/api/v1/pods", total_s=total_s)


async def body_of(transport: HttpTransport, request: Request) -> bytes:
    response = await transport.send(request)
    try:
        return await response.body()
    finally:
        response.close()


async def test_what_is_sent_is_asked_for_when_a_connection_is_there() -> None:
    """LE-10: a request that waits in line is written when it leaves, and may be withdrawn then without harm to others."""
    free = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.request()
        await free.wait()
        await peer.answer()
        await peer.request()
        await peer.answer()

    left = ["first"]

    def at_send(request: Request) -> Request:
        if not left:
            raise ConnectError("withdrawn")
        return replace(request, query={"left": left[0]})

    async with serving(behave) as server, HttpTransport(Settings(server.url), max_connections=1) as transport:
        first = asyncio.create_task(body_of(transport, replace(get(5.0), at_send=at_send)))
        await until(lambda: server.heard)
        second = asyncio.create_task(body_of(transport, replace(get(5.0), at_send=at_send)))
        third = asyncio.create_task(body_of(transport, get(5.0)))
        await asyncio.sleep(0.01)
        left.clear()
        free.set()
        await first
        with pytest.raises(ConnectError, match="withdrawn"):
            await second
        await third
    assert [heard.target for heard in server.heard] == ["/api/v1/pods?left=first", "/api/v1/pods"]


async def test_a_request_that_was_given_up_does_not_arrive_later() -> None:
    """LE-10: what a closed socket has left the kernel sends on for minutes, through a network that was cut, unless told."""
    heard: list[BaseException] = []
    given_up = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.request()
        await given_up.wait()
        try:
            await peer.request()
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            heard.append(error)
            raise

    async with serving(behave) as server, HttpTransport(Settings(server.url)) as transport:
        with pytest.raises(RequestTimeoutError):
            await transport.send(get(0.05))
        given_up.set()
        await until(lambda: heard)
    assert isinstance(heard[0], ConnectionResetError), "a reset drops what is not acknowledged, an orderly end does not"


# Ways to fail, each of them in time and with one error


async def never_answers(peer: Peer) -> None:
    await peer.request()
    await peer.gone()


async def stalls_after_the_head(peer: Peer) -> None:
    await peer.request()
    await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
    await peer.gone()


async def stalls_in_the_head(peer: Peer) -> None:
    await peer.request()
    await peer.say(b"HTTP/1.1 200 OK\r\nContent-")
    await peer.gone()


async def trickles(peer: Peer) -> None:
    """Never silent for longer than a read may be, and never done: only the limit on the whole ends it."""
    await peer.request()
    await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        await peer.say(b" ")
        await asyncio.sleep(0.02)


async def closes_without_a_word(peer: Peer) -> None:
    await peer.request()


async def resets(peer: Peer) -> None:
    await peer.request()
    peer.reset()


async def closes_in_the_body(peer: Peer) -> None:
    await peer.request()
    await peer.say(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"items":')


async def closes_in_a_chunk(peer: Peer) -> None:
    await peer.request()
    await peer.open_stream()
    await peer.say(b'64\r\n{"items":')


async def resets_in_the_body(peer: Peer) -> None:
    await peer.request()
    await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    await asyncio.sleep(0.05)
    peer.reset()


async def speaks_something_else(peer: Peer) -> None:
    await peer.request()
    await peer.say(b"220 mail.example ESMTP\r\n\r\n")


@pytest.mark.parametrize(
    ("behave", "expected"),
    [
        (never_answers, RequestTimeoutError),
        (stalls_after_the_head, RequestTimeoutError),
        (stalls_in_the_head, RequestTimeoutError),
        (trickles, RequestTimeoutError),
        (closes_without_a_word, ConnectionLostError),
        (resets, ConnectionLostError),
        (closes_in_the_body, ConnectionLostError),
        (closes_in_a_chunk, ConnectionLostError),
        (resets_in_the_body, ConnectionLostError),
        (speaks_something_else, TransportError),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_server_that_misbehaves_costs_one_error_in_time_and_no_connection(
    behave: Behaviour, expected: type[ApiError], method: str
) -> None:
    """C2 blackhole, slow, drop_answer, cut: nothing hangs, and nothing is left open."""
    async with serving(behave) as server, HttpTransport(Settings(server.url)) as transport:
        started = time.monotonic()
        with pytest.raises(expected, match=f"^{method} /api/v1/pods: ") as raised:
            await body_of(transport, Request(method, "/api/v1/pods", body=b"{}", total_s=0.4))
        assert type(raised.value) is expected
        assert time.monotonic() - started < 1.0
        await until(lambda: server.open == 0)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("behave", [closes_without_a_word, resets])
async def test_what_changes_something_is_sent_once_even_if_its_answer_is_lost(behave: Behaviour, method: str) -> None:
    """WR-06: many clients send a PUT or DELETE again; the second one would meet the first one's conflict."""

    async def first_fine_then_not(peer: Peer) -> None:
        await peer.request()
        await peer.answer()
        await behave(peer)

    async with serving(first_fine_then_not) as server, HttpTransport(Settings(server.url)) as transport:
        await body_of(transport, get())
        with pytest.raises(ConnectionLostError):
            await body_of(transport, Request(method, "/x", body=b"{}", total_s=1.0))
        assert [heard.method for heard in server.heard] == ["GET", method]


async def test_a_get_on_a_connection_that_the_server_gave_up_is_sent_again_at_once() -> None:
    async def one_per_connection(peer: Peer) -> None:
        await peer.request()
        await peer.answer()
        await peer.request()

    async with serving(one_per_connection) as server, HttpTransport(Settings(server.url)) as transport:
        for _ in range(3):
            assert await body_of(transport, get()) == b"{}"
        assert server.connections == 3


async def test_a_get_is_sent_again_once_and_no_more() -> None:
    """WR-06: a server that hangs up on a new connection too is left to the caller."""

    async def first_fine_then_never(peer: Peer) -> None:
        await peer.request()
        if len(server.heard) == 1:
            await peer.answer()
            await peer.request()

    async with serving(first_fine_then_never) as server, HttpTransport(Settings(server.url)) as transport:
        await body_of(transport, get())
        with pytest.raises(ConnectionLostError):
            await body_of(transport, get())
        assert (len(server.heard), server.connections) == (3, 2)


async def test_the_first_address_that_can_be_reached_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name has an address that refuses and one that swallows what is sent there: neither costs more than a moment."""
    with socket.socket() as refuses, socket.socket() as swallows:
        refuses.bind(("127.0.0.1", 0))
        swallows.bind(("127.0.0.1", 0))
        swallows.listen(0)
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(swallows.getsockname())
            async with serving(fine_for_ever) as server:
                places = [refuses.getsockname(), swallows.getsockname(), ("127.0.0.1", server.port)]
                found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]
                monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: found)
                async with HttpTransport(Settings("http://api.example:1")) as transport:
                    started = time.monotonic()
                    assert await body_of(transport, get(total_s=2.0)) == b"{}"
                    assert time.monotonic() - started < 1.0
                    found[:] = found[:1] * 2
                async with HttpTransport(Settings("http://api.example:1")) as transport:
                    with pytest.raises(ConnectError, match=r"Cannot connect to api.example:1: .*Connect call failed"):
                        await transport.send(get(total_s=2.0))


@pytest.mark.parametrize("host", ["nowhere.invalid", f"{'x' * 64}.example"])
async def test_a_name_that_nobody_has_is_no_connection(host: str) -> None:
    async with HttpTransport(Settings(f"http://{host}")) as transport:
        with pytest.raises(ConnectError, match="Cannot connect to"):
            await transport.send(get(total_s=10.0))


async def test_a_request_that_could_be_two_is_not_sent() -> None:
    async with serving(fine_for_ever) as server, HttpTransport(Settings(server.url)) as transport:
        with pytest.raises(ValueError, match="must be quoted"):
            await transport.send(Request("GET", "/x HTTP/1.1\r\nHost: evil\r\n\r\n"))
        assert server.connections == 0


async def test_a_server_that_is_not_there_is_no_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        settings = Settings(f"http://127.0.0.1:{taken.getsockname()[1]}")
        async with HttpTransport(settings) as transport:
            with pytest.raises(ConnectError, match="Cannot connect"):
                await transport.send(get())


async def test_a_server_that_does_not_accept_is_no_connection_in_time() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with socket.create_connection(address), contextlib.ExitStack() as stack:
            for _ in range(3):  # whatever the backlog really is, it is full after these
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(address)
            settings = Settings(f"http://127.0.0.1:{address[1]}")
            async with HttpTransport(settings, connect_s=0.2) as transport:
                with pytest.raises(ConnectError, match="no connection in time"):
                    await transport.send(get(total_s=2.0))


async def test_the_wait_for_a_free_connection_has_its_own_limit() -> None:
    """A full pool is not the server's silence: the request was never sent, and the error says so."""
    async with serving(never_answers) as server:
        async with HttpTransport(Settings(server.url), max_connections=1, pool_s=0.2) as transport:
            first = asyncio.create_task(transport.send(get(total_s=1.0)))
            await until(lambda: server.heard)
            with pytest.raises(ConnectError, match="no connection in time"):
                await transport.send(get(total_s=1.0))
            first.cancel()
            await asyncio.wait([first])
        assert len(server.heard) == 1


async def test_a_name_server_that_hangs_delays_neither_the_error_nor_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's own look-up would make the end of the process wait for its thread."""
    hang = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: hang.wait(10) and [])
    try:
        started = time.monotonic()
        async with HttpTransport(Settings("http://api.example:1"), pool_s=0.2) as transport:
            with pytest.raises(ConnectError):
                await transport.send(get(total_s=1.0))
        await asyncio.get_running_loop().shutdown_default_executor()
        assert time.monotonic() - started < 1.0
    finally:
        hang.set()


async def test_a_name_is_looked_up() -> None:
    async def fine(peer: Peer) -> None:
        await peer.request()
        await peer.answer()

    async with serving(fine) as server, HttpTransport(Settings(f"http://localhost:{server.port}")) as transport:
        assert await body_of(transport, get()) == b"{}"
        assert server.heard[0].headers["host"] == f"localhost:{server.port}"


# What answers mean


async def test_the_html_of_a_load_balancer_is_a_server_error_after_one_try() -> None:
    async def bad_gateway(peer: Peer) -> None:
        await peer.request()
        await peer.answer(
            b"<html><h1>Bad Gateway</h1></html>", status="502 Bad Gateway", headers="Content-Type: text/html\r\n"
        )

    async with serving(bad_gateway) as server, HttpTransport(Settings(server.url)) as transport:
        with pytest.raises(ServerError, match="502 <html><h1>Bad Gateway"):
            await RestClient(transport).get(CONFIG_MAPS, "ns", "a")
        assert len(server.heard) == 1


async def test_a_redirect_is_not_followed_with_our_token() -> None:
    async def elsewhere(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"", status="307 Temporary Redirect", headers=f"Location: {thief.url}/?ticket={SECRET}\r\n")

    async def steal(peer: Peer) -> None:
        await peer.request()
        await peer.answer()

    async with serving(steal) as thief, serving(elsewhere) as server:
        settings = Settings(server.url, FixedCredentials(Credentials(f"Bearer {SECRET}")))
        async with HttpTransport(settings) as transport:
            with pytest.raises(StatusError, match="redirect") as raised:
                await RestClient(transport).create(CONFIG_MAPS, "ns", {})
        assert SECRET not in str(raised.value)
        assert thief.connections == 0


async def test_a_login_page_is_not_an_answer() -> None:
    async def log_in(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"<html>please log in</html>", headers="Content-Type: text/html\r\n")

    async with serving(log_in) as server, HttpTransport(Settings(server.url)) as transport:
        with pytest.raises(DecodeError, match="text/html"):
            await RestClient(transport).create(CONFIG_MAPS, "ns", {})


async def test_a_server_that_asks_for_patience_gets_it() -> None:
    """WR-06: 429 with Retry-After, over a kept connection."""

    async def busy_once(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"{}", status="429 Too Many Requests", headers="Retry-After: 1\r\n")
        await peer.request()
        await peer.answer(b'{"fine":1}')

    async with serving(busy_once) as server, HttpTransport(Settings(server.url)) as transport:
        started = time.monotonic()
        assert await RestClient(transport).create(CONFIG_MAPS, "ns", {}) == b'{"fine":1}'
        assert 1.0 <= time.monotonic() - started < 2.0
        assert server.connections == 1


async def test_requests_are_sent_as_they_are_meant() -> None:
    async def fine(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.answer()

    credentials = FixedCredentials(Credentials(f"Bearer {SECRET}"))
    async with serving(fine) as server, HttpTransport(Settings(f"{server.url}/base", credentials)) as transport:
        client = RestClient(transport, field_manager="tfjob operator")
        await client.list_page(CONFIG_MAPS, ListOptions(label_selector="a=b,c in (d, e)", resource_version="0"))
        await client.patch(CONFIG_MAPS, "ns", "a/b", {"x": "ü"}, subresource="status")
    listed, patched = server.heard
    assert listed.target == "/base/api/v1/configmaps?labelSelector=a%3Db%2Cc+in+%28d%2C+e%29&resourceVersion=0"
    assert patched.target == "/base/api/v1/namespaces/ns/configmaps/a%2Fb/status?fieldManager=tfjob+operator"
    assert patched.body == '{"x":"ü"}'.encode()
    assert patched.headers["content-type"] == "application/merge-patch+json"
    assert patched.headers["authorization"] == f"Bearer {SECRET}"
    assert patched.headers["user-agent"] == "tfjob-operator"
    assert listed.headers["accept"] == "application/json"
    assert "content-type" not in listed.headers
    assert "cookie" not in listed.headers


# Connections


async def test_one_connection_serves_one_task_after_the_other() -> None:
    async def fine(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.answer()

    async with serving(fine) as server, HttpTransport(Settings(server.url)) as transport:
        for _ in range(20):
            await body_of(transport, get())
        assert server.connections == 1
    await until(lambda: server.open == 0)


async def test_connection_close_is_honoured() -> None:
    async def once(peer: Peer) -> None:
        await peer.request()
        await peer.answer(headers="Connection: close\r\n")
        await peer.gone()

    async with serving(once) as server, HttpTransport(Settings(server.url)) as transport:
        for _ in range(3):
            await body_of(transport, get())
        assert server.connections == 3
        await until(lambda: server.open == 0)


async def test_idle_connections_that_the_server_closes_are_not_used_again() -> None:
    async def tired(peer: Peer) -> None:
        await peer.request()
        await peer.answer()

    async with serving(tired) as server, HttpTransport(Settings(server.url)) as transport:
        for _ in range(3):
            await body_of(transport, Request("POST", "/x", body=b"{}", total_s=1.0))
            await until(lambda: server.open == 0)
            await asyncio.sleep(0.02)
        assert server.connections == 3


async def test_idle_connections_are_closed_after_a_while() -> None:
    async def fine(peer: Peer) -> None:
        await peer.request()
        await peer.answer()
        await peer.gone()

    async with serving(fine) as server, HttpTransport(Settings(server.url), keep_alive_s=0.1) as transport:
        await body_of(transport, get())
        assert server.open == 1
        await until(lambda: server.open == 0)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def server_tls(authority: Authority) -> ssl.SSLContext:
    """A server for 127.0.0.1 that asks for a client certificate and takes none too."""
    made = authority.server("server", ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def trusting(authority: Authority) -> FixedCredentials:
    return FixedCredentials(Credentials(None, Trust(authority.certificate.read_text()).context()))


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("behave", [never_answers, stalls_after_the_head, trickles])
async def test_a_cancelled_request_closes_its_connection_at_once(
    behave: Behaviour, authority: Authority, server_tls: ssl.SSLContext, *, encrypted: bool
) -> None:
    tls = server_tls if encrypted else None
    async with (
        serving(behave, tls=tls) as server,
        HttpTransport(Settings(server.url, trusting(authority))) as transport,
    ):
        request = asyncio.create_task(body_of(transport, get(total_s=30.0)))
        await until(lambda: server.heard)
        await asyncio.sleep(0.05)
        started = time.monotonic()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await until(lambda: server.open == 0)
        assert time.monotonic() - started < 0.2


async def test_leaving_the_transport_ends_what_is_still_under_way() -> None:
    async with serving(never_answers) as server:
        async with HttpTransport(Settings(server.url)) as transport:
            request = asyncio.create_task(transport.send(get(total_s=30.0)))
            await until(lambda: server.heard)
        async with asyncio.timeout(0.5):
            with pytest.raises(TransportError):
                await request
        await until(lambda: server.open == 0)


async def test_a_transport_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="not open"):
        await HttpTransport(Settings("http://127.0.0.1:1")).send(get())


# Watches


async def follow(
    client: RestClient, seen: list[bytes], *, idle_s: float = 5.0, options: ListOptions | None = None
) -> None:
    async with client.watch(CONFIG_MAPS, options or ListOptions(namespace="ns"), idle_s=idle_s) as lines:
        async for batch in lines:
            seen.extend(batch)


async def test_lines_arrive_as_they_are_sent_however_they_are_cut() -> None:
    async def stream(peer: Peer) -> None:
        await peer.request()
        await peer.open_stream()
        for piece in (b'{"a":1}\n{"b"', b":2}\r", b"\n\n", b'{"c":3}\n{"trunc'):
            await peer.chunk(piece)
            await asyncio.sleep(0.01)
        await peer.say(b"0\r\n\r\n")
        await peer.gone()

    seen: list[bytes] = []
    async with serving(stream) as server, HttpTransport(Settings(server.url)) as transport:
        await follow(RestClient(transport), seen)
    assert seen == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


async def test_a_watch_that_falls_silent_ends_after_the_limit_of_a_dead_peer() -> None:
    """RF-29, rest/connection_test.go:TestReconnectBrokenTCP_HTTP1: each byte starts the wait anew; 80 s in production."""

    async def speak_and_freeze(peer: Peer) -> None:
        await peer.request()
        await peer.open_stream()
        for _ in range(4):
            await peer.chunk(b"{}\n")
            await asyncio.sleep(0.15)
        await peer.gone()

    seen: list[bytes] = []
    async with serving(speak_and_freeze) as server, HttpTransport(Settings(server.url)) as transport:
        started = time.monotonic()
        with pytest.raises(RequestTimeoutError):
            await follow(RestClient(transport, request_s=0.3), seen, idle_s=0.3)
        assert 0.7 < time.monotonic() - started < 1.2
        assert seen == [b"{}"] * 4
        await until(lambda: server.open == 0)


async def test_opening_a_watch_is_limited_like_any_request() -> None:
    async with serving(never_answers) as server, HttpTransport(Settings(server.url)) as transport:
        with pytest.raises(RequestTimeoutError):
            await follow(RestClient(transport, request_s=0.2), [], idle_s=80.0)
        await until(lambda: server.open == 0)


async def fail_inside(client: RestClient) -> None:
    async with client.watch(CONFIG_MAPS, ListOptions()) as lines:
        async for batch in lines:
            raise KeyError(batch)


@pytest.mark.parametrize("encrypted", [False, True])
async def test_leaving_a_watch_closes_its_stream_at_once_and_leaves_no_task(
    authority: Authority, server_tls: ssl.SSLContext, *, encrypted: bool
) -> None:
    """RF-13: however it is left. A generator left half-way would be finished later, by a task of the loop's own."""

    async def endless(peer: Peer) -> None:
        await peer.request()
        await peer.open_stream()
        while True:
            await peer.chunk(b"{}\n")
            await asyncio.sleep(0.01)

    async with (
        serving(endless, tls=server_tls if encrypted else None) as server,
        HttpTransport(Settings(server.url, trusting(authority))) as transport,
    ):
        client = RestClient(transport)
        before = asyncio.all_tasks()
        async with client.watch(CONFIG_MAPS, ListOptions()) as lines:
            async for _ in lines:
                break
        await until(lambda: server.open == 0, 0.2)
        with pytest.raises(KeyError):
            await fail_inside(client)
        await until(lambda: server.open == 0, 0.2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await follow(client, [])
        await until(lambda: server.open == 0, 0.2)
        assert asyncio.all_tasks() <= before


async def test_leaving_a_watch_does_not_wait_for_a_peer_that_is_frozen(
    authority: Authority, server_tls: ssl.SSLContext
) -> None:
    """An orderly end of TLS would keep the connection for 30 s, waiting for an answer that never comes."""

    async def one_line(peer: Peer) -> None:
        await peer.request()
        await peer.open_stream()
        await peer.chunk(b"{}\n")
        await peer.gone()

    async def freezing_proxy(peer: Peer) -> None:
        to_server = asyncio.create_task(forward(peer, "127.0.0.1", server.port))
        await until(freeze.is_set, 5.0)
        to_server.cancel()
        await asyncio.wait([to_server])
        await peer.gone()

    freeze = asyncio.Event()
    async with serving(one_line, tls=server_tls) as server, serving(freezing_proxy) as proxy:
        settings = Settings(proxy.url.replace("http:", "https:"), trusting(authority))
        async with HttpTransport(settings) as transport:
            async with RestClient(transport).watch(CONFIG_MAPS, ListOptions()) as lines:
                assert await anext(lines) == [b"{}"]
                freeze.set()
                await until(lambda: server.open == 0)
            await until(lambda: proxy.open == 0, 0.3)


async def test_a_watch_that_breaks_is_a_lost_connection() -> None:
    async def cut(peer: Peer) -> None:
        await peer.request()
        await peer.open_stream()
        await peer.chunk(b"{}\n")
        await peer.say(b'40\r\n{"half')

    seen: list[bytes] = []
    async with serving(cut) as server, HttpTransport(Settings(server.url)) as transport:
        with pytest.raises(ConnectionLostError):
            await follow(RestClient(transport), seen)
    assert seen == [b"{}"]


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_slow_reader_is_not_taken_for_a_dead_peer(
    authority: Authority, server_tls: ssl.SSLContext, *, encrypted: bool
) -> None:
    """While we do not read, silence is ours. Nor is anything lost when the server is done and gone long before the reader."""

    async def flood(peer: Peer) -> None:
        await peer.request()
        await peer.open_stream()
        for _ in range(400):
            await peer.chunk(b"x" * 16_383 + b"\n")
        await peer.say(b"0\r\n\r\n")
        peer.writer.close()
        await peer.gone()

    count = 0
    async with (
        serving(flood, tls=server_tls if encrypted else None) as server,
        HttpTransport(Settings(server.url, trusting(authority))) as transport,
        RestClient(transport).watch(CONFIG_MAPS, ListOptions(), idle_s=0.2) as lines,
    ):
        async for batch in lines:
            if count == 0:
                await asyncio.sleep(0.5)
            count += len(batch)
    assert count == 400


# TLS


async def fine_for_ever(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.answer()


async def test_a_server_with_our_authoritys_certificate_is_believed(
    authority: Authority, server_tls: ssl.SSLContext
) -> None:
    async with (
        serving(fine_for_ever, tls=server_tls) as server,
        HttpTransport(Settings(server.url, trusting(authority))) as transport,
    ):
        assert await body_of(transport, get()) == b"{}"


async def test_a_server_that_is_not_believed_hears_nothing(
    tmp_path: Path, authority: Authority, server_tls: ssl.SSLContext
) -> None:
    other = Authority.make(tmp_path)
    cases = {
        "unknown authority": (trusting(other), None),
        "the system's authorities": (FixedCredentials(), None),
        "another name": (trusting(authority), "elsewhere.example"),
    }
    async with serving(fine_for_ever, tls=server_tls) as server:
        for credentials, name in cases.values():
            settings = Settings(server.url, credentials, tls_server_name=name)
            async with HttpTransport(settings) as transport:
                with pytest.raises(TLSError, match="CERTIFICATE_VERIFY_FAILED"):
                    await transport.send(get())
        assert server.heard == []


async def test_tls_server_name_is_the_name_that_is_checked(authority: Authority, server_tls: ssl.SSLContext) -> None:
    async with serving(fine_for_ever, tls=server_tls) as server:
        settings = Settings(server.url, trusting(authority), tls_server_name="kubernetes.default.svc")
        async with HttpTransport(settings) as transport:
            assert await body_of(transport, get()) == b"{}"


async def test_a_server_that_does_not_speak_tls_is_a_tls_failure(authority: Authority) -> None:
    async def plain(peer: Peer) -> None:
        await peer.reader.read(100)
        await peer.answer(status="400 Bad Request")

    async with serving(plain) as server:
        settings = Settings(server.url.replace("http:", "https:"), trusting(authority))
        async with HttpTransport(settings) as transport:
            with pytest.raises(TLSError):
                await transport.send(get())


async def test_a_handshake_that_stalls_is_no_connection_in_time(authority: Authority) -> None:
    async with serving(Peer.gone) as server:
        settings = Settings(server.url.replace("http:", "https:"), trusting(authority))
        async with HttpTransport(settings, connect_s=0.2) as transport:
            with pytest.raises(ConnectError, match="no connection in time"):
                await transport.send(get(total_s=2.0))
        await until(lambda: server.open == 0)


async def test_a_new_client_certificate_is_never_sent_over_an_old_connection(
    authority: Authority, server_tls: ssl.SSLContext
) -> None:
    async def who(peer: Peer) -> None:
        certificate: Any = peer.writer.get_extra_info("peercert")
        name = next(value for entry in certificate["subject"] for key, value in entry if key == "commonName")
        while True:
            await peer.request()
            await peer.answer(json.dumps(name).encode())

    trust = Trust(authority.certificate.read_text())
    clients = [authority.client(name, name) for name in ("old", "new")]
    contexts = [trust.context(client.certificate, client.key) for client in clients]
    current = iter([0, 0, 1, 1])

    class Rotating:
        async def get(self) -> Credentials:
            return Credentials(None, contexts[next(current)])

        def refused(self) -> None: ...

    async with serving(who, tls=server_tls) as server:
        async with HttpTransport(Settings(server.url, Rotating())) as transport:
            assert [await body_of(transport, get()) for _ in range(4)] == [b'"old"', b'"old"', b'"new"', b'"new"']
        assert server.connections == 2


# Proxies


async def forward(peer: Peer, host: str, port: int) -> None:
    """Copy bytes both ways until either side is done."""
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


async def tunnel(peer: Peer) -> None:
    heard = await peer.request()
    host, _, port = heard.target.partition(":")
    await peer.say(b"HTTP/1.1 200 Connection established\r\n\r\n")
    await forward(peer, host, int(port))


async def test_https_goes_through_a_proxy_as_a_tunnel_that_is_verified_to_its_end(
    authority: Authority, server_tls: ssl.SSLContext
) -> None:
    async with serving(tunnel) as proxy, serving(fine_for_ever, tls=server_tls) as server:
        proxied = proxy.url.replace("http://", f"http://ada:{SECRET}@")
        settings = Settings(server.url, trusting(authority), proxy=proxied)
        async with HttpTransport(settings) as transport:
            for _ in range(3):
                assert await body_of(transport, get(total_s=2.0)) == b"{}"
        assert [(heard.method, heard.target) for heard in proxy.heard] == [("CONNECT", f"127.0.0.1:{server.port}")]
        assert proxy.heard[0].headers["proxy-authorization"] == (
            "Basic " + base64.b64encode(f"ada:{SECRET}".encode()).decode()
        )
        assert "proxy-authorization" not in server.heard[0].headers
        async with HttpTransport(Settings(server.url, proxy=proxy.url)) as transport:
            with pytest.raises(TLSError):
                await transport.send(get(total_s=2.0))


async def test_http_goes_through_a_proxy_in_absolute_form() -> None:
    async with serving(fine_for_ever) as proxy:
        proxied = proxy.url.replace("http://", f"http://ada:{SECRET}@")
        async with HttpTransport(Settings("http://api.example:8080", proxy=proxied)) as transport:
            assert await body_of(transport, get()) == b"{}"
        assert proxy.heard[0].target == "http://api.example:8080/api/v1/pods"
        assert proxy.heard[0].headers["proxy-authorization"].startswith("Basic ")


async def test_a_proxy_may_be_reached_by_tls_itself(authority: Authority, server_tls: ssl.SSLContext) -> None:
    """TLS inside TLS for a server with TLS."""
    trust = trusting(authority)
    async with serving(tunnel, tls=server_tls) as proxy, serving(fine_for_ever, tls=server_tls) as server:
        async with HttpTransport(Settings(server.url, trust, proxy=proxy.url)) as transport:
            for _ in range(3):
                assert await body_of(transport, get(total_s=2.0)) == b"{}"
        assert (proxy.connections, server.connections) == (1, 1)
        await until(lambda: proxy.open == server.open == 0)
    async with serving(fine_for_ever, tls=server_tls) as proxy:
        async with HttpTransport(Settings("http://api.example", trust, proxy=proxy.url)) as transport:
            assert await body_of(transport, get(total_s=2.0)) == b"{}"
        assert proxy.heard[0].target == "http://api.example/api/v1/pods"


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("stage", ["the proxy", "the handshake"])
async def test_a_request_that_is_cancelled_while_it_gets_its_tunnel_closes_it(
    authority: Authority, server_tls: ssl.SSLContext, stage: str, *, encrypted: bool
) -> None:
    """Before the proxy has answered, and in the handshake that follows."""

    async def opens_and_stalls(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await peer.gone()

    behave = never_answers if stage == "the proxy" else opens_and_stalls
    async with serving(behave, tls=server_tls if encrypted else None) as proxy:
        settings = Settings("https://api.example", trusting(authority), proxy=proxy.url)
        async with HttpTransport(settings) as transport:
            request = asyncio.create_task(transport.send(get(total_s=5.0)))
            await until(lambda: proxy.heard)
            await asyncio.sleep(0.05)
            request.cancel()
            await asyncio.wait([request])
            await until(lambda: proxy.open == 0, 0.3)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"SSH-2.0-x\r\n\r\n", "the proxy does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\nmore", "the proxy sent more than a tunnel"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000, "the proxy does not speak HTTP"),
        (b"", "the proxy closed the connection"),
    ],
)
async def test_a_proxy_that_talks_nonsense_is_no_connection(answer: bytes, text: str) -> None:
    async def behave(peer: Peer) -> None:
        await peer.request()
        await peer.say(answer)

    async with serving(behave) as proxy, HttpTransport(Settings("https://api.example", proxy=proxy.url)) as transport:
        with pytest.raises(ConnectError, match=text):
            await transport.send(get(total_s=2.0))


async def test_a_proxy_that_refuses_is_no_connection_and_its_password_is_not_told() -> None:
    async def refuse(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"", status="407 Proxy Authentication Required")

    async with serving(refuse) as proxy:
        proxied = proxy.url.replace("http://", f"http://ada:{SECRET}@")
        settings = Settings("https://api.example", FixedCredentials(Credentials(f"Bearer {SECRET}")), proxy=proxied)
        async with HttpTransport(settings) as transport:
            with pytest.raises(ConnectError, match="the proxy answered 407") as raised:
                await transport.send(get())
        assert SECRET not in f"{raised.value!r} {raised.value.__cause__!r}"
        assert "authorization" not in proxy.heard[0].headers


async def test_a_proxy_that_never_answers_is_no_connection_in_time() -> None:
    async with serving(never_answers) as proxy:
        async with HttpTransport(Settings("https://api.example", proxy=proxy.url), pool_s=0.2) as transport:
            with pytest.raises(ConnectError, match="no connection in time"):
                await transport.send(get(total_s=2.0))
        await until(lambda: proxy.open == 0)


async def test_a_proxy_that_is_not_there_is_no_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        proxy = f"http://ada:{SECRET}@127.0.0.1:{taken.getsockname()[1]}"
        async with HttpTransport(Settings("https://api.example", proxy=proxy)) as transport:
            with pytest.raises(ConnectError) as raised:
                await transport.send(get())
    assert SECRET not in str(raised.value)


# Credentials


async def test_a_server_that_refuses_our_token_makes_us_look_for_a_new_one() -> None:
    async def strict(peer: Peer) -> None:
        while True:
            good = (await peer.request()).headers["authorization"] == "Bearer new"
            await peer.answer(status="200 OK" if good else "401 Unauthorized")

    source = RefreshedCredentials(lambda: Credentials("Bearer new"), first=Credentials("Bearer old"))
    async with serving(strict) as server, HttpTransport(Settings(server.url, source)) as transport:
        client = RestClient(transport)
        with pytest.raises(UnauthorizedError):
            await client.get(CONFIG_MAPS, "ns", "a")
        with contextlib.suppress(UnauthorizedError):
            await client.get(CONFIG_MAPS, "ns", "a")  # the new one is read beside this one
        await asyncio.sleep(0.05)
        assert await client.get(CONFIG_MAPS, "ns", "a") == b"{}"


async def test_without_credentials_no_request_leaves() -> None:
    def fail() -> Credentials:
        raise CredentialsError("no such plugin")

    async with serving(fine_for_ever) as server:
        async with HttpTransport(Settings(server.url, RefreshedCredentials(fail))) as transport:
            with pytest.raises(CredentialsError, match="no such plugin"):
                await RestClient(transport).get(CONFIG_MAPS, "ns", "a")
        assert server.connections == 0


async def test_a_plugin_that_hangs_does_not_hold_up_a_cancelled_request() -> None:
    hang = threading.Event()

    def read() -> Credentials:
        hang.wait(10)
        return Credentials()

    try:
        async with HttpTransport(Settings("http://127.0.0.1:1", RefreshedCredentials(read))) as transport:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await transport.send(get())
        await asyncio.get_running_loop().shutdown_default_executor()
        assert [thread.daemon for thread in threading.enumerate() if thread.name == "credentials"] == [True]
    finally:
        hang.set()


# The real API server


@pytest.fixture
def settings(control_plane: ControlPlane) -> Settings:
    return load_settings(str(control_plane.kubeconfig))


def config_map(name: str = "a", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def decode(raw: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(raw)
    return decoded


async def test_verbs_and_their_refusals(settings: Settings, namespace: str) -> None:
    async with HttpTransport(settings) as transport:
        client = RestClient(transport, field_manager="tfjob-operator-test")
        made = decode(await client.create(CONFIG_MAPS, namespace, config_map(x="1")))
        assert [entry["manager"] for entry in made["metadata"]["managedFields"]] == ["tfjob-operator-test"]  # WR-03
        with pytest.raises(AlreadyExistsError):
            await client.create(CONFIG_MAPS, namespace, config_map())
        with pytest.raises(NotFoundError) as missing:
            await client.get(CONFIG_MAPS, namespace, "b")
        assert missing.value.details is not None
        assert missing.value.details.name == "b"
        with pytest.raises(InvalidError):
            await client.create(CONFIG_MAPS, namespace, config_map("Not A Name"))
        changed = decode(await client.update(CONFIG_MAPS, namespace, "a", made | {"data": {"x": "2"}}))
        assert changed["data"] == {"x": "2"}
        with pytest.raises(ConflictError):
            await client.update(CONFIG_MAPS, namespace, "a", made | {"data": {"x": "3"}})


async def test_a_patch_of_a_stale_view_is_a_conflict(settings: Settings, namespace: str) -> None:
    """Status writes carry the resourceVersion: a stale view can only be refused, whichever kind of patch it is."""
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
        old = decode(await client.create(CONFIG_MAPS, namespace, config_map(x="1")))["metadata"]["resourceVersion"]
        merged = {"metadata": {"resourceVersion": old}, "data": {"x": "2"}}
        new = decode(await client.patch(CONFIG_MAPS, namespace, "a", merged))["metadata"]["resourceVersion"]
        with pytest.raises(ConflictError):
            await client.patch(CONFIG_MAPS, namespace, "a", merged)

        def replacing(version: str) -> list[dict[str, str]]:
            return [
                {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
                {"op": "replace", "path": "/data/x", "value": "3"},
            ]

        with pytest.raises(ConflictError):
            await client.patch(CONFIG_MAPS, namespace, "a", replacing(old), content_type=JSON_PATCH)
        done = decode(await client.patch(CONFIG_MAPS, namespace, "a", replacing(new), content_type=JSON_PATCH))
        assert done["data"] == {"x": "3"}


async def test_a_delete_with_preconditions_spares_any_other_object(settings: Settings, namespace: str) -> None:
    """WR-08, Sieve's stale-state bugs."""
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
        meta = decode(await client.create(CONFIG_MAPS, namespace, config_map()))["metadata"]
        with pytest.raises(ConflictError):
            await client.delete(CONFIG_MAPS, namespace, "a", uid="another")
        with pytest.raises(ConflictError):
            await client.delete(CONFIG_MAPS, namespace, "a", uid=meta["uid"], resource_version="1")
        await client.delete(CONFIG_MAPS, namespace, "a", uid=meta["uid"], resource_version=meta["resourceVersion"])
        with pytest.raises(NotFoundError):
            await client.get(CONFIG_MAPS, namespace, "a")


async def test_a_dry_run_of_any_write_changes_nothing(settings: Settings, namespace: str) -> None:
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
        await client.create(CONFIG_MAPS, namespace, config_map("b"), dry_run=True)
        with pytest.raises(NotFoundError):
            await client.get(CONFIG_MAPS, namespace, "b")
        made = await client.create(CONFIG_MAPS, namespace, config_map(x="1"))
        await client.update(CONFIG_MAPS, namespace, "a", config_map(x="2"), dry_run=True)
        await client.patch(CONFIG_MAPS, namespace, "a", {"data": {"x": "3"}}, dry_run=True)
        await client.delete(CONFIG_MAPS, namespace, "a", dry_run=True)
        assert decode(await client.get(CONFIG_MAPS, namespace, "a")) == decode(made)


async def test_writers_that_start_over_on_conflict_lose_no_write(settings: Settings, namespace: str) -> None:
    """WR-01."""
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
        await client.create(CONFIG_MAPS, namespace, config_map(x="0"))

        async def add_one() -> None:
            found = decode(await client.get(CONFIG_MAPS, namespace, "a"))
            found["data"]["x"] = str(int(found["data"]["x"]) + 1)
            await client.update(CONFIG_MAPS, namespace, "a", found)

        await asyncio.gather(*(retry_on_conflict(add_one) for _ in range(4)))
        assert decode(await client.get(CONFIG_MAPS, namespace, "a"))["data"]["x"] == "4"


async def test_a_watch_sees_what_happens(settings: Settings, namespace: str) -> None:
    async with HttpTransport(settings) as watches, HttpTransport(settings) as writes:
        client = RestClient(writes)
        options = ListOptions(namespace=namespace)
        version = decode(await client.list_page(CONFIG_MAPS, options))["metadata"]["resourceVersion"]
        seen: list[bytes] = []
        since = ListOptions(namespace=namespace, resource_version=version, timeout_s=60, allow_bookmarks=True)
        watching = asyncio.create_task(follow(RestClient(watches), seen, options=since))
        for name in ("a", "b"):
            await client.create(CONFIG_MAPS, namespace, config_map(name, text="two\nlines"))
        await client.delete(CONFIG_MAPS, namespace, "a")
        await until(lambda: len(seen) >= 3, 3.0)
        watching.cancel()
        await asyncio.wait([watching])
        events = [decode(line) for line in seen]
        assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
            ("ADDED", "a"),
            ("ADDED", "b"),
            ("DELETED", "a"),
        ]


async def test_a_version_that_was_compacted_away_is_expired(
    settings: Settings, control_plane: ControlPlane, namespace: str
) -> None:
    """RF-06, SV-05."""
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
        for name in "abc":
            await client.create(CONFIG_MAPS, namespace, config_map(name))
        options = ListOptions(namespace=namespace, limit=1)
        page = decode(await client.list_page(CONFIG_MAPS, options))["metadata"]
        later = decode(await client.create(CONFIG_MAPS, namespace, config_map("d")))["metadata"]["resourceVersion"]
        await asyncio.to_thread(control_plane.forget_before, int(later))
        with pytest.raises(ExpiredError):
            await client.list_page(CONFIG_MAPS, ListOptions(namespace, limit=1, continue_token=page["continue"]))


async def test_a_service_accounts_token_is_read_again_when_its_file_rotates(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """401 while the file holds nonsense; once it holds the account's token the server knows us, and RBAC says no."""
    token = await asyncio.to_thread(control_plane.request_token, namespace)
    document = json.loads(control_plane.kubeconfig.read_text())
    document["users"][0]["user"] = {"tokenFile": "token"}
    (tmp_path / "kubeconfig").write_text(json.dumps(document))
    (tmp_path / "token").write_text("nonsense")
    settings = load_settings(str(tmp_path / "kubeconfig"))
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
        with pytest.raises(UnauthorizedError):
            await client.get(CONFIG_MAPS, namespace, "a")
        (tmp_path / "token").write_text(f"{token}\n")
        with pytest.raises(ForbiddenError, match=f"system:serviceaccount:{namespace}:default"):
            await client.get(CONFIG_MAPS, namespace, "a")
