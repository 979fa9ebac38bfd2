"""The example of the guide, with the library as others have it, on the model API server."""

import asyncio
import importlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from fakes.cluster import ModelCluster, UnreliableTransport
from hack.library import NAME
from kit.model.kinds import NAMESPACES
from kit.model.kinds import Kind as ModelKind
from kit.model.server import ModelServer
from kit.model.transport import ModelTransport
from kit.virtual_loop import VirtualClock
from support.library import example, library
from tfjob_operator.api.client import ListOptions
from tfjob_operator.api.core import CONFIG_MAPS, DEPLOYMENTS, EVENTS
from tfjob_operator.api.meta import ObjectMeta, Resource, controller_reference

ROOT = Path(__file__).parents[2]
KETTLES = Resource("example.com", "v1", "kettles", "Kettle")


class Bench(ModelCluster[Any]):
    """The user's cluster, on which the example runs with its own client."""

    def __init__(self) -> None:
        super().__init__("ns")
        self.mirror = example("mirror")

    async def create(self, name: str, *owners: dict[str, Any], **labels: str) -> None:
        meta = {"name": name, "labels": labels, "ownerReferences": [*owners]}
        await self.client.create(CONFIG_MAPS, "ns", {"metadata": meta, "data": {"x": "1"}})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.begin()
        transport, clock = UnreliableTransport(self.server, "mirror"), VirtualClock()
        client = self.mirror.RestClient(transport, clock=clock)
        informers = self.mirror.SharedInformerFactory(client, clock=clock)
        recorder = self.mirror.EventRecorder(client, component="mirror", clock=clock)
        controller = self.mirror.Mirror(client, informers, recorder).controller
        stop = asyncio.Event()
        task = asyncio.create_task(self.mirror.Manager(informers, controller, recorder=recorder, stop=stop).run())
        await asyncio.sleep(1.0)
        yield
        stop.set()
        await task


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_the_example_ends_with_its_manager(bench: Bench) -> None:
    async with bench.running():
        await bench.create("a", mirror="yes")
        await asyncio.sleep(1.0)
        assert bench.names("configmaps") == ["a", "a-mirror"]
    await bench.create("b", mirror="yes")
    await asyncio.sleep(60.0)
    assert "b-mirror" not in bench.names("configmaps")


async def test_the_example_leaves_alone_what_is_not_its_own_and_says_so(bench: Bench) -> None:
    """As sample-controller: the object of another is neither changed nor taken over, until it is gone."""
    async with bench.running():
        await bench.client.create(CONFIG_MAPS, "ns", {"metadata": {"name": "a-mirror"}, "data": {"theirs": "1"}})
        await bench.create("a", mirror="yes")
        await asyncio.sleep(60.0)
        assert bench.body("configmaps", "a-mirror")["data"] == {"theirs": "1"}
        listed = await bench.client.list_page(EVENTS, ListOptions("ns"), dict[str, Any])
        assert [(each["involvedObject"]["name"], each["reason"], each["count"]) for each in listed["items"]] == [
            ("a", "ErrResourceExists", 1)
        ]
        await bench.client.delete(CONFIG_MAPS, "ns", "a-mirror")
        await asyncio.sleep(1.0)
        assert bench.body("configmaps", "a-mirror")["data"] == {"x": "1"}


