"""`ListWatch` over a `RestClient` whose transport is scripted: the tests look at its HTTP requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping

import pytest

from fakes.source import running, settle
from tfjob_operator.api.client.errors import ConnectionLostError, DecodeError, ExpiredError, ForbiddenError
from tfjob_operator.api.client.http import OnLeave, Request, unchanged
from tfjob_operator.api.client.options import ListOptions
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.api.core import PODS, Pod
from tfjob_operator.informers.codec import Codec
from tfjob_operator.informers.deltas import Added, Bookmark, Deleted
from tfjob_operator.informers.listwatch import Batch, ListWatch


class ScriptedResponse:
    """A response made of chunks; an error among them is raised there. After the last chunk the stream ends, or hangs."""

    def __init__(self, *chunks: bytes | Exception, status: int = 200, hang: bool = False) -> None:
        self.status = status
        self.headers: Mapping[str, str] = {}
        self.closed = False
        self._chunks = chunks
        self._hang = hang

    async def body(self) -> bytes:
        return b"".join(chunk for chunk in self._chunks if isinstance(chunk, bytes))

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk
        if self._hang:
            await asyncio.Event().wait()

    def close(self) -> None:
        self.closed = True


class ScriptedTransport:
    """Responds to every request with the one response it has, and keeps the requests."""

    def __init__(self, response: ScriptedResponse) -> None:
        self.response = response
        self.requests: list[Request] = []

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> ScriptedResponse:
        self.requests.append(request)
        return self.response


def event(kind: str, name: str = "a", version: str = "5") -> bytes:
    """A line of a watch of pods, with its end."""
    item = {"kind": "Pod", "metadata": {"name": name, "namespace": "ns", "resourceVersion": version}}
    return json.dumps({"type": kind, "object": item}, separators=(",", ":")).encode() + b"\n"


def over(response: ScriptedResponse) -> tuple[ListWatch[Pod], ScriptedTransport]:
    """A `ListWatch` of narrowed pods, and its transport."""
    transport = ScriptedTransport(response)
    client = RestClient(transport)
    narrowed = ListWatch(
        client, Codec(PODS, Pod), namespace="ns", label_selector="app=web", field_selector="spec.nodeName=n"
    )
    return narrowed, transport


async def read(source: ListWatch[Pod], into: list[Batch[Pod]]) -> None:
    """Read a watch to its end."""
    async with source.watch(ListOptions(resource_version="4")) as batches:
        async for batch in batches:
            into.append(batch)  # noqa: PERF401 - what came before an error counts


async def test_a_list_is_narrowed_by_namespace_and_selectors_and_decoded() -> None:
    """RF-01"""
    body = b'{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}}]}'
    source, transport = over(ScriptedResponse(body))
    page = await source.list(ListOptions(resource_version="0", limit=500))
    assert [item.metadata.name for item in page.items] == ["a"]
    [request] = transport.requests
    assert request.path == "/api/v1/namespaces/ns/pods"
    assert request.query == {
        "labelSelector": "app=web", "fieldSelector": "spec.nodeName=n", "resourceVersion": "0", "limit": "500",
    }  # fmt: skip


async def test_a_list_is_decoded_while_it_arrives_and_a_broken_one_is_read_anew() -> None:
    """D9d: nothing of the broken one is in what is returned."""
    items = ",".join(f'{{"metadata":{{"name":"p{number}"}},"note":"{"x" * 500}"}}' for number in range(3000))
    body = f'{{"kind":"PodList","metadata":{{"resourceVersion":"9"}},"items":[{items}]}}'.encode()
    response = ScriptedResponse(*(body[begin : begin + 65_536] for begin in range(0, len(body), 65_536)))
    broken = ScriptedResponse(body[:1_000_000], ConnectionLostError("cut"))

    class Server(ScriptedTransport):
        async def send(self, request: Request, on_leave: OnLeave = unchanged) -> ScriptedResponse:
            await super().send(request, on_leave)
            return broken if len(self.requests) == 1 else response

    transport = Server(response)
    page = await ListWatch(RestClient(transport), Codec(PODS, Pod)).list(ListOptions())
    assert [pod.metadata.name for pod in page.items] == [f"p{number}" for number in range(3000)]
    assert [request.query.get("watch") for request in transport.requests] == [None, None]
    assert broken.closed
    assert response.closed


async def test_a_watch_is_narrowed_alike_and_its_events_come_in_the_batches_of_the_stream() -> None:
    """RF-01, RF-14"""
    first, second, third = event("ADDED"), event("DELETED"), event("BOOKMARK")
    response = ScriptedResponse(first + second + third[:10], third[10:])
    source, transport = over(response)
    batches: list[Batch[Pod]] = []
    await read(source, batches)
    assert [[type(item) for item in batch] for batch in batches] == [[Added, Deleted], [Bookmark]]
    assert transport.requests[0].query["labelSelector"] == "app=web"
    assert transport.requests[0].query["resourceVersion"] == "4"
    assert response.closed


async def test_an_error_event_is_raised_after_the_events_before_it() -> None:
    """RF-16"""
    status = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
    response = ScriptedResponse(event("ADDED") + status + event("ADDED", "never"))
    source, _ = over(response)
    batches: list[Batch[Pod]] = []
    with pytest.raises(ExpiredError, match="WATCH pods: 410 too old"):
        await read(source, batches)
    assert [[type(item) for item in batch] for batch in batches] == [[Added]]
    assert response.closed


@pytest.mark.parametrize(
    ("chunk", "error"),
    [(ConnectionLostError("cut"), ConnectionLostError), (b"<html>\n", DecodeError)],
    ids=["cut", "garbage"],
)
async def test_a_stream_that_breaks_raises_what_broke_it(chunk: bytes | Exception, error: type[Exception]) -> None:
    """RF-14, RF-20, rest/connection_test.go:TestReconnectBrokenTCPInFlight_HTTP1"""
    response = ScriptedResponse(event("ADDED"), chunk)
    source, _ = over(response)
    batches: list[Batch[Pod]] = []
    with pytest.raises(error):
        await read(source, batches)
    assert len(batches) == 1
    assert response.closed


async def test_a_watch_that_is_refused_raises_the_servers_response() -> None:
    """RF-21"""
    source, _ = over(ScriptedResponse(b'{"kind":"Status","code":403,"reason":"Forbidden"}', status=403))
    with pytest.raises(ForbiddenError):
        await read(source, [])


async def test_cancelling_closes_the_stream() -> None:
    """RF-13, reflector_test.go:TestReflectorHandleWatchStoppedAfter"""
    response = ScriptedResponse(event("ADDED"), hang=True)
    source, _ = over(response)
    async with running(read(source, [])):
        await settle()
        assert not response.closed
    assert response.closed
