"""TLS, proxies and credentials: who is trusted, what is presented to whom, and what a refusal means."""

import asyncio
import base64
import contextlib
import gc
import json
import socket
import ssl
import threading
from asyncio.sslproto import SSLProtocol
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.loopback import CONFIG_MAPS, Peer, body_of, fine_for_ever, forward, get, never_answers, serving, trusting
from hack.control_plane.run.pki import Authority
from support.waiting import until
from tfjob_operator.api.access import Access, AccessError
from tfjob_operator.api.client import HttpTransport, RestClient, Settings
from tfjob_operator.api.client.auth.credentials import RefreshedCredentials
from tfjob_operator.api.client.errors import ConnectError, CredentialsError, TLSError, UnauthorizedError
from tfjob_operator.api.client.http import Credentials, FixedCredentials


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
                    await transport.send(get(total_s=10.0))
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


async def test_what_a_failed_handshake_needed_is_free_without_the_garbage_collector(
    tmp_path: Path, authority: Authority, server_tls: ssl.SSLContext
) -> None:
    """A quarter of a megabyte each: a server whose certificate has expired must not cost a client its memory."""

    def left() -> int:
        made = (each for each in gc.get_objects() if isinstance(each, SSLProtocol))
        return sum(not each._server_side for each in made)

    async with (
        serving(fine_for_ever, tls=server_tls) as server,
        HttpTransport(Settings(server.url, trusting(Authority.make(tmp_path)))) as transport,
    ):
        gc.collect()
        gc.disable()
        try:
            before = left()
            for _ in range(3):
                with suppress(TLSError):
                    await transport.send(get())
            await until(lambda: server.open == 0 and left() == before, "no connection is left", yet=lambda: server.open)
        finally:
            gc.enable()


async def test_a_tls_handshake_that_stalls_is_a_connect_error_in_time(authority: Authority) -> None:
    async with serving(Peer.gone) as server:
        settings = Settings(server.url.replace("http:", "https:"), trusting(authority))
        async with HttpTransport(settings, connect_s=0.2) as transport:
            with pytest.raises(ConnectError, match="connection timed out"):
                await transport.send(get(total_s=2.0))
        await until(lambda: server.open == 0, "the server has no connection", yet=lambda: server.open)


async def test_a_new_client_certificate_is_never_sent_over_an_old_connection(
    authority: Authority, server_tls: ssl.SSLContext
) -> None:
    async def who(peer: Peer) -> None:
        certificate: Any = peer.writer.get_extra_info("peercert")
        name = next(value for entry in certificate["subject"] for key, value in entry if key == "commonName")
        while True:
            await peer.request()
            await peer.answer(json.dumps(name).encode())

    access = Access("https://", authority=authority.certificate.read_text())
    clients = [authority.client(name, name) for name in ("old", "new")]
    contexts = [
        replace(access, certificate=each.certificate.read_text(), key=each.key.read_text()).tls_context()
        for each in clients
    ]
    current = iter([0, 0, 1, 1])

    class Rotating:
        async def get(self) -> Credentials:
            return Credentials(None, contexts[next(current)])

        def refused(self) -> None: ...

    async with serving(who, tls=server_tls) as server:
        async with HttpTransport(Settings(server.url, Rotating())) as transport:
            assert [await body_of(transport, get()) for _ in range(4)] == [b'"old"', b'"old"', b'"new"', b'"new"']
        assert server.connections == 2


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


async def test_a_proxy_may_be_reached_by_tls_itself(authority: Authority, server_tls: ssl.SSLContext) -> None:
    """For a server with TLS that is TLS inside TLS."""
    trust = trusting(authority)
    async with serving(tunnel, tls=server_tls) as proxy, serving(fine_for_ever, tls=server_tls) as server:
        async with HttpTransport(Settings(server.url, trust, proxy=proxy.url)) as transport:
            for _ in range(3):
                assert await body_of(transport, get(total_s=2.0)) == b"{}"
        assert (proxy.connections, server.connections) == (1, 1)
        await until(
            lambda: proxy.open == server.open == 0, "no connection is left", yet=lambda: (proxy.open, server.open)
        )
    async with serving(fine_for_ever, tls=server_tls) as proxy:
        async with HttpTransport(Settings("http://api.example", trust, proxy=proxy.url)) as transport:
            assert await body_of(transport, get(total_s=2.0)) == b"{}"
        assert proxy.heard[0].target == "http://api.example/api/v1/pods", "the absolute form"


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("stage", ["the proxy", "the handshake"])
async def test_a_request_that_is_cancelled_while_it_gets_its_tunnel_closes_it(
    authority: Authority, server_tls: ssl.SSLContext, stage: str, *, encrypted: bool
) -> None:
    async def opens_and_stalls(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await peer.gone()

    behave = never_answers if stage == "the proxy" else opens_and_stalls
    async with serving(behave, tls=server_tls if encrypted else None) as proxy:
        settings = Settings("https://api.example", trusting(authority), proxy=proxy.url)
        async with HttpTransport(settings) as transport:
            request = asyncio.create_task(transport.send(get(total_s=5.0)))
            await until(lambda: proxy.heard, "the proxy has a request")
            await asyncio.sleep(0.05)
            request.cancel()
            await asyncio.wait([request])
            await until(lambda: proxy.open == 0, "the proxy has no connection", yet=lambda: proxy.open)


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
        await until(lambda: proxy.open == 0, "the proxy has no connection", yet=lambda: proxy.open)


async def test_a_proxy_that_refuses_the_connection_is_a_connect_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        proxy = f"http://ada:{SECRET}@127.0.0.1:{taken.getsockname()[1]}"
        async with HttpTransport(Settings("https://api.example", proxy=proxy)) as transport:
            with pytest.raises(ConnectError) as raised:
                await transport.send(get())
    assert SECRET not in str(raised.value)


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
            await client.get(CONFIG_MAPS, "ns", "a")  # the new token is read during this request
        await asyncio.sleep(0.05)
        assert await client.get(CONFIG_MAPS, "ns", "a") == b"{}"


async def test_without_credentials_no_request_leaves() -> None:
    def fail() -> Credentials:
        raise AccessError("no such plugin")

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
