"""The factory of informers, and the metrics of informers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from fakes.metrics import FakeMetrics
from fakes.objects import Pod, Service
from fakes.source import FakeSource, expired, pod, running, settle, settled, status_error
from tfjob_operator.api.client.errors import ConnectionLostError
from tfjob_operator.api.client.http import OnLeave, Request, unchanged
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.meta import ObjectMeta, Struct
from tfjob_operator.informers import (
    CacheSyncTimeoutError,
    Codec,
    EventHandlerFuncs,
    InformerStoppedError,
    SharedIndexInformer,
    SharedInformerFactory,
)
from tfjob_operator.informers.codec import Skipped
from tfjob_operator.informers.deltas import Added
from tfjob_operator.informers.metrics import version_as_number


class Named(Struct, frozen=True):
    """The metadata of any object."""

    metadata: ObjectMeta


class Answer:
    """A list of one object, or a watch that stays silent, with `initial_events` after that object."""

    status = 200
    headers: Mapping[str, str] = {}

    def __init__(self, kind: str, *, initial_events: bool = False) -> None:
        self._kind = kind
        self._initial_events = initial_events

    async def body(self) -> bytes:
        return (
            f'{{"kind":"{self._kind}List","metadata":{{"resourceVersion":"9"}},'
            f'"items":[{{"metadata":{{"name":"a","namespace":"ns","resourceVersion":"3"}}}}]}}'
        ).encode()

    async def chunks(self) -> AsyncIterator[bytes]:
        if self._initial_events:
            yield (
                f'{{"type":"ADDED","object":{{"kind":"{self._kind}",'
                f'"metadata":{{"name":"a","namespace":"ns","resourceVersion":"3"}}}}}}\n'
                f'{{"type":"BOOKMARK","object":{{"kind":"{self._kind}","metadata":{{"resourceVersion":"9",'
                f'"annotations":{{"k8s.io/initial-events-end":"true"}}}}}}}}\n'
            ).encode()
        await asyncio.Event().wait()

    def close(self) -> None:
        """Nothing to give back."""


class Server:
    """A transport; requests for services hang while `stuck`."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.stuck = False

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Answer:
        self.requests.append(request)
        services = "services" in request.path
        if services and self.stuck:
            await asyncio.Event().wait()
        return Answer("Service" if services else "Pod", initial_events="sendInitialEvents" in request.query)


def by_name(item: Pod) -> Sequence[str]:
    """An index function."""
    return [item.metadata.name]


def factory_over(server: Server) -> SharedInformerFactory:
    """A factory over this server."""
    return SharedInformerFactory(RestClient(server))


async def test_the_same_question_gets_the_same_informer() -> None:
    """A5"""
    factory = factory_over(Server())
    pods = factory.informer(Codec(PODS, Pod), label_selector="app=web")
    assert factory.informer(Codec(PODS, Pod), label_selector="app=web") is pods
    others: list[SharedIndexInformer[Pod] | SharedIndexInformer[Service]] = [
        factory.informer(Codec(PODS, Pod)),
        factory.informer(Codec(PODS, Pod), namespace="ns"),
        factory.informer(Codec(PODS, Pod), field_selector="spec.nodeName=n"),
        factory.informer(Codec(SERVICES, Service)),
    ]
    assert len({id(informer) for informer in (pods, *others)}) == 5
    assert [informer.name for informer in (pods, *others)] == [
        "pods?app=web", "pods", "pods/ns", "pods?spec.nodeName=n", "services",
    ]  # fmt: skip


async def test_a_type_of_its_own_gets_an_informer_of_its_own() -> None:
    """A5: two slices of one resource are two caches, and both run"""
    server = Server()
    factory = factory_over(server)
    pods, names = factory.informer(Codec(PODS, Pod)), factory.informer(Codec(PODS, Named))
    async with asyncio.TaskGroup() as tasks:
        factory.start(tasks)
        assert await factory.wait_for_cache_sync(1.0) == {"pods": True, "pods as Named": True}
        await factory.shut_down()
    assert isinstance(pods.indexer.get("ns/a"), Pod)
    assert isinstance(names.indexer.get("ns/a"), Named)


