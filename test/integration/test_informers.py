"""The informers against a real API server: it does what the fakes of the unit tests assume of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest

from hack.control_plane import ControlPlane
from support.waiting import until
from tfjob_operator.api.client import HttpTransport, ListOptions, Request, Response, RestClient, Settings, load_settings
from tfjob_operator.api.client.errors import NoStatusError, NotFoundError
from tfjob_operator.api.client.http import OnLeave, unchanged
from tfjob_operator.api.meta import Object, ObjectMeta, Resource, Struct
from tfjob_operator.informers import Codec, ListWatch, ReflectorOptions, SharedInformerFactory, Tombstone, object_of
from tfjob_operator.informers.codec import Page
from tfjob_operator.informers.listwatch import Pager

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
OURS = "metadata.name!=kube-root-ca.crt"  # a config map that the server puts into every namespace
PATIENCE_S = 30.0  # for what takes a second on a machine that does nothing else


class ConfigMap(Struct, frozen=True):
    """A config map with its data."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


class FaultyTransport:
    """Passes requests on and records reads. Can cut watches, and make the next watch begin in the distant past."""

    def __init__(self, inner: HttpTransport) -> None:
        self.reads: list[str] = []
        """The reads so far in their order, each `list` or `watch`."""
        self.forget_once = False
        self._inner = inner
        self._streams: list[Response] = []

    def cut_watches(self) -> None:
        """Break every open watch, as a proxy does that dies."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        watch = "watch" in request.query
        if request.method == "GET":
            self.reads.append("watch" if watch else "list")
        if watch and self.forget_once:
            self.forget_once = False
            request = replace(request, query={**request.query, "resourceVersion": "1"})
        response = await self._inner.send(request, on_leave)
        if watch:
            self._streams.append(response)
        return response


class ConfigMapsOfATest:
    """One namespace of a real API server."""

    def __init__(self, plane: ControlPlane, namespace: str, transport: FaultyTransport) -> None:
        self.plane = plane
        self.namespace = namespace
        self.transport = transport
        self.client = RestClient(transport)

    async def put(self, name: str, **data: str) -> None:
        """Create a config map."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        await self.client.create(CONFIG_MAPS, self.namespace, body)

    async def change(self, name: str, **data: str) -> None:
        """Change a config map."""
        await self.client.patch(CONFIG_MAPS, self.namespace, name, {"data": data})

    async def delete(self, name: str) -> None:
        """Delete a config map."""
        await self.client.delete(CONFIG_MAPS, self.namespace, name)

    def config_maps(self) -> ListWatch[ConfigMap]:
        """A ListWatch of the config maps of this namespace, without the one that the server makes itself."""
        return ListWatch(self.client, Codec(CONFIG_MAPS, ConfigMap), namespace=self.namespace, field_selector=OURS)


