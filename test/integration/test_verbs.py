"""The client's less usual requests on a real API server: subresources, tables, compressed lists, logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from hack.control_plane import ControlPlane
from tfjob_operator.api.client import TABLE, HttpTransport, ListOptions, LogOptions, RestClient, Settings, load_settings
from tfjob_operator.api.client.errors import BadRequestError, ConflictError, NotFoundError, StatusError
from tfjob_operator.api.client.http import OnLeave, Request, Response, unchanged
from tfjob_operator.api.core import CONFIG_MAPS, DEPLOYMENTS, PODS
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


class Map(Struct, frozen=True):
    """A ConfigMap."""

    metadata: ObjectMeta
    data: dict[str, str]


class Maps(Struct, frozen=True):
    """A list of ConfigMaps."""

    items: list[Map]


class Column(Struct, frozen=True):
    """A column of a table."""

    name: str


class Row(Struct, frozen=True):
    """A row of a table."""

    cells: list[Any]


class Table(Struct, frozen=True):
    """What `kubectl get` prints."""

    kind: str
    column_definitions: list[Column] | None = None
    rows: list[Row] | None = None


@pytest.fixture(scope="module")
def settings(control_plane: ControlPlane) -> Settings:
    """The administrator's settings."""
    return load_settings(str(control_plane.kubeconfig))


def config_map(name: str, color: str, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": {"color": color}}, "data": data}


async def test_objects_come_back_as_the_type_that_was_asked_for(settings: Settings, namespace: str) -> None:
    async with HttpTransport(settings) as transport:
        client = RestClient(transport, field_manager="tests")
        made = await client.create(CONFIG_MAPS, namespace, config_map("a", "red", x="1"), Map)
        assert (made.metadata.name, made.data) == ("a", {"x": "1"})
        assert await client.get(CONFIG_MAPS, namespace, "a", Map) == made
        patched = await client.patch(CONFIG_MAPS, namespace, "a", {"data": {"x": "2"}}, Map)
        assert patched.data == {"x": "2"}
        newer = {"metadata": {"name": "a", "resourceVersion": made.metadata.resource_version}}
        with pytest.raises(ConflictError):
            await client.update(CONFIG_MAPS, namespace, "a", newer, Map)
        applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"y": "1"}}
        assert (await client.apply(CONFIG_MAPS, namespace, "b", applied, Map, force=True)).data == {"y": "1"}
        listed = await client.list_page(CONFIG_MAPS, ListOptions(namespace, label_selector="color=red"), Maps)
        assert listed.items == [patched]


async def test_subresources_are_read_created_and_written(settings: Settings, namespace: str) -> None:
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
        labels = {"app": "a"}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": pod}
        await client.create(DEPLOYMENTS, namespace, {"metadata": {"name": "a"}, "spec": spec})
        scale = await client.get(DEPLOYMENTS, namespace, "a", dict[str, Any], subresource="scale")
        assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 2})
        scale["spec"]["replicas"] = 3
        assert (await client.update(DEPLOYMENTS, namespace, "a", scale, dict[str, Any], subresource="scale"))[
            "spec"
        ] == {"replicas": 3}
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        made = await client.create(ACCOUNTS, namespace, asked, dict[str, Any], name="default", subresource="token")
        assert made["status"]["token"].count(".") == 2


async def test_more_of_the_query_reaches_the_server(settings: Settings, namespace: str) -> None:
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
        made = await client.create(CONFIG_MAPS, namespace, config_map("a", "red"), query={"pretty": "true"})
        assert b"\n  " in made
        assert b"\n" not in (await client.get(CONFIG_MAPS, namespace, "a")).strip()
        assert b"\n  " in await client.get(CONFIG_MAPS, namespace, "a", query={"pretty": "true"})


async def test_a_table_has_the_columns_that_kubectl_prints(settings: Settings, namespace: str) -> None:
    """The tables of a list, of an object, and of each event of a watch."""
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
        await client.create(CONFIG_MAPS, namespace, config_map("a", "red", x="1"))
        table = await client.list_page(CONFIG_MAPS, ListOptions(namespace, label_selector="color"), Table, accept=TABLE)
        assert [column.name for column in table.column_definitions or ()] == ["Name", "Data", "Age"]
        assert [row.cells[:2] for row in table.rows or ()] == [["a", 1]]
        one = await client.get(CONFIG_MAPS, namespace, "a", Table, accept=TABLE)
        assert (one.kind, [row.cells[:2] for row in one.rows or ()]) == ("Table", [["a", 1]])
        async with asyncio.timeout(10), client.watch(CONFIG_MAPS, ListOptions(namespace), accept=TABLE) as lines:
            event = msgspec.json.decode((await anext(aiter(lines)))[0])
        assert (event["type"], event["object"]["kind"]) == ("ADDED", "Table")


class Weighing:
    """Passes requests on; `encodings` has the Content-Encoding of each response."""

    def __init__(self, inner: HttpTransport) -> None:
        self._inner = inner
        self.encodings: list[str] = []

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        response = await self._inner.send(request, on_leave)
        self.encodings.append(response.headers.get("Content-Encoding", ""))
        return response


async def test_a_long_list_comes_compressed_where_that_is_asked_for(settings: Settings, namespace: str) -> None:
    """API servers compress what is longer than 128 KB. Read as a whole or while it arrives, the list is the same."""
    async with HttpTransport(settings) as transport:
        weighing = Weighing(transport)
        client = RestClient(weighing)
        await asyncio.gather(
            *(client.create(CONFIG_MAPS, namespace, config_map(f"m{n}", "blue", text="x" * 60_000)) for n in range(4))
        )
        options = ListOptions(namespace, label_selector="color=blue", resource_version="0")
        weighing.encodings.clear()

        async def take(chunks: AsyncIterator[bytes]) -> bytes:
            return b"".join([chunk async for chunk in chunks])

        plain = await client.list_page(CONFIG_MAPS, options)
        assert len(plain) > 4 * 60_000
        zipped = await client.list_page(CONFIG_MAPS, options, gzip=True)
        arriving = await client.read_list(CONFIG_MAPS, options, take, gzip=True)
        # The list's version changes with any write in the cluster, and caches of old servers do not order their objects.
        first, *others = [
            sorted(msgspec.json.decode(answer)["items"], key=lambda item: item["metadata"]["name"])
            for answer in (plain, zipped, arriving)
        ]
        assert others == [first, first]
        await client.list_page(CONFIG_MAPS, ListOptions(namespace, field_selector="metadata.name=none"), gzip=True)
        assert weighing.encodings == ["", "gzip", "gzip", ""]


async def test_a_log_that_can_not_be_is_empty_or_an_error(settings: Settings, namespace: str) -> None:
    """A pod without a node has an empty log; the errors are the API server's. Responses of kubelets are in test/unit."""
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
        spec = {"containers": [{"name": "c", "image": "i:1"}]}
        await client.create(PODS, namespace, {"metadata": {"name": "waiting"}, "spec": spec})
        await client.create(PODS, namespace, {"metadata": {"name": "lost"}, "spec": spec | {"nodeName": "nowhere"}})
        async with client.logs(PODS, namespace, "waiting", LogOptions(follow=True)) as chunks:
            assert [chunk async for chunk in chunks] == []
        for name, container, error, message in (
            ("waiting", "nobody", BadRequestError, "container nobody is not valid"),
            ("lost", "", StatusError, "nowhere"),
            ("nobody", "", NotFoundError, "nobody"),
        ):
            with pytest.raises(error, match=message):
                async with client.logs(PODS, namespace, name, LogOptions(container=container)):
                    pass