async def test_indices_that_a_shared_informer_lacks_are_added() -> None:
    """A5, ST-05"""
    factory = factory_over(Server())
    pods = factory.informer(Codec(PODS, Pod), indexers={"name": by_name})
    factory.informer(Codec(PODS, Pod), indexers={"name": by_name, "other": by_name})
    assert pods.indexer.has_index("other")


async def test_started_informers_sync_and_are_reported_by_name() -> None:
    """A5, wait_test.go:TestSyncResult"""
    factory = factory_over(Server())
    pods, services = factory.informer(Codec(PODS, Pod)), factory.informer(Codec(SERVICES, Service))
    told: list[str] = []
    registration = pods.add_event_handler(EventHandlerFuncs(on_add=lambda item, _: told.append(item.metadata.name)))
    async with asyncio.TaskGroup() as tasks:
        factory.start(tasks)
        assert await factory.wait_for_cache_sync(1.0) == {"pods": True, "services": True}
        await registration.wait_for_sync()
        await factory.shut_down()
        assert len(asyncio.all_tasks()) == 1
    assert pods.indexer.keys() == services.indexer.keys() == ["ns/a"]
    assert told == ["a"]


async def test_only_started_informers_are_waited_for_and_a_second_start_starts_the_new_ones() -> None:
    """A5"""
    server = Server()
    factory = factory_over(server)
    factory.informer(Codec(PODS, Pod))
    async with asyncio.TaskGroup() as tasks:
        factory.start(tasks)
        factory.informer(Codec(SERVICES, Service))
        assert await factory.wait_for_cache_sync(1.0) == {"pods": True}
        factory.start(tasks)
        assert await factory.wait_for_cache_sync(1.0) == {"pods": True, "services": True}
        await factory.shut_down()
    assert [request.path for request in server.requests] == ["/api/v1/pods", "/api/v1/services"]


async def test_a_cache_that_does_not_fill_in_time_is_named() -> None:
    """A12: a process whose cache does not fill must fail, not hang"""
    server = Server()
    server.stuck = True
    factory = factory_over(server)
    factory.informer(Codec(PODS, Pod))
    factory.informer(Codec(SERVICES, Service))
    async with asyncio.TaskGroup() as tasks:
        factory.start(tasks)
        with pytest.raises(CacheSyncTimeoutError, match="not synced after 120 s: services") as caught:
            await factory.wait_for_cache_sync(120.0)
        await factory.shut_down()
    assert caught.value.names == ["services"]
    assert isinstance(caught.value, TimeoutError)


async def test_an_informer_that_nobody_requires_is_not_waited_for() -> None:
    """A12: its resource may not exist. If it is asked for again as required, it is waited for."""
    server = Server()
    server.stuck = True
    factory = factory_over(server)
    factory.informer(Codec(PODS, Pod))
    services = factory.informer(Codec(SERVICES, Service), required=False)
    async with asyncio.TaskGroup() as tasks:
        factory.start(tasks)
        assert await factory.wait_for_cache_sync(1.0) == {"pods": True}
        assert not services.has_synced
        assert factory.informer(Codec(SERVICES, Service)) is services
        with pytest.raises(CacheSyncTimeoutError, match="services"):
            await factory.wait_for_cache_sync(1.0)
        await factory.shut_down()


async def test_an_informer_that_stopped_before_it_synced_is_reported_as_not_synced() -> None:
    """SI-08, wait_test.go:TestSyncResult"""
    server = Server()
    server.stuck = True
    factory = factory_over(server)
    factory.informer(Codec(PODS, Pod))
    services = factory.informer(Codec(SERVICES, Service))
    async with asyncio.TaskGroup() as tasks:
        factory.start(tasks)
        services.stop()
        assert await factory.wait_for_cache_sync(1.0) == {"pods": True, "services": False}
        await factory.shut_down()


async def test_nothing_starts_after_shut_down_began_and_shutting_down_twice_is_harmless() -> None:
    """A5"""
    server = Server()
    factory = factory_over(server)
    pods = factory.informer(Codec(PODS, Pod))
    async with asyncio.TaskGroup() as tasks:
        await factory.shut_down()
        factory.start(tasks)
        await factory.shut_down()
    assert server.requests == []
    with pytest.raises(InformerStoppedError):
        await pods.wait_for_sync()


