"""A test of the controller of Spreads in simulated clusters with faults."""

import asyncio
from typing import Any

import spread
from kubecontrollers import ConfigMap, Namespace
from kubecontrollers.testing.cluster import Cluster, Simulate

SPREADS = spread.Spread.resource


async def controller(cluster: Cluster) -> None:
    """Run the controller until it is cancelled."""
    await spread.app.run(transport=cluster.transport(), clock=cluster.clock, stop=asyncio.Event())


def a_spread(name: str, *namespaces: str) -> dict[str, Any]:
    """Return a Spread over these namespaces."""
    head = {"apiVersion": SPREADS.api_version, "kind": SPREADS.kind, "metadata": {"name": name}}
    return head | {"spec": {"namespaces": namespaces, "data": {"x": "1"}}}


async def users(cluster: Cluster) -> None:
    """Create, change and delete Spreads and a child, and say what must hold in the end."""
    client = cluster.client
    for name in ("one", "two", "three"):
        await client.create(Namespace.resource, "", {"metadata": {"name": name}})
    await client.create(ConfigMap.resource, "two", {"metadata": {"name": "c"}, "data": {"theirs": "1"}})
    await client.create(SPREADS, "default", a_spread("a", "one", "two"))
    await client.create(SPREADS, "default", a_spread("b", "one", "two"))
    await client.create(SPREADS, "default", a_spread("c", "one", "two"))
    await client.patch(
        SPREADS, "default", "a", {"spec": {"namespaces": ["two", "three"], "data": {"x": None, "y": "2"}}}
    )
    await client.delete(SPREADS, "default", "b")
    await cluster.settle()
    await client.delete(ConfigMap.resource, "three", "a")
    await cluster.settle()
    found = {
        (each["metadata"]["namespace"], each["metadata"]["name"]): each["data"]
        for each in cluster.list(ConfigMap.resource)
    }
    theirs = {("two", "c"): {"theirs": "1"}}
    assert found == {("two", "a"): {"y": "2"}, ("three", "a"): {"y": "2"}, ("one", "c"): {"x": "1"}} | theirs


def test_children_are_where_the_spec_says(simulate: Simulate) -> None:
    """Whatever is lost, late or killed."""
    simulate(controller, users, kinds=[SPREADS])
