"""Tokens that the server refuses, and credentials that cannot be read."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from fakes.loopback import CONFIG_MAPS, Peer, fine_for_ever, get, serving
from tfjob_operator.api.client import HttpTransport, RestClient, Settings
from tfjob_operator.api.client.auth.credentials import RefreshedCredentials
from tfjob_operator.api.client.errors import CredentialsError, UnauthorizedError
from tfjob_operator.api.client.http import Credentials


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
