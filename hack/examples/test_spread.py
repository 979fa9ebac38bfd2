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
    """Create, change and delete Spreads and children, and say what must hold in the end."""
    client = cluster.client
    for name in ("one", "two", "three"):
        await client.create(Namespace.resource, "", {"metadata": {"name": name}})
    await client.create(ConfigMap.resource, "two", {"metadata": {"name": "c"}, "data": {"theirs": "1"}})
    for name in ("a", "b", "c", "d", "e"):
        await client.create(SPREADS, "default", a_spread(name, "late", "one", "two"))
    await client.patch(
        SPREADS, "default", "a", {"spec": {"namespaces": ["two", "three"], "data": {"x": None, "y": "2"}}}
    )
    await client.patch(SPREADS, "default", "d", {"spec": {"namespaces": ["missing", "two"]}})
    await client.delete(SPREADS, "default", "b")
    await cluster.settle()
    children = [("one", "c"), ("one", "e"), ("three", "a"), ("two", "a"), ("two", "c"), ("two", "d"), ("two", "e")]
    assert [*found(cluster)] == children
    await client.delete(ConfigMap.resource, "three", "a")
    marks = {"annotations": {spread.OWNER_KEY: None}}
    await client.patch(ConfigMap.resource, "two", "d", {"metadata": marks, "data": {"x": "edited"}})
    await client.patch(ConfigMap.resource, "one", "e", {"metadata": {"labels": {spread.OWNER: None}}})
    await client.create(Namespace.resource, "", {"metadata": {"name": "late"}})
    await cluster.settle()
    repaired = cluster.get(ConfigMap.resource, "two", "d")
    assert repaired is not None
    assert repaired["metadata"]["annotations"] == {spread.OWNER_KEY: "default/d"}
    await client.delete(SPREADS, "default", "e")
    await cluster.settle()
    taken_over = {("one", "e"): {"x": "1"}, ("two", "c"): {"theirs": "1"}}
    ours = {("two", "a"): {"y": "2"}, ("three", "a"): {"y": "2"}, ("late", "c"): {"x": "1"}, ("one", "c"): {"x": "1"}}
    assert found(cluster) == ours | taken_over | {("two", "d"): {"x": "1"}}


def found(cluster: Cluster) -> dict[tuple[str, str], dict[str, str]]:
    """Return the data of all ConfigMaps by namespace and name."""
    config_maps = [(each["metadata"], each["data"]) for each in cluster.list(ConfigMap.resource)]
    return {(meta["namespace"], meta["name"]): data for meta, data in config_maps}


def test_children_are_where_the_spec_says(simulate: Simulate) -> None:
    """Whatever is lost, late or killed."""
    simulate(controller, users, kinds=[spread.Spread])