async def test_the_example_mirrors_a_source_that_has_a_controller_of_its_own(bench: Bench) -> None:
    async with bench.running():
        await bench.create(
            "a", controller_reference(KETTLES, ObjectMeta(name="blue", namespace="ns", uid="7")), mirror="yes"
        )
        await asyncio.sleep(1.0)
        (owner,) = bench.body("configmaps", "a-mirror")["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (bench.body("configmaps", "a")["metadata"]["uid"], True)
        await bench.client.patch(CONFIG_MAPS, "ns", "a", {"data": {"x": "2"}})
        await bench.client.patch(CONFIG_MAPS, "ns", "a-mirror", {"data": {"x": "3"}})
        await asyncio.sleep(1.0)
        assert bench.body("configmaps", "a-mirror")["data"] == {"x": "2"}


async def test_the_example_makes_no_copy_of_a_source_that_is_being_deleted(bench: Bench) -> None:
    """In a foreground deletion the copy is deleted first; a new one would hold up the source."""
    async with bench.running():
        await bench.create("a", mirror="yes")
        await asyncio.sleep(1.0)
        await bench.client.patch(CONFIG_MAPS, "ns", "a", {"metadata": {"finalizers": ["example.com/hold"]}})
        await bench.client.delete(CONFIG_MAPS, "ns", "a")
        await bench.client.delete(CONFIG_MAPS, "ns", "a-mirror")
        await asyncio.sleep(60.0)
        assert bench.names("configmaps") == ["a"]


class KopfProgram:
    """hack/examples/website_kopf.py, whose modules kopf and kubernetes only note what it applies."""

    def __init__(self, mocker: MockerFixture) -> None:
        def adopt(body: dict[str, Any]) -> None:
            body["metadata"]["ownerReferences"] = [self.owner | {"controller": True, "blockOwnerDeletion": True}]
            body["metadata"]["labels"]["team"] = "web"  # the Website's own label

        kopf, kubernetes = mocker.MagicMock(), mocker.MagicMock()
        for name in ("startup", "resume", "create", "update", "delete", "event"):
            getattr(kopf.on, name).return_value = lambda function: function
        kopf.adopt = adopt
        exceptions = mocker.MagicMock(ApiException=Exception)
        self.apps, self.core = kubernetes.client.AppsV1Api.return_value, kubernetes.client.CoreV1Api.return_value
        self.owner: dict[str, Any] = {}
        modules = {"kopf": kopf, "kubernetes": kubernetes, "kubernetes.client.exceptions": exceptions}
        mocker.patch.dict(sys.modules, modules)
        sys.modules.pop("hack.examples.website_kopf", None)
        self.module = importlib.import_module("hack.examples.website_kopf")

    async def store(self, server: ModelServer, website: dict[str, Any]) -> None:
        """Apply what the program applies for a Website, in the name of its field manager."""
        meta = website["metadata"]
        self.owner = {each: website[each] for each in ("apiVersion", "kind")} | {
            each: meta[each] for each in ("name", "uid")
        }
        spec = website["spec"] | {"image": "nginx:0"}
        self.module.apply(name=meta["name"], namespace=meta["namespace"], spec=spec, body=website, reason="resume")
        for resource, call in (
            (DEPLOYMENTS, self.apps.patch_namespaced_deployment),
            (CONFIG_MAPS, self.core.patch_namespaced_config_map),
        ):
            name, namespace, body = call.call_args.args
            client = ModelCluster.client_on(ModelTransport(server, "kopf"), call.call_args.kwargs["field_manager"])
            await client.apply(resource, namespace, name, body)


class WebsiteBench(ModelCluster[Any]):
    """The cluster of somebody who replaces the kopf program by the other one."""

    def __init__(self) -> None:
        super().__init__("ns")
        self.program = example("website")
        self.resource = self.program.Website.resource

    async def start(self, kopf: KopfProgram) -> dict[str, Any]:
        """Store a Website and what the kopf program has made for it."""
        self.server.define(ModelKind(self.resource, status=True, custom=True))
        await self.begin()
        await self.client.create(NAMESPACES, "", {"metadata": {"name": "dns"}})
        head = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        meta = {"name": "blog", "labels": {"team": "web"}, "finalizers": ["example.com/dns"]}
        spec = {"image": "nginx:1", "replicas": 2}
        body = head | {"metadata": meta, "spec": spec}
        website: dict[str, Any] = await self.client.create(self.resource, "ns", body, dict[str, Any])
        await kopf.store(self.server, website)
        return website

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        transport = UnreliableTransport(self.server, "website")
        task = asyncio.create_task(self.program.app.run(stop=stop, transport=transport, clock=VirtualClock()))
        await asyncio.sleep(60.0)
        try:
            yield
        finally:
            stop.set()
            await task

    async def events(self) -> list[tuple[str, str]]:
        listed = await self.client.list_page(EVENTS, ListOptions("ns"), dict[str, Any])
        return [(each["involvedObject"]["name"], each["reason"]) for each in listed["items"]]


async def test_the_program_with_kopf_is_replaced_as_the_page_says(mocker: MockerFixture) -> None:
    """Children, record, status and finalizer of an existing Website go over to docs/from-kopf.md's other program."""
    bench, kopf = WebsiteBench(), KopfProgram(mocker)
    await bench.start(kopf)
    assert bench.body("deployments", "blog")["spec"]["selector"] == {"matchLabels": {"website": "blog"}}, "immutable"
    async with bench.running():
        assert bench.body("websites", "blog")["status"]["conditions"][0]["reason"] == "Replicas"
        assert await bench.events() == []
        deployment = bench.body("deployments", "blog")
        assert deployment["metadata"]["labels"] == {"website": "blog"}
        assert deployment["spec"]["template"]["spec"]["containers"] == [{"name": "web", "image": "nginx:1"}]
        assert [each["manager"] for each in deployment["metadata"]["managedFields"]] == ["website-operator"]
        await bench.client.delete(bench.resource, "ns", "blog")
        await asyncio.sleep(60.0)
    assert bench.names("websites") == []
    assert bench.server.storage.collections["configmaps"].objects == {}


async def test_a_record_without_the_label_stays_and_the_user_learns_why(mocker: MockerFixture) -> None:
    """The record of another, or of a program that did not label it."""
    bench, kopf = WebsiteBench(), KopfProgram(mocker)
    await bench.start(kopf)
    await bench.client.patch(CONFIG_MAPS, "dns", "ns.blog", {"metadata": {"labels": None}})
    async with bench.running():
        (condition,) = bench.body("websites", "blog")["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "ErrResourceExists")
        assert await bench.events() == [("blog", "ErrResourceExists")]
        await bench.client.delete(bench.resource, "ns", "blog")
        await asyncio.sleep(60.0)
        assert bench.names("websites") == []
        assert await bench.events() == [("blog", "ErrResourceExists"), ("blog", "RecordLeft")]
    assert [*bench.server.storage.collections["configmaps"].objects] == [("dns", "ns.blog")]


def test_the_tests_of_the_examples_pass_with_the_library_as_others_have_it() -> None:
    """With the plugin of pytest, and without any part of this repository."""
    environment = {**os.environ, "PYTHONPATH": str(library())}
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        f"{NAME}.testing.plugin",
        "-c",
        os.devnull,
    )
    done = subprocess.run(
        [*command, str(ROOT / "hack" / "examples")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
