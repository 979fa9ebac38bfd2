"""Requests through a proxy: by a tunnel for TLS, in absolute form without; and proxies that refuse or send garbage."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl

import pytest

from fakes.loopback import Peer, body_of, fine_for_ever, forward, get, never_answers, serving, trusting
from hack.control_plane.run.pki import Authority
from support.waiting import until
from tfjob_operator.api.client import HttpTransport, Settings
from tfjob_operator.api.client.errors import ConnectError, TLSError
from tfjob_operator.api.client.http import Credentials, FixedCredentials

SECRET = "s3cret-s3cret"


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
    """For a server with TLS that is TLS inside TLS."""
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
            await until(lambda: proxy.open == 0)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"SSH-2.0-x\r\n\r\n", "the proxy did not send an HTTP response"),
        (b"HTTP/1.1 200 OK\r\n\r\nmore", "the proxy sent data after its CONNECT response"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000, "the proxy did not send an HTTP response"),
        (b"", "the proxy closed the connection"),
    ],
)
async def test_a_proxy_that_talks_nonsense_is_a_connect_error(answer: bytes, text: str) -> None:
    async def behave(peer: Peer) -> None:
        await peer.request()
        await peer.say(answer)

    async with serving(behave) as proxy, HttpTransport(Settings("https://api.example", proxy=proxy.url)) as transport:
        with pytest.raises(ConnectError, match=text):
            await transport.send(get(total_s=2.0))


async def test_a_proxy_that_refuses_is_a_connect_error_without_its_password() -> None:
    async def refuse(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"", status="407 Proxy Authentication Required")

    async with serving(refuse) as proxy:
        proxied = proxy.url.replace("http://", f"http://ada:{SECRET}@")
        settings = Settings("https://api.example", FixedCredentials(Credentials(f"Bearer {SECRET}")), proxy=proxied)
        async with HttpTransport(settings) as transport:
            with pytest.raises(ConnectError, match="the proxy returned 407") as raised:
                await transport.send(get())
        assert SECRET not in f"{raised.value!r} {raised.value.__cause__!r}"
        assert "authorization" not in proxy.heard[0].headers


async def test_a_proxy_that_never_responds_is_a_connect_error_in_time() -> None:
    async with serving(never_answers) as proxy:
        async with HttpTransport(Settings("https://api.example", proxy=proxy.url), pool_s=0.2) as transport:
            with pytest.raises(ConnectError, match="connection timed out"):
                await transport.send(get(total_s=2.0))
        await until(lambda: proxy.open == 0)


async def test_a_proxy_that_refuses_the_connection_is_a_connect_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        proxy = f"http://ada:{SECRET}@127.0.0.1:{taken.getsockname()[1]}"
        async with HttpTransport(Settings("https://api.example", proxy=proxy)) as transport:
            with pytest.raises(ConnectError) as raised:
                await transport.send(get())
    assert SECRET not in str(raised.value)
