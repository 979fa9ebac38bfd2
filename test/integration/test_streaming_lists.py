"""Streaming lists on a real API server: one request where it has them, else a refusal and a list; the caches are the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from hack.control_plane import ControlPlane
from hack.kubernetes_versions import STREAMING_LISTS
from support.waiting import until
from tfjob_operator.api.client import HttpTransport, Request, Response, RestClient, load_settings
from tfjob_operator.api.client.errors import ConnectionLostError
from tfjob_operator.api.client.http import OnLeave, unchanged
from tfjob_operator.api.meta import Object, ObjectMeta, Resource, Struct
from tfjob_operator.informers import (
    Codec,
    EventHandlerFuncs,
    ReflectorOptions,
    SharedIndexInformer,
    SharedInformerFactory,
)

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
OURS = "metadata.name!=kube-root-ca.crt"  # a config map that the server puts into every namespace
COUNT = 120
PATIENCE_S = 30.0  # for what takes a second on a machine that does nothing else


class ConfigMap(Struct, frozen=True):
    """A config map with its data."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


class Short:
    """A stream that breaks after `length` bytes."""

    def __init__(self, inner: Response, length: int) -> None:
        self.status, self.headers, self.body, self.close = inner.status, inner.headers, inner.body, inner.close
        self._inner = inner
        self._left = length

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            yield chunk[: self._left]
            self._left -= len(chunk)
            if self._left <= 0:
                raise ConnectionLostError("cut")


class CountingTransport:
    """Passes requests on and records the kind of each read. Can cut the streams, the first one after some bytes."""

    def __init__(self, inner: HttpTransport) -> None:
        self.reads: list[str] = []
        self.first_length = 0
        self._inner = inner
        self._streams: list[Response] = []

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        watch = "watch" in request.query
        if request.method == "GET":
            self.reads.append("stream" if "sendInitialEvents" in request.query else "watch" if watch else "list")
        response = await self._inner.send(request, on_leave)
        if watch and response.status == 200:
            self._streams.append(response)
            if self.first_length:
                length, self.first_length = self.first_length, 0
                return Short(response, length)
        return response

    def cut(self) -> None:
        """Break every stream, as a proxy does that dies."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()


@pytest.fixture(scope="module")
def streams(control_plane: ControlPlane) -> bool:
    """Whether this server has streaming lists."""
    return control_plane.version.has(STREAMING_LISTS)


def contents(informer: SharedIndexInformer[ConfigMap]) -> dict[str, tuple[str, dict[str, str] | None]]:
    """What a cache holds."""
    return {key: (item.metadata.resource_version, item.data) for key, item in informer.indexer.items()}


async def test_streamed_or_listed_the_cache_is_the_same_and_follows_the_server(
    control_plane: ControlPlane, namespace: str, streams: bool
) -> None:
    """RF-27, RF-28, SV-09"""
    settings = load_settings(str(control_plane.kubeconfig))
    async with HttpTransport(settings) as http, HttpTransport(settings) as listing_http, asyncio.TaskGroup() as tasks:
        transport, listing = CountingTransport(http), CountingTransport(listing_http)
        client = RestClient(http)

        async def put(name: str) -> None:
            await client.create(CONFIG_MAPS, namespace, {"metadata": {"name": name}, "data": {"name": name}})

        for number in range(COUNT):
            await put(f"m{number}")
        factories = [
            SharedInformerFactory(RestClient(transport)),
            SharedInformerFactory(RestClient(listing), options=ReflectorOptions(stream_lists=False)),
        ]
        ours, lister = (
            factory.informer(Codec(CONFIG_MAPS, ConfigMap), namespace=namespace, field_selector=OURS)
            for factory in factories
        )
        initial: list[Object] = []
        handler = EventHandlerFuncs[ConfigMap](on_add=lambda item, first: initial.append(item) if first else None)
        registration = ours.add_event_handler(handler)
        with capture_logs() as logs:
            for factory in factories:
                factory.start(tasks)
                await factory.wait_for_cache_sync(PATIENCE_S)
            await registration.wait_for_sync()
            await until(lambda: len(transport.reads) == (1 if streams else 3) and len(listing.reads) == 2)
        assert transport.reads == (["stream"] if streams else ["stream", "list", "watch"])
        assert listing.reads == ["list", "watch"]
        told = [log["event"] for log in logs if log["log_level"] != "debug"]
        assert told == []
        assert len(ours.indexer) == len(initial) == COUNT
        assert contents(ours) == contents(lister)

        await put("new")
        await client.patch(CONFIG_MAPS, namespace, "m0", {"data": {"name": "changed"}})
        await client.delete(CONFIG_MAPS, namespace, "m1")
        await until(lambda: f"{namespace}/m1" not in ours.indexer and f"{namespace}/m1" not in lister.indexer)
        assert contents(ours) == contents(lister)

        before = len(transport.reads)
        transport.cut()
        await client.delete(CONFIG_MAPS, namespace, "m2")
        await until(lambda: f"{namespace}/m2" not in ours.indexer and f"{namespace}/m2" not in lister.indexer)
        assert transport.reads[before:] == ["watch"], "the stream goes on as a watch does, from the last version"
        assert contents(ours) == contents(lister)
        for factory in factories:
            await factory.shut_down()


async def measured(http: HttpTransport, namespace: str) -> tuple[int, int, int]:
    """The bytes of a streaming list: of its first event, of all events but bookmarks, and of the whole."""
    query = {"watch": "true", "timeoutSeconds": "1", "allowWatchBookmarks": "true", "fieldSelector": OURS}
    query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    response = await http.send(Request("GET", CONFIG_MAPS.path(namespace), query))
    try:
        lines = (await response.body()).splitlines(keepends=True)
    finally:
        response.close()
    events = [line for line in lines if b'"BOOKMARK"' not in line]
    return len(lines[0]), sum(map(len, events)), sum(map(len, lines))


async def test_wherever_a_stream_breaks_the_cache_ends_with_the_truth(
    control_plane: ControlPlane, namespace: str, streams: bool
) -> None:
    """RF-28: in an event, between two, before and after the bookmark; without streaming lists the watch is cut instead"""
    settings = load_settings(str(control_plane.kubeconfig))
    async with HttpTransport(settings) as http:
        client = RestClient(http)
        for number in range(5):
            await client.create(
                CONFIG_MAPS, namespace, {"metadata": {"name": f"m{number}"}, "data": {"n": str(number)}}
            )
        event, before_bookmark, whole = await measured(http, namespace)
        assert (before_bookmark < whole) is streams
        # A stream that breaks before its first event counts as not served. The last cuts are in the event of the patch.
        for length in range(event + 1 if streams else event // 2, whole + event, event // 2):
            transport = CountingTransport(http)
            transport.first_length = length
            factory = SharedInformerFactory(RestClient(transport), random=lambda: 0.0)
            informer = factory.informer(Codec(CONFIG_MAPS, ConfigMap), namespace=namespace, field_selector=OURS)
            async with asyncio.TaskGroup() as tasks:
                factory.start(tasks)
                await factory.wait_for_cache_sync(PATIENCE_S)
                body = {"data": {"length": str(length)}}
                await client.patch(CONFIG_MAPS, namespace, "m0", body)
                await until(lambda: (contents(informer)[f"{namespace}/m0"][1] or {}).get("length") == str(length))  # noqa: B023
                await factory.shut_down()
            assert sorted(contents(informer)) == [f"{namespace}/m{number}" for number in range(5)]
            assert ("list" in transport.reads) is not streams
            assert len(transport.reads) <= (2 if streams else 5)
