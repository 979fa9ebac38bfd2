"""Watches: lines as they come, silence, and streams that are left or cut."""

import asyncio
import ssl

import pytest

from fakes.loopback import CONFIG_MAPS, Peer, follow, forward, serving, trusting
from hack.control_plane.run.pki import Authority
from support.waiting import until
from tfjob_operator.api.client import HttpTransport, ListOptions, RestClient, Settings


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


async def fail_inside(client: RestClient) -> None:
    async with client.watch(CONFIG_MAPS, ListOptions()) as lines:
        async for batch in lines:
            raise KeyError(batch)


@pytest.mark.parametrize("encrypted", [False, True])
async def test_leaving_a_watch_closes_its_stream_at_once_and_leaves_no_task(
    authority: Authority, server_tls: ssl.SSLContext, *, encrypted: bool
) -> None:
    """RF-13: however the consumer leaves. The loop would close an abandoned async generator later, in a task of its own."""

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
        await until(lambda: server.open == 0, "the server has no connection", yet=lambda: server.open)
        with pytest.raises(KeyError):
            await fail_inside(client)
        await until(lambda: server.open == 0, "the server has no connection", yet=lambda: server.open)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await follow(client, [])
        await until(lambda: server.open == 0, "the server has no connection", yet=lambda: server.open)
        assert asyncio.all_tasks() <= before


async def test_leaving_a_watch_does_not_wait_for_a_peer_that_is_frozen(
    authority: Authority, server_tls: ssl.SSLContext
) -> None:
    """An orderly end of TLS would keep the connection for 30 s, waiting for a response that never comes."""

    async def one_line(peer: Peer) -> None:
        await peer.request()
        await peer.open_stream()
        await peer.chunk(b"{}\n")
        await peer.gone()

    async def freezing_proxy(peer: Peer) -> None:
        to_server = asyncio.create_task(forward(peer, "127.0.0.1", server.port))
        await until(freeze.is_set, "the watch is frozen")
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
                await until(lambda: server.open == 0, "the server has no connection", yet=lambda: server.open)
            await until(lambda: proxy.open == 0, "the proxy has no connection", yet=lambda: proxy.open)


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_slow_reader_is_not_taken_for_a_dead_peer(
    authority: Authority, server_tls: ssl.SSLContext, *, encrypted: bool
) -> None:
    """While we do not read, silence does not count. Nothing is lost even if the server ends long before the reader."""

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
