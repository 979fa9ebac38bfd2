"""What responses mean, from servers, load balancers and login pages; and what requests look like on the wire."""

from __future__ import annotations

import asyncio
import gzip
import time

import pytest

from fakes.loopback import AT_ONCE_S, CONFIG_MAPS, Peer, body_of, serving
from tfjob_operator.api.client import HttpTransport, ListOptions, LogOptions, RestClient, Settings
from tfjob_operator.api.client.errors import DecodeError, ServerError, StatusError
from tfjob_operator.api.client.http import Credentials, FixedCredentials, Request
from tfjob_operator.api.core import PODS

SECRET = "s3cret-s3cret"


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


async def test_a_login_page_is_not_a_response() -> None:
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
        assert 1.0 <= time.monotonic() - started < 1.0 + AT_ONCE_S
        assert server.connections == 1


async def test_requests_are_sent_as_they_are_meant() -> None:
    async def fine(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.answer()

    credentials = FixedCredentials(Credentials(f"Bearer {SECRET}"))
    async with (
        serving(fine) as server,
        HttpTransport(Settings(f"{server.url}/base", credentials), user_agent="kettle/1") as transport,
    ):
        client = RestClient(transport, field_manager="tfjob operator")
        await client.list_page(CONFIG_MAPS, ListOptions(label_selector="a=b,c in (d, e)", resource_version="0"))
        await client.patch(CONFIG_MAPS, "ns", "a/b", {"x": "ü"}, subresource="status")
    listed, patched = server.heard
    assert listed.target == "/base/api/v1/configmaps?labelSelector=a%3Db%2Cc+in+%28d%2C+e%29&resourceVersion=0"
    assert patched.target == "/base/api/v1/namespaces/ns/configmaps/a%2Fb/status?fieldManager=tfjob+operator"
    assert patched.body == '{"x":"ü"}'.encode()
    assert patched.headers["content-type"] == "application/merge-patch+json"
    assert patched.headers["authorization"] == f"Bearer {SECRET}"
    assert patched.headers["user-agent"] == "kettle/1"
    assert listed.headers["accept"] == "application/json"
    assert "content-type" not in listed.headers
    assert "cookie" not in listed.headers


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_that_was_compressed_on_its_way_is_read_as_it_was(*, stream: bool) -> None:
    """As a whole or as it arrives; its connection is reused. A response that the server did not compress is read, too."""
    body = b'{"items":[' + b'{"kind":"Pod"},' * 10_000 + b"{}]}"
    zipped = gzip.compress(body)

    async def big(peer: Peer) -> None:
        await peer.request()
        await peer.answer(zipped, headers="Content-Encoding: gzip\r\n")
        await peer.request()
        await peer.answer(body)

    asked = Request("GET", "/api/v1/pods", total_s=1.0, idle_s=1.0 if stream else None, gzip=True)
    async with serving(big) as server, HttpTransport(Settings(server.url)) as transport:
        assert await body_of(transport, asked) == body
        assert await body_of(transport, asked) == body
        assert server.connections == 1
    assert [heard.headers["accept-encoding"] for heard in server.heard] == ["gzip", "gzip"]


async def test_a_log_is_followed_until_it_ends() -> None:
    """As a kubelet sends it through an API server: chunks of text whenever there are some."""
    go_on = asyncio.Event()

    async def train(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
        await peer.chunk(b"step 1\nst")
        await go_on.wait()
        await peer.chunk(b"ep 2\n")
        await peer.chunk(b"")

    async with serving(train) as server, HttpTransport(Settings(server.url)) as transport:
        client = RestClient(transport)
        async with client.logs(PODS, "ns", "a", LogOptions(follow=True)) as chunks:
            assert await anext(chunks) == b"step 1\nst"
            go_on.set()
            assert [chunk async for chunk in chunks] == [b"ep 2\n"]
    assert server.heard[0].target == "/api/v1/namespaces/ns/pods/a/log?follow=true"
    assert server.heard[0].headers["accept"] == "application/json, */*"


async def test_who_leaves_a_log_early_closes_its_connection() -> None:
    closed = asyncio.Event()

    async def train(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
        await peer.chunk(b"step 1\n")
        await peer.gone()
        closed.set()

    async with serving(train) as server, HttpTransport(Settings(server.url)) as transport:
        async with RestClient(transport).logs(PODS, "ns", "a", LogOptions(follow=True)) as chunks:
            await anext(chunks)
        async with asyncio.timeout(1.0):
            await closed.wait()
