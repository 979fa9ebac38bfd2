"""A test of the example controller in simulated clusters with faults; docs/write-a-controller.md explains it."""

import asyncio

import mirror
from kubecontrollers.api.core import CONFIG_MAPS
from kubecontrollers.testing.cluster import Cluster, Simulate


async def controller(cluster: Cluster) -> None:
    """Run the controller until it is cancelled."""
    await mirror.run(cluster.transport(), stop=asyncio.Event())


async def users(cluster: Cluster) -> None:
    """Create, change and delete sources and copies, and say what must hold in the end."""
    client = cluster.client
    await client.create(CONFIG_MAPS, "default", {"metadata": {"name": "c-mirror"}, "data": {"theirs": "1"}})
    for name in ("a", "b", "c"):
        metadata = {"name": name, "labels": {"mirror": "yes"}}
        await client.create(CONFIG_MAPS, "default", {"metadata": metadata, "data": {"x": "1"}})
    await client.patch(CONFIG_MAPS, "default", "a", {"data": {"x": "2", "y": "3"}})
    await client.delete(CONFIG_MAPS, "default", "b")
    await cluster.settle()
    found = {each["metadata"]["name"]: each["data"] for each in cluster.list(CONFIG_MAPS)}
    new = {"x": "2", "y": "3"}
    assert found == {"a": new, "a-mirror": new, "c": {"x": "1"}, "c-mirror": {"theirs": "1"}}


def test_copies_follow_their_sources(simulate: Simulate) -> None:
    """Whatever is lost, late or killed."""
    simulate(controller, users, seeds=50)
