"""Connections are kept, used in turn, and closed; requests that are cancelled or given up end at once."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import replace

import pytest

from fakes.loopback import (
    AT_ONCE_S,
    Behaviour,
    Peer,
    body_of,
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
        await until(lambda: server.heard)
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
        await until(lambda: heard)
    assert isinstance(heard[0], ConnectionResetError), "a reset drops what is not acknowledged, an orderly end does not"


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
        assert time.monotonic() - started < AT_ONCE_S


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
