"""A test of the controller of Websites in simulated clusters with faults."""

import asyncio
from typing import Any

import website
from kubecontrollers import ConfigMap, Deployment, Namespace
from kubecontrollers.testing.cluster import Cluster, Simulate

WEBSITES = website.Website.resource


async def controller(cluster: Cluster) -> None:
    """Run the controller until it is cancelled."""
    await website.app.run(transport=cluster.transport(), clock=cluster.clock, stop=asyncio.Event())


def a_website(name: str) -> dict[str, Any]:
    """Return a Website with two replicas."""
    head = {"apiVersion": WEBSITES.api_version, "kind": WEBSITES.kind, "metadata": {"name": name}}
    return head | {"spec": {"image": "nginx:1", "replicas": 2}}


async def users(cluster: Cluster) -> None:
    """Create and delete Websites and a record, and say what must hold in the end."""
    client = cluster.client
    await client.create(Namespace.resource, "", {"metadata": {"name": "dns"}})
    for taken in ("default.c", "default.d"):
        await client.create(ConfigMap.resource, "dns", {"metadata": {"name": taken}, "data": {"theirs": "1"}})
    for name in ("a", "b", "c", "d"):
        await client.create(WEBSITES, "default", a_website(name))
    await client.delete(WEBSITES, "default", "b")
    await cluster.settle()
    await client.delete(ConfigMap.resource, "dns", "default.a")
    await client.delete(ConfigMap.resource, "dns", "default.d")
    await client.delete(WEBSITES, "default", "c")
    await client.patch(Deployment.resource, "default", "a", {"status": {"readyReplicas": 2}}, subresource="status")
    await cluster.settle()
    records = {each["metadata"]["name"]: each.get("data") for each in cluster.list(ConfigMap.resource, "dns")}
    assert records == {"default.a": None, "default.c": {"theirs": "1"}, "default.d": None}
    ready = {each["metadata"]["name"]: each["status"]["conditions"][0] for each in cluster.list(WEBSITES)}
    assert {name: (each["status"], each["reason"]) for name, each in ready.items()} == {
        "a": ("True", "Replicas"),
        "d": ("False", "Replicas"),
    }


def test_each_website_has_a_deployment_and_a_record(simulate: Simulate) -> None:
    """Whatever is lost, late or killed."""
    simulate(controller, users, kinds=[website.Website])