@pytest.mark.parametrize(
    ("version", "number"), [("12", 12.0), ("", 0.0), ("opaque", 0.0), ("1" + "0" * 13 + "42", 42.0)]
)
def test_a_version_is_a_number_of_its_last_fifteen_digits(version: str, number: float) -> None:
    """A7"""
    assert version_as_number(version) == number


async def test_an_informer_counts_what_it_does() -> None:
    """A7, identity_test.go:TestWithResource"""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    provider = FakeMetrics()
    source = FakeSource(pod("a"), pod("b"))
    source.skipped = [Skipped(TypeError("bad"), "ns/y")]
    informer = SharedIndexInformer(source, PODS, name="pods/ns", metrics=provider, random=lambda: 0.0)
    informer.add_event_handler(EventHandlerFuncs[Pod](on_add=fail))
    async with settled(informer.run()):
        source.end_watches()  # short
        await settle(0.8)
        source.add(pod("c"))
        source.send(Skipped(TypeError("bad"), "ns/x", "14"))
        await asyncio.sleep(10.0)
        source.end_watches(status_error(500, "Boom"))
        await settle()
        series = provider
        assert series["reflector_last_resource_version"].read() == 14.0
        assert series["informer_store_resource_version"].read() == 14.0
        assert series["informer_store_objects"].read() == 3.0
        assert series["informer_queued_items"].read() == 0.0
    assert {key[1:] for key in provider.series} == {("pods/ns",)}
    assert series["reflector_lists_total"].count == 2
    assert series["reflector_items_per_list"].observed == [2, 2]
    assert series["reflector_watches_total"].count == 2
    assert series["reflector_short_watches_total"].count == 1
    assert series["reflector_items_per_watch"].observed == [0, 2]
    assert series["reflector_watch_duration_seconds"].observed[1] == pytest.approx(10.0, abs=0.01)
    assert series["reflector_failures_total"].count == 1
    assert series["informer_undecodable_objects_total"].count == 3  # in two lists, and in a watch
    assert series["informer_handler_errors_total"].count == 3
    assert series["reflector_list_duration_seconds"].observed == pytest.approx([0.0, 0.0])
    assert series["informer_processing_latency_seconds"].observed == pytest.approx([0.0, 0.0, 0.0])


@pytest.mark.parametrize("error", [status_error(403, "Forbidden"), ZeroDivisionError()], ids=["refused", "a bug"])
async def test_a_list_that_fails_is_counted(error: Exception) -> None:
    """A7"""
    provider = FakeMetrics()
    source = FakeSource(pod("a"))
    source.list_errors = [error]
    informer = SharedIndexInformer(source, PODS, metrics=provider)
    async with running(informer.run()):
        await settle()
    assert provider["reflector_failures_total"].count == 1
    assert provider["reflector_lists_total"].count == 0


async def test_a_streamed_list_that_is_lost_is_counted() -> None:
    """A7, RF-28: it is begun anew, so it has cost a list."""
    provider = FakeMetrics()
    source = FakeSource(pod("a"), streaming=True)
    source.initial_events = [[Added(pod("a"))]]
    informer = SharedIndexInformer(source, PODS, metrics=provider)
    async with settled(informer.run()):
        source.end_watches(ConnectionLostError("cut"))
        await settle()
    assert provider["reflector_failures_total"].count == 1
    assert provider["reflector_lists_total"].count == 0


async def test_a_collection_that_was_streamed_counts_as_a_list_and_its_stream_as_a_watch() -> None:
    """A7, RF-27: dashboards go on to show how often, how long and how much"""
    provider = FakeMetrics()
    source = FakeSource(pod("a"), pod("b"), streaming=True)
    source.initial_events = [[]]
    informer = SharedIndexInformer(source, PODS, metrics=provider)
    async with running(informer.run()):
        await asyncio.sleep(5.0)
        assert provider["reflector_lists_total"].count == 0
        source.end_watches(status_error(500, "Boom"))
        await settle()
        source.end_watches(expired())
        await asyncio.sleep(10.0)
        source.end_watches()
        await settle()
    series = provider
    assert series["reflector_lists_total"].count == 2
    assert series["reflector_items_per_list"].observed == [2, 2]
    assert series["reflector_watches_total"].count == 3
    assert series["reflector_items_per_watch"].observed == [0, 0, 3]  # no event; none; two objects and their bookmark
