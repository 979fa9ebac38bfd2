"""A test of the controller of Foos in simulated clusters with faults."""

import asyncio
from typing import Any

import foo
from kubecontrollers.api.core import DEPLOYMENTS
from kubecontrollers.testing.cluster import Cluster, Simulate

FOOS = foo.Foo.resource


async def controller(cluster: Cluster) -> None:
    """Run the controller until it is cancelled."""
    await foo.app.run(transport=cluster.transport(), clock=cluster.clock, stop=asyncio.Event())


def a_foo(name: str, **spec: Any) -> dict[str, Any]:
    """Return a Foo whose Deployment has its name."""
    head = {"apiVersion": FOOS.api_version, "kind": FOOS.kind, "metadata": {"name": name}}
    return head | {"spec": {"deploymentName": name} | spec}


async def users(cluster: Cluster) -> None:
    """Create, scale and delete Foos, edit a Deployment, and say what must hold in the end."""
    client = cluster.client
    theirs = {"replicas": 9, "selector": {"matchLabels": {"app": "theirs"}}}
    await client.create(DEPLOYMENTS, "default", {"metadata": {"name": "c"}, "spec": theirs})
    for name in ("a", "b", "c"):
        await client.create(FOOS, "default", a_foo(name, replicas=2))
    await client.patch(FOOS, "default", "a", {"spec": {"replicas": 3}})
    await client.delete(FOOS, "default", "b")
    await cluster.settle()
    await client.patch(DEPLOYMENTS, "default", "a", {"spec": {"replicas": 7}})
    await client.patch(DEPLOYMENTS, "default", "a", {"status": {"availableReplicas": 3}}, subresource="status")
    await cluster.settle()
    found = {each["metadata"]["name"]: each["spec"]["replicas"] for each in cluster.list(DEPLOYMENTS)}
    assert found == {"a": 3, "c": 9}
    ready = {each["metadata"]["name"]: each.get("status", {}).get("conditions") for each in cluster.list(FOOS)}
    assert ready["a"][0]["status"] == "True"
    assert ready["c"] is None
    assert {*ready} == {"a", "c"}


def test_foos_have_their_deployments(simulate: Simulate) -> None:
    """Whatever is lost, late or killed."""
    simulate(controller, users, kinds=[FOOS])
