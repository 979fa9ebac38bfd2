"""Objects that name others, such as the users of a Secret, in simulated clusters with faults."""

import asyncio
from typing import Any

from kit.cluster import Cluster, Simulate
from tfjob_operator.api.kinds import ConfigMap, Kind, Secret
from tfjob_operator.api.meta import Resource, Struct
from tfjob_operator.controller.framework import App, References, Request


class KettleSpec(Struct, frozen=True):
    """The Secret that a kettle uses, if any."""

    secret: str = ""


class Kettle(Kind, frozen=True):
    """A custom resource whose ConfigMap shows the data of its Secret."""

    resource = Resource("example.com", "v1", "kettles", "Kettle")
    spec: KettleSpec = KettleSpec()


def secret_of(kettle: Kettle) -> str | None:
    return f"{kettle.metadata.namespace}/{kettle.spec.secret}" if kettle.spec.secret else None


app = App("kettle-controller")


@app.controller(Kettle, owns=[ConfigMap], watches=[References(Secret, secret_of)])
async def sync(request: Request[Kettle]) -> None:
    secret = request.get(Secret, request.object.spec.secret) if request.object.spec.secret else None
    data = dict(secret.data or {}) if secret is not None else {"missing": request.object.spec.secret}
    await request.apply(ConfigMap, {"metadata": {"name": request.name}, "data": data})


async def controller(cluster: Cluster) -> None:
    await app.run(transport=cluster.transport(), clock=cluster.clock, stop=asyncio.Event())


async def users(cluster: Cluster) -> None:
    client = cluster.client

    async def create(name: str, secret: str) -> None:
        head: dict[str, Any] = {"apiVersion": "example.com/v1", "kind": "Kettle", "metadata": {"name": name}}
        await client.create(Kettle.resource, "default", head | {"spec": {"secret": secret}})

    async def store(name: str, value: str) -> None:
        await client.create(Secret.resource, "default", {"metadata": {"name": name}, "data": {"v": value}})

    await create("a", "x")
    await store("x", "MQ==")
    await store("y", "MQ==")
    for name, secret in (("b", "x"), ("c", "y"), ("d", "z"), ("e", "")):
        await create(name, secret)
    await client.patch(Kettle.resource, "default", "b", {"spec": {"secret": "y"}})
    await client.patch(Secret.resource, "default", "x", {"data": {"v": "Mg=="}})
    for phase in ("Mw==", "NA=="):  # during the faults, and after them
        await client.patch(Secret.resource, "default", "y", {"data": {"v": phase}})
        await cluster.settle()
        found = {each["metadata"]["name"]: each["data"] for each in cluster.list(ConfigMap.resource)}
        y = {"v": phase}
        assert found == {"a": {"v": "Mg=="}, "b": y, "c": y, "d": {"missing": "z"}, "e": {"missing": ""}}


def test_a_change_of_a_secret_reaches_all_that_name_it(simulate: Simulate) -> None:
    """Whatever is lost, late or killed."""
    simulate(controller, users, kinds=[Kettle], seeds=30)
