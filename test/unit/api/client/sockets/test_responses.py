"""What responses mean, from servers, balancers and login pages, and from all that misbehaves."""

import asyncio
import gzip
import time

import pytest

from fakes.loopback import (
    AT_ONCE_S,
    CONFIG_MAPS,
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
from tfjob_operator.api.client import HttpTransport, ListOptions, RestClient, Settings, errors
from tfjob_operator.api.client.http import Credentials, FixedCredentials, Request

SECRET = "s3cret-s3cret"


async def test_a_redirect_is_not_followed_with_our_token() -> None:
    async def elsewhere(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"", status="307 Temporary Redirect", headers=f"Location: {thief.url}/?ticket={SECRET}\r\n")

    async with serving(fine_for_ever) as thief, serving(elsewhere) as server:
        settings = Settings(server.url, FixedCredentials(Credentials(f"Bearer {SECRET}")))
        async with HttpTransport(settings) as transport:
            with pytest.raises(errors.StatusError, match="redirect") as raised:
                await RestClient(transport).create(CONFIG_MAPS, "ns", {})
        assert SECRET not in str(raised.value)
        assert thief.connections == 0


async def test_requests_are_sent_as_they_are_meant() -> None:
    credentials = FixedCredentials(Credentials(f"Bearer {SECRET}"))
    async with (
        serving(fine_for_ever) as server,
        HttpTransport(Settings(f"{server.url}/base", credentials), user_agent="kettle/1") as transport,
    ):
        client = RestClient(transport, field_manager="tfjob operator")
        await client.list_page(CONFIG_MAPS, ListOptions(label_selector="a=b,c in (d, e)", resource_version="0"))
        await client.patch(CONFIG_MAPS, "ns", "a b", {"x": "ü"}, subresource="status")
    listed, patched = server.heard
    assert listed.target == "/base/api/v1/configmaps?labelSelector=a%3Db%2Cc+in+%28d%2C+e%29&resourceVersion=0"
    assert patched.target == "/base/api/v1/namespaces/ns/configmaps/a%20b/status?fieldManager=tfjob+operator"
    assert patched.body == '{"x":"ü"}'.encode()
    assert patched.headers["content-type"] == "application/merge-patch+json"
    assert patched.headers["authorization"] == f"Bearer {SECRET}"
    assert patched.headers["user-agent"] == "kettle/1"
    assert listed.headers["accept"] == "application/json"
    assert "content-type" not in listed.headers
    assert "cookie" not in listed.headers


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_that_was_compressed_on_its_way_is_read_as_it_was(*, stream: bool) -> None:
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
        (never_answers, errors.RequestTimeoutError),
        (stalls_after_the_head, errors.RequestTimeoutError),
        (stalls_in_the_head, errors.RequestTimeoutError),
        (trickles, errors.RequestTimeoutError),
        (closes_without_a_word, errors.ConnectionLostError),
        (resets, errors.ConnectionLostError),
        (closes_in_the_body, errors.ConnectionLostError),
        (closes_in_a_chunk, errors.ConnectionLostError),
        (resets_in_the_body, errors.ConnectionLostError),
        (speaks_something_else, errors.TransportError),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_server_that_misbehaves_costs_one_error_in_time_and_no_connection(
    behave: Behaviour, expected: type[errors.ApiError], method: str
) -> None:
    """C2 blackhole, slow, drop_answer, cut: no request hangs, and no connection is left open."""
    limit_s = 0.4 if expected is errors.RequestTimeoutError else AT_ONCE_S  # a busy machine is not a timeout
    async with serving(behave) as server, HttpTransport(Settings(server.url)) as transport:
        started = time.monotonic()
        with pytest.raises(expected, match=f"^{method} /api/v1/pods: ") as raised:
            await body_of(transport, Request(method, "/api/v1/pods", body=b"{}", total_s=limit_s))
        assert type(raised.value) is expected
        assert time.monotonic() - started < AT_ONCE_S
        await until(lambda: server.open == 0, "the server has no connection", yet=lambda: server.open)


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
        with pytest.raises(errors.ConnectionLostError):
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
        with pytest.raises(errors.ConnectionLostError):
            await body_of(transport, get())
        assert (len(server.heard), server.connections) == (3, 2)


@pytest.mark.parametrize("behave", [closes_without_a_word, resets])
async def test_a_get_whose_connection_was_new_is_not_sent_again(behave: Behaviour) -> None:
    """WR-06: a server that hangs up on a new connection does not do so because it was idle for too long."""
    async with serving(behave) as server, HttpTransport(Settings(server.url)) as transport:
        with pytest.raises(errors.ConnectionLostError):
            await body_of(transport, get())
        assert (len(server.heard), server.connections) == (1, 1)


async def test_a_path_that_would_smuggle_a_second_request_is_not_sent() -> None:
    async with serving(fine_for_ever) as server, HttpTransport(Settings(server.url)) as transport:
        with pytest.raises(ValueError, match="must be quoted"):
            await transport.send(Request("GET", "/x HTTP/1.1\r\nHost: evil\r\n\r\n"))
        assert not server.heard
