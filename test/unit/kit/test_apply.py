"""Server-side apply in the model, beyond the chapter that is compared with real servers."""

from typing import Any

import pytest

from kit.model.kinds import NAMESPACES
from kit.model.server import ModelServer
from kit.model.transport import ModelTransport
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ConflictError
from tfjob_operator.api.core import CONFIG_MAPS, PODS
from tfjob_operator.api.meta import Resource


class Bench:
    """A server with a namespace, and clients with names."""

    def __init__(self) -> None:
        self.server = ModelServer()
        self.server.ask("admin", "POST", NAMESPACES.path(), {"metadata": {"name": "ns"}})

    def client(self, manager: str) -> RestClient:
        return RestClient(ModelTransport(self.server, manager), field_manager=manager)

    async def apply(
        self, manager: str, resource: Resource, body: dict[str, Any], *, force: bool = False
    ) -> dict[str, Any]:
        metadata = {"name": "a"} | body.pop("metadata", {})
        head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        await self.client(manager).apply(resource, "ns", "a", head | body, force=force)
        return self.stored(resource)

    def stored(self, resource: Resource) -> dict[str, Any]:
        return self.server.storage.collections[resource.plural].objects["ns", "a"].body


def managers(body: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["manager"], each["operation"]): each["fieldsV1"] for each in body["metadata"]["managedFields"]}


async def test_managed_fields_have_the_form_of_the_api() -> None:
    found = await Bench().apply("me", CONFIG_MAPS, {"data": {"x": "1"}, "metadata": {"labels": {"l": "1"}}})
    (entry,) = found["metadata"]["managedFields"]
    assert entry.pop("time")
    assert entry == {
        "manager": "me",
        "operation": "Apply",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:x": {}}, "f:metadata": {"f:labels": {"f:l": {}}}},
    }


async def test_an_apply_without_change_is_no_write() -> None:
    bench = Bench()
    first = await bench.apply("me", CONFIG_MAPS, {"data": {"x": "1"}})
    assert await bench.apply("me", CONFIG_MAPS, {"data": {"x": "1"}}) is first


async def test_containers_env_and_ports_merge_by_their_keys_and_arguments_do_not() -> None:
    """The other manager's parts stay, and go with it."""
    bench = Bench()
    env = [{"name": "A", "value": "1"}]
    ports = [{"containerPort": 1, "protocol": "TCP"}, {"containerPort": 1, "protocol": "UDP"}]
    main = {"name": "main", "image": "i", "args": ["x", "y"], "env": env, "ports": ports}
    await bench.apply("me", PODS, {"spec": {"containers": [main]}})
    theirs = {"name": "main", "env": [{"name": "B", "value": "2"}], "ports": [{"containerPort": 1, "name": "named"}]}
    found = await bench.apply("you", PODS, {"spec": {"containers": [theirs, {"name": "side"}]}})
    assert found["spec"]["containers"] == [
        main
        | {"env": [*env, {"name": "B", "value": "2"}]}
        | {"ports": [{"containerPort": 1, "protocol": "TCP", "name": "named"}, ports[1]]},
        {"name": "side"},
    ]
    with pytest.raises(ConflictError, match=r'conflict with "me": \.spec\.containers\[name="main"\]\.args'):
        await bench.apply("you", PODS, {"spec": {"containers": [theirs | {"args": ["x"]}]}})
    found = await bench.apply("me", PODS, {"spec": {"containers": []}})
    assert found["spec"]["containers"] == [
        theirs | {"ports": [{"containerPort": 1, "name": "named"}]},
        {"name": "side"},
    ]


async def test_an_update_takes_the_fields_that_it_changes() -> None:
    bench = Bench()
    await bench.apply("me", CONFIG_MAPS, {"data": {"x": "1", "y": "1"}})
    await bench.client("editor").patch(CONFIG_MAPS, "ns", "a", {"data": {"x": "2", "z": "2", "y": None}})
    assert managers(bench.stored(CONFIG_MAPS)) == {("editor", "Update"): {"f:data": {"f:x": {}, "f:z": {}}}}
    with pytest.raises(
        ConflictError, match=r'Apply failed with 1 conflict: conflict with "editor" using v1: \.data\.x'
    ):
        await bench.apply("me", CONFIG_MAPS, {"data": {"x": "1"}})
    found = await bench.apply("me", CONFIG_MAPS, {"data": {"x": "1"}}, force=True)
    assert found["data"] == {"x": "1", "z": "2"}
    assert managers(found)["editor", "Update"] == {"f:data": {"f:z": {}}}


async def test_a_replaced_object_keeps_its_managers() -> None:
    """A client that does not know `managedFields` removes none of them."""
    bench = Bench()
    await bench.apply("me", CONFIG_MAPS, {"data": {"x": "1"}})
    await bench.client("editor").update(
        CONFIG_MAPS, "ns", "a", {"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}
    )
    assert managers(bench.stored(CONFIG_MAPS)) == {
        ("me", "Apply"): {"f:data": {"f:x": {}}},
        ("editor", "Update"): {"f:data": {"f:y": {}}},
    }
