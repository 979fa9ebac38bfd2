"""The factory of informers, over the model of an API server; and the metrics of informers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fakes.cluster import UnreliableTransport
from fakes.metrics import FakeMetrics
from fakes.objects import Pod, Service
from fakes.source import FakeSource, expired, pod, settle, settled, status_error
from kit.model.server import ModelServer
from kit.model.versions import OLDEST
from simulation.kinds import KINDS_WITH_TFJOBS
from support.cases import for_each
from tfjob_operator.api.client.errors import ConnectionLostError
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.meta import ObjectMeta, Struct
from tfjob_operator.api.protobuf import METADATA
from tfjob_operator.informers import (
    CacheSyncTimeoutError,
    Codec,
    EventHandlerFuncs,
    IndexerError,
    InformerNotStartedError,
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


def connected(silent_for: str | None = None) -> UnreliableTransport:
    """Return a connection to a server with a pod and a service."""
    server = ModelServer(kinds=KINDS_WITH_TFJOBS, kubernetes=OLDEST)
    for path, name in (("", "ns"), ("/ns/pods", "a"), ("/ns/services", "a")):
        body = {"metadata": {"name": name}, "spec": {"containers": []}}
        assert server.ask("user", "POST", f"/api/v1/namespaces{path}", body) == 201
    line = UnreliableTransport(server)
    line.silent_for = silent_for
    return line


def factory_over(line: UnreliableTransport) -> SharedInformerFactory:
    """A factory over this line."""
    return SharedInformerFactory(RestClient(line))


@asynccontextmanager
async def started(factory: SharedInformerFactory) -> AsyncIterator[asyncio.TaskGroup]:
    """Run the informers that are there, until the end of the block."""
    async with asyncio.TaskGroup() as tasks:
        factory.start(tasks)
        yield tasks
        await factory.shut_down()
    assert len(asyncio.all_tasks()) == 1


def by_name(item: Pod) -> Sequence[str]:
    """An index function."""
    return [item.metadata.name]


async def test_the_same_question_gets_the_same_informer() -> None:
    """A5, ST-05: indices that a shared informer lacks are added."""
    factory = factory_over(connected())
    pods = factory.informer(Codec(PODS, Pod), label_selector="app=web", indexers={"name": by_name})
    shared = factory.informer(Codec(PODS, Pod), label_selector="app=web", indexers={"name": by_name, "other": by_name})
    assert shared is pods
    assert pods.indexer.has_index("other")
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


async def test_started_informers_sync_and_are_reported_by_name() -> None:
    """A5, wait_test.go:TestSyncResult: two slices of one resource are two caches, and both run."""
    factory = factory_over(connected())
    pods, services = factory.informer(Codec(PODS, Pod)), factory.informer(Codec(SERVICES, Service))
    names = factory.informer(Codec(PODS, Named))
    told: list[str] = []
    registration = pods.add_event_handler(EventHandlerFuncs(on_add=lambda item, _: told.append(item.metadata.name)))
    async with started(factory):
        assert await factory.wait_for_cache_sync(1.0) == {"pods": True, "services": True, "pods as Named": True}
        await registration.wait_for_sync()
    assert pods.indexer.keys() == services.indexer.keys() == ["ns/a"]
    assert isinstance(pods.indexer.get("ns/a"), Pod)
    assert isinstance(names.indexer.get("ns/a"), Named)
    assert told == ["a"]


async def test_a_cache_that_nobody_fills_is_neither_waited_for_nor_read_and_a_second_start_fills_it() -> None:
    """ST-13: client-go returns at once, and reads an empty cache, which a controller takes for an empty cluster."""
    line = connected()
    factory = factory_over(line)
    factory.informer(Codec(PODS, Pod))
    async with started(factory) as tasks:
        assert await factory.wait_for_cache_sync(1.0) == {"pods": True}
        services = factory.informer(Codec(SERVICES, Service))
        with pytest.raises(InformerNotStartedError, match="call start first: services"):
            await factory.wait_for_cache_sync(1.0)
        assert [*{request.path: None for request in line.requests}] == ["/api/v1/pods"]
        for read in (
            lambda: services.indexer.get("ns/a"),
            lambda: "ns/a" in services.indexer,
            services.indexer.list,
            services.indexer.items,
            services.indexer.keys,
            lambda: services.indexer.has(ObjectMeta(name="a", namespace="ns")),
            lambda: services.indexer.by_index("namespace", "ns"),
            services.lister().list,
            lambda: services.lister().namespaced("ns").get("a"),
        ):
            with pytest.raises(InformerNotStartedError, match="the cache would be empty forever"):
                read()
        factory.start(tasks)
        assert await factory.wait_for_cache_sync(1.0) == {"pods": True, "services": True}
    assert [*{request.path: None for request in line.requests}] == ["/api/v1/pods", "/api/v1/services"]


async def test_a_cache_that_does_not_fill_in_time_is_named_unless_nobody_requires_it() -> None:
    """A12: a process whose cache does not fill must fail, not hang. A resource that nobody requires may not exist."""
    factory = factory_over(connected(silent_for="/services"))
    factory.informer(Codec(PODS, Pod))
    services = factory.informer(Codec(SERVICES, Service), required=False)
    async with started(factory):
        assert await factory.wait_for_cache_sync(1.0) == {"pods": True}
        assert not services.has_synced
        assert factory.informer(Codec(SERVICES, Service)) is services
        with pytest.raises(CacheSyncTimeoutError, match="not synced after 120 s: services") as caught:
            await factory.wait_for_cache_sync(120.0)
    assert caught.value.names == ["services"]
    assert isinstance(caught.value, TimeoutError)


async def test_an_informer_that_stopped_before_it_synced_is_reported_as_not_synced() -> None:
    """SI-08, wait_test.go:TestSyncResult"""
    factory = factory_over(connected(silent_for="/services"))
    factory.informer(Codec(PODS, Pod))
    services = factory.informer(Codec(SERVICES, Service))
    async with started(factory):
        services.stop()
        assert await factory.wait_for_cache_sync(1.0) == {"pods": True, "services": False}


async def test_nothing_starts_after_shut_down_began_and_shutting_down_twice_is_harmless() -> None:
    """A5"""
    line = connected()
    factory = factory_over(line)
    pods = factory.informer(Codec(PODS, Pod))
    await factory.shut_down()
    async with started(factory):
        pass
    assert not line.requests
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

    source, series = FakeSource(pod("a"), pod("b"), skipped=[Skipped(TypeError("bad"), "ns/y")]), FakeMetrics()
    informer = SharedIndexInformer(source, PODS, name="pods/ns", metrics=series, random=lambda: 0.0)
    informer.add_event_handler(EventHandlerFuncs[Pod](on_add=fail))
    async with settled(informer.run()):
        source.end_watches()  # short
        await settle(0.8)
        source.add(pod("c"))
        source.send(Skipped(TypeError("bad"), "ns/x", "14"))
        await asyncio.sleep(10.0)
        source.end_watches(status_error(500, "Boom"))
        await settle()
        assert series["reflector_last_resource_version"].read() == 14.0
        assert series["informer_store_resource_version"].read() == 14.0
        assert series["informer_store_objects"].read() == 3.0
        assert series["informer_queued_items"].read() == 0.0
    assert {key[1:] for key in series.series} == {("pods/ns",)}
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


LOST: dict[str, Any] = {"streaming": True, "initial_events": [[Added(pod("a"))]]}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"list_errors": [status_error(403, "Forbidden")]}, id="refused"),
        pytest.param({"list_errors": [ZeroDivisionError()]}, id="a bug"),
        pytest.param(LOST, id="a stream that is lost, and begun anew"),
    ],
)
async def test_a_list_that_fails_is_counted(given: dict[str, Any]) -> None:
    """A7, RF-28"""
    source, series = FakeSource(pod("a"), **given), FakeMetrics()
    async with settled(SharedIndexInformer(source, PODS, metrics=series).run()):
        source.end_watches(ConnectionLostError("cut"))
        await settle()
    assert (series["reflector_failures_total"].count, series["reflector_lists_total"].count) == (1, 0)


async def test_a_collection_that_was_streamed_counts_as_a_list_and_its_stream_as_a_watch() -> None:
    """A7, RF-27: dashboards go on to show how often, how long and how much"""
    source, series = FakeSource(pod("a"), pod("b"), streaming=True, initial_events=[[]]), FakeMetrics()
    async with settled(SharedIndexInformer(source, PODS, metrics=series).run()):
        await asyncio.sleep(5.0)
        assert series["reflector_lists_total"].count == 0
        source.end_watches(status_error(500, "Boom"))
        await settle()
        source.end_watches(expired())
        await asyncio.sleep(10.0)
        source.end_watches()
        await settle()
    assert series["reflector_lists_total"].count == 2
    assert series["reflector_items_per_list"].observed == [2, 2]
    assert series["reflector_watches_total"].count == 3
    assert series["reflector_items_per_watch"].observed == [0, 0, 3]  # no event; none; two objects and their bookmark


async def test_a_second_request_for_an_informer_that_would_not_get_what_it_asks_for_is_refused() -> None:
    """One informer serves all requests: hooks, resync period and index functions are those of the first."""
    factory = factory_over(connected())
    ours = factory.informer(Codec(PODS, Pod), resync_s=60.0, indexers={"name": by_pod_name})
    assert factory.informer(Codec(PODS, Pod), indexers={"name": by_pod_name, "more": by_pod_name}) is ours
    for codec, resync_s in (
        (Codec(PODS, Pod, on_undecodable=substitute), 0.0),
        (Codec(PODS, Pod, message=METADATA), 0.0),
        (Codec(PODS, Pod), 30.0),
    ):
        with pytest.raises(ValueError, match="informer pods exists with other hooks of its codec, or another resync_s"):
            factory.informer(codec, resync_s=resync_s)
    with pytest.raises(IndexerError, match="another function for the index name"):
        factory.informer(Codec(PODS, Pod), indexers={"name": lambda item: (item.metadata.uid,)})


def by_pod_name(item: Pod) -> tuple[str]:
    return (item.metadata.name,)


def substitute(_raw: bytes, _error: Exception) -> Pod:
    return pod("substitute")


@for_each("namespace", ["a,b", "*", "Team", "-a", "a" * 64])
async def test_an_informer_of_a_namespace_that_cannot_exist_is_refused(namespace: str) -> None:
    """It would sync at once, and be empty for ever."""
    with pytest.raises(ValueError, match="is not a namespace"):
        factory_over(connected()).informer(Codec(PODS, Pod), namespace=namespace)
