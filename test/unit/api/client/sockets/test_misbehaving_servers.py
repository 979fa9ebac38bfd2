"""Servers and networks that fail in every way we know: each costs one error, in time, and no connection."""

from __future__ import annotations

import asyncio
import time

import pytest

from fakes.loopback import (
    AT_ONCE_S,
    Behaviour,
    Peer,
    body_of,
    closes_without_a_word,
    fine_for_ever,
    get,
    never_answers,
    resets,
    serving,
    stalls_after_the_head,
    trickles,
)
from support.waiting import until
from tfjob_operator.api.client import HttpTransport, Settings
from tfjob_operator.api.client.errors import (
    ApiError,
    ConnectionLostError,
    RequestTimeoutError,
    TransportError,
)
from tfjob_operator.api.client.http import Request


async def stalls_in_the_head(peer: Peer) -> None:
    await peer.request()
    await peer.say(b"HTTP/1.1 200 OK\r\nContent-")
    await peer.gone()


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
    """C2 blackhole, slow, drop_answer, cut: no request hangs, and no connection is left open."""
    limit_s = 0.4 if expected is RequestTimeoutError else AT_ONCE_S  # a busy machine is not a timeout
    async with serving(behave) as server, HttpTransport(Settings(server.url)) as transport:
        started = time.monotonic()
        with pytest.raises(expected, match=f"^{method} /api/v1/pods: ") as raised:
            await body_of(transport, Request(method, "/api/v1/pods", body=b"{}", total_s=limit_s))
        assert type(raised.value) is expected
        assert time.monotonic() - started < AT_ONCE_S
        await until(lambda: server.open == 0)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("behave", [closes_without_a_word, resets])
async def test_what_changes_something_is_sent_once_even_if_its_response_is_lost(behave: Behaviour, method: str) -> None:
    """WR-06: many clients resend a PUT or DELETE; the second one would then conflict with the first."""

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
    """WR-06: if the server also hangs up on a new connection, the caller gets the error."""

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


@pytest.mark.parametrize("behave", [closes_without_a_word, resets])
async def test_a_get_whose_connection_was_new_is_not_sent_again(behave: Behaviour) -> None:
    """WR-06: a server that hangs up on a new connection does not do so because it was idle for too long."""
    async with serving(behave) as server, HttpTransport(Settings(server.url)) as transport:
        with pytest.raises(ConnectionLostError):
            await body_of(transport, get())
        assert (len(server.heard), server.connections) == (1, 1)


async def test_a_path_that_would_smuggle_a_second_request_is_not_sent() -> None:
    async with serving(fine_for_ever) as server, HttpTransport(Settings(server.url)) as transport:
        with pytest.raises(ValueError, match="must be quoted"):
            await transport.send(Request("GET", "/x HTTP/1.1\r\nHost: evil\r\n\r\n"))
        assert not server.heard
