"""The example of the guide, with the library as others have it, on the model API server."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.cluster import ModelCluster, UnreliableTransport
from hack.library import NAME
from kit.virtual_loop import VirtualClock
from support.library import example, library
from tfjob_operator.api.client import ListOptions
from tfjob_operator.api.core import CONFIG_MAPS, EVENTS
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
