"""TLS: which servers are trusted, and which client certificate is presented to whom."""

from __future__ import annotations

import gc
import json
import ssl
from asyncio.sslproto import SSLProtocol
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.loopback import Peer, body_of, fine_for_ever, get, serving, trusting
from hack.control_plane.run.pki import Authority
from support.waiting import until
from tfjob_operator.api.access import Access
from tfjob_operator.api.client import HttpTransport, Settings
from tfjob_operator.api.client.errors import ConnectError, TLSError
from tfjob_operator.api.client.http import Credentials, FixedCredentials


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
            await until(lambda: server.open == 0 and left() == before)
        finally:
            gc.enable()


async def test_a_tls_handshake_that_stalls_is_a_connect_error_in_time(authority: Authority) -> None:
    async with serving(Peer.gone) as server:
        settings = Settings(server.url.replace("http:", "https:"), trusting(authority))
        async with HttpTransport(settings, connect_s=0.2) as transport:
            with pytest.raises(ConnectError, match="connection timed out"):
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