class Recorder:
    """A handler that records its notifications."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_add(self, item: Object, _is_in_initial_list: bool, /) -> None:
        self.told.append(f"add {item.metadata.name}")

    def on_update(self, _old: Object, new: Object, /) -> None:
        self.told.append(f"update {new.metadata.name}")

    def on_delete(self, item: Object | Tombstone[Object], /) -> None:
        what = "tombstone" if isinstance(item, Tombstone) else "delete"
        self.told.append(f"{what} {object_of(item).metadata.name}")


@pytest.fixture
def settings(control_plane: ControlPlane) -> Settings:
    """How to reach the server; read here because that blocks."""
    return load_settings(str(control_plane.kubeconfig))


@asynccontextmanager
async def cluster(settings: Settings, plane: ControlPlane, namespace: str) -> AsyncIterator[ConfigMapsOfATest]:
    """Connections of our own on the running loop."""
    async with HttpTransport(settings) as transport:
        yield ConfigMapsOfATest(plane, namespace, FaultyTransport(transport))


def factory_over(it: ConfigMapsOfATest) -> SharedInformerFactory:
    """A factory of informers that list and watch, as works on every server; `test_streaming_lists` has streaming lists."""
    return SharedInformerFactory(it.client, options=ReflectorOptions(stream_lists=False))


@asynccontextmanager
async def running(factory: SharedInformerFactory) -> AsyncIterator[None]:
    """Run the informers of a factory until the block ends."""
    async with asyncio.TaskGroup() as tasks:
        factory.start(tasks)
        try:
            await factory.wait_for_cache_sync(PATIENCE_S)
            yield
        finally:
            await factory.shut_down()


class Widget(Struct, frozen=True):
    """A custom resource. `error` is set for one that did not decode."""

    metadata: ObjectMeta
    size: int = 0
    error: str = ""


def keep_as_invalid(raw: bytes, error: Exception) -> Widget:
    """Make a widget of one that cannot be decoded, with the error in it."""
    return Widget(metadata=msgspec.json.decode(raw, type=Identified).metadata, error=str(error))


class Identified(Struct, frozen=True):
    """The metadata of an object and nothing else."""

    metadata: ObjectMeta


async def create_widget_crd(it: ConfigMapsOfATest) -> Resource:
    """Create a kind whose objects the server does not validate, in a group of its own."""
    group = f"{it.namespace}.example.com"
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    await it.client.create(CRDS, "", body)
    widgets = Resource(group, "v1", "widgets", "Widget")
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await it.client.list_page(widgets, ListOptions(namespace=it.namespace))
            except (NotFoundError, NoStatusError):  # an API that the server does not have yet has no Status
                await asyncio.sleep(0.1)
            else:
                return widgets


async def put_widget(it: ConfigMapsOfATest, widgets: Resource, name: str, size: object = 1) -> None:
    """Create a widget; with a `size` that is no integer it cannot be decoded."""
    body = {"apiVersion": widgets.api_version, "kind": "Widget", "metadata": {"name": name}, "size": size}
    await it.client.create(widgets, it.namespace, body)


async def test_a_cache_fills_and_follows(settings: Settings, control_plane: ControlPlane, namespace: str) -> None:
    """RF-01, SI-01, SI-07"""
    async with cluster(settings, control_plane, namespace) as it:
        await it.put("before", color="red")
        factory, handler = factory_over(it), Recorder()
        informer = factory.informer(
            Codec(CONFIG_MAPS, ConfigMap),
            namespace=namespace,
            field_selector=OURS,
            indexers={"color": lambda item: [(item.data or {}).get("color", "")]},
        )
        registration = informer.add_event_handler(handler)
        async with running(factory):
            await registration.wait_for_sync()
            assert handler.told == ["add before"]
            await it.put("after", color="blue")
            await it.change("before", color="blue")
            await it.delete("after")
            await until(lambda: "delete after" in handler.told)
            assert handler.told == ["add before", "add after", "update before", "delete after"]
            assert [item.metadata.name for item in informer.indexer.by_index("color", "blue")] == ["before"]
            live = msgspec.json.decode(await it.client.get(CONFIG_MAPS, namespace, "before"), type=ConfigMap)
            assert informer.lister().namespaced(namespace).get("before") == live
        assert it.transport.reads == ["list", "watch", "list"]  # the last one is our own get


async def test_pages_are_one_snapshot_and_a_token_that_expires_leads_to_a_full_list(
    settings: Settings, control_plane: ControlPlane, namespace: str
) -> None:
    """RF-08, SV-05"""
    async with cluster(settings, control_plane, namespace) as it:
        for number in range(25):
            await it.put(f"m{number:02}")
        pager = Pager(it.config_maps())
        page, in_pages = await pager.list(ListOptions(), 10)
        assert in_pages
        assert len(page.items) == 25
        assert it.transport.reads == ["list"] * 3

        it.transport.reads.clear()
        compacting = CompactAfterFirstPage(it)
        page, in_pages = await Pager(compacting).list(ListOptions(), 10)
        assert in_pages
        assert len(page.items) == 26
        assert it.transport.reads == ["list"] * 3, "a page, a token that is refused, and everything at once"


class CompactAfterFirstPage:
    """Lists config maps; after the first page it creates another one and makes the server forget all earlier versions."""

    def __init__(self, it: ConfigMapsOfATest) -> None:
        self._it = it
        self._inner = it.config_maps()
        self.watch = self._inner.watch

    async def list(self, options: ListOptions) -> Page[ConfigMap]:
        page = await self._inner.list(options)
        if page.continue_token:
            await self._it.put("late")
            revision = (await self._inner.list(ListOptions())).resource_version
            self._it.transport.reads.pop()  # that list was our own
            await asyncio.to_thread(self._it.plane.forget_before, int(revision))
        return page


async def test_a_stream_that_is_cut_is_resumed_without_a_list_and_without_a_loss(
    settings: Settings, control_plane: ControlPlane, namespace: str
) -> None:
    """RF-14: everything that happened in the gap is told once, in order"""
    async with cluster(settings, control_plane, namespace) as it:
        factory, handler = factory_over(it), Recorder()
        factory.informer(Codec(CONFIG_MAPS, ConfigMap), namespace=namespace, field_selector=OURS).add_event_handler(
            handler
        )
        async with running(factory):
            await it.put("a")
            await until(lambda: "add a" in handler.told)
            it.transport.cut_watches()
            await it.put("b")
            await it.delete("a")
            await until(lambda: "delete a" in handler.told)
            assert handler.told == ["add a", "add b", "delete a"]
        assert it.transport.reads == ["list", "watch", "watch"]


async def test_a_version_that_is_too_old_leads_to_a_list(
    settings: Settings, control_plane: ControlPlane, namespace: str
) -> None:
    """RF-16, SV-04: a real 410, and what was missed becomes a tombstone"""
    async with cluster(settings, control_plane, namespace) as it:
        widgets = await create_widget_crd(it)  # the server's cache of a new kind knows nothing of the past
        await put_widget(it, widgets, "a")
        factory, handler = factory_over(it), Recorder()
        informer = factory.informer(Codec(widgets, Widget))
        informer.add_event_handler(handler)
        it.transport.reads.clear()
        async with running(factory):
            await put_widget(it, widgets, "b")
            await until(lambda: "add b" in handler.told)
            it.transport.forget_once = True
            it.transport.cut_watches()
            await it.client.delete(widgets, namespace, "a")
            await until(lambda: len(informer.indexer) == 1)
            await put_widget(it, widgets, "c")
            await until(lambda: "add c" in handler.told)
            assert handler.told == ["add a", "add b", "tombstone a", "add c"]
        assert it.transport.reads == ["list", "watch", "watch", "list", "watch"]
        await it.client.delete(CRDS, "", f"widgets.{widgets.group}")


async def test_a_poisoned_object_blocks_nobody(settings: Settings, control_plane: ControlPlane, namespace: str) -> None:
    """B01: a text where a number belongs, in the list and in the watch"""
    async with cluster(settings, control_plane, namespace) as it:
        widgets = await create_widget_crd(it)

        await put_widget(it, widgets, "good")
        await put_widget(it, widgets, "bad", "one")
        factory, handler = factory_over(it), Recorder()
        kept = factory.informer(Codec(widgets, Widget, on_undecodable=keep_as_invalid))
        skipped = factory.informer(Codec(widgets, Widget), namespace=namespace)
        skipped.add_event_handler(handler)
        async with running(factory):
            await put_widget(it, widgets, "worse", [2])
            await put_widget(it, widgets, "last", 3)
            await it.client.delete(widgets, namespace, "bad")
            await until(lambda: "add last" in handler.told)
            await until(lambda: f"{namespace}/bad" not in kept.indexer)
            invalid = kept.indexer.get(f"{namespace}/worse")
            assert invalid is not None
            assert "$.size" in invalid.error
            assert sorted(kept.indexer.keys()) == [f"{namespace}/{name}" for name in ("good", "last", "worse")]
            assert sorted(skipped.indexer.keys()) == [f"{namespace}/{name}" for name in ("good", "last")]
        await it.client.delete(CRDS, "", f"widgets.{widgets.group}")
