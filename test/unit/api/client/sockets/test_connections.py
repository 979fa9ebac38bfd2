"""From a name to a connection, which is kept, used in turn, and closed; requests that are given up end at once."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from dataclasses import replace

import pytest
from pytest_mock import MockerFixture

from fakes.loopback import (
    AT_ONCE_S,
    Behaviour,
    Peer,
    body_of,
    fine_for_ever,
    get,
    never_answers,
    serving,
    stalls_after_the_head,
    trickles,
    trusting,
)
from hack.control_plane.run.pki import Authority
from support.waiting import until
from tfjob_operator.api.client import HttpTransport, Settings
from tfjob_operator.api.client.errors import ConnectError, RequestTimeoutError, TransportError
from tfjob_operator.api.client.http import Request


async def test_the_first_address_that_can_be_reached_is_taken(mocker: MockerFixture) -> None:
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
                mocker.patch.object(socket, "getaddrinfo", return_value=found)
                async with HttpTransport(Settings("http://api.example:1")) as transport:
                    started = time.monotonic()
                    assert await body_of(transport, get(total_s=30.0)) == b"{}"
                    assert time.monotonic() - started < AT_ONCE_S
                    found[:] = found[:1] * 2
                async with HttpTransport(Settings("http://api.example:1")) as transport:
                    with pytest.raises(ConnectError, match=r"Cannot connect to api.example:1: .*Connect call failed"):
                        await transport.send(get(total_s=30.0))


@pytest.mark.parametrize("host", ["nowhere.invalid", f"{'x' * 64}.example"])
async def test_a_host_name_that_does_not_resolve_is_a_connect_error(host: str) -> None:
    async with HttpTransport(Settings(f"http://{host}")) as transport:
        with pytest.raises(ConnectError, match="Cannot connect to"):
            await transport.send(get(total_s=10.0))


async def test_a_server_that_does_not_accept_is_a_connect_error_in_time() -> None:
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
                with pytest.raises(ConnectError, match="connection timed out"):
                    await transport.send(get(total_s=30.0))


async def test_a_name_server_that_hangs_delays_neither_the_error_nor_the_stop(mocker: MockerFixture) -> None:
    """With the loop's own getaddrinfo the end of the process would wait for the thread."""
    hang = threading.Event()
    mocker.patch.object(socket, "getaddrinfo", side_effect=lambda *_args, **_more: hang.wait(10) and [])
    try:
        started = time.monotonic()
        async with HttpTransport(Settings("http://api.example:1"), pool_s=0.2) as transport:
            with pytest.raises(ConnectError):
                await transport.send(get(total_s=1.0))
        await asyncio.get_running_loop().shutdown_default_executor()
        assert time.monotonic() - started < AT_ONCE_S
    finally:
        hang.set()


async def test_a_name_is_looked_up() -> None:
    async with (
        serving(fine_for_ever) as server,
        HttpTransport(Settings(f"http://localhost:{server.port}")) as transport,
    ):
        assert await body_of(transport, get()) == b"{}"
        assert server.heard[0].headers["host"] == f"localhost:{server.port}"


async def test_a_request_that_waits_for_a_connection_is_written_when_it_leaves() -> None:
    """LE-10: a queued request is written when it gets its connection; if it is withdrawn then, other requests are unharmed."""
    free = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.request()
        await free.wait()
        await peer.answer()
        await peer.request()
        await peer.answer()

    left = ["first"]

    def leave(request: Request) -> Request:
        if not left:
            raise ConnectError("withdrawn")
        return replace(request, query={"left": left[0]})

    async with serving(behave) as server, HttpTransport(Settings(server.url), max_connections=1) as transport:
        first = asyncio.create_task(body_of(transport, get(5.0), leave))
        await until(lambda: server.heard, "the server has a request")
        second = asyncio.create_task(body_of(transport, get(5.0), leave))
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
    """LE-10: unless told otherwise, the kernel goes on sending a closed socket's data for minutes after a network outage."""
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
            await transport.send(get(0.5))  # long enough to arrive, on a busy machine too
        given_up.set()
        await until(lambda: heard, "the request has arrived")
    assert isinstance(heard[0], ConnectionResetError), "a reset drops what is not acknowledged, an orderly end does not"


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
        await until(lambda: server.heard, "the server has a request")
        await asyncio.sleep(0.05)
        started = time.monotonic()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await until(lambda: server.open == 0, "the server has no connection", yet=lambda: server.open)
        assert time.monotonic() - started < AT_ONCE_S


async def test_leaving_the_transport_ends_what_is_still_under_way() -> None:
    async with serving(never_answers) as server:
        async with HttpTransport(Settings(server.url)) as transport:
            request = asyncio.create_task(transport.send(get(total_s=30.0)))
            await until(lambda: server.heard, "the server has a request")
        async with asyncio.timeout(AT_ONCE_S):
            with pytest.raises(TransportError):
                await request
        await until(lambda: server.open == 0, "the server has no connection", yet=lambda: server.open)


async def test_a_transport_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="not open"):
        await HttpTransport(Settings("http://127.0.0.1:1")).send(get())
