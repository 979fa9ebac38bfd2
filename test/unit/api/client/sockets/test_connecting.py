"""From a name to a connection: addresses, name servers, servers that are not there or do not accept."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time

import pytest
from pytest_mock import MockerFixture

from fakes.loopback import AT_ONCE_S, Peer, body_of, fine_for_ever, get, never_answers, serving
from support.waiting import until
from tfjob_operator.api.client import HttpTransport, Settings
from tfjob_operator.api.client.errors import ConnectError


async def test_the_first_address_that_can_be_reached_is_taken(mocker: MockerFixture) -> None:
    """A name has an address that refuses and one that drops packets: neither costs more than a moment."""
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


async def test_a_refused_connection_is_a_connect_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        settings = Settings(f"http://127.0.0.1:{taken.getsockname()[1]}")
        async with HttpTransport(settings) as transport:
            with pytest.raises(ConnectError, match="Cannot connect"):
                await transport.send(get())


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


async def test_the_wait_for_a_free_connection_has_its_own_limit() -> None:
    """With a full pool the request was never sent, and the error says so instead of blaming the server."""
    async with serving(never_answers) as server:
        async with HttpTransport(Settings(server.url), max_connections=1, pool_s=0.2) as transport:
            first = asyncio.create_task(transport.send(get(total_s=1.0)))
            await until(lambda: server.heard)
            with pytest.raises(ConnectError, match="connection timed out"):
                await transport.send(get(total_s=1.0))
            first.cancel()
            await asyncio.wait([first])
        assert len(server.heard) == 1


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
    async def fine(peer: Peer) -> None:
        await peer.request()
        await peer.answer()

    async with serving(fine) as server, HttpTransport(Settings(f"http://localhost:{server.port}")) as transport:
        assert await body_of(transport, get()) == b"{}"
        assert server.heard[0].headers["host"] == f"localhost:{server.port}"
