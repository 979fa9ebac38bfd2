"""The API client with a real API server: verbs, errors, subresources, tables, compressed lists, logs, tokens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hack.control_plane import ControlPlane
from integration.operator_process import with_token
from tfjob_operator.api.client import (
    JSON_PATCH,
    TABLE,
    HttpTransport,
    ListOptions,
    LogOptions,
    RestClient,
    Settings,
    load_settings,
)
from tfjob_operator.api.client.errors import (
    AlreadyExistsError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    StatusError,
    UnauthorizedError,
)
from tfjob_operator.api.client.http import OnLeave, Request, Response, unchanged
from tfjob_operator.api.core import CONFIG_MAPS, DEPLOYMENTS, PODS
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


class Map(Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str]


class Maps(Struct, frozen=True):
    items: list[Map]


@pytest.fixture
def settings(control_plane: ControlPlane) -> Settings:
    return load_settings(str(control_plane.kubeconfig))


@asynccontextmanager
async def connected(settings: Settings, manager: str = "tests") -> AsyncIterator[RestClient]:
    async with HttpTransport(settings) as transport:
        yield RestClient(transport, field_manager=manager)


def config_map(name: str = "a", color: str = "red", **data: str) -> dict[str, Any]:
    meta = {"name": name, "labels": {"color": color}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def decode(raw: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(raw)
    return decoded


async def test_verbs_and_their_refusals(settings: Settings, namespace: str) -> None:
    async with connected(settings) as client:
        made = decode(await client.create(CONFIG_MAPS, namespace, config_map(x="1")))
        assert [entry["manager"] for entry in made["metadata"]["managedFields"]] == ["tests"]  # WR-03
        with pytest.raises(AlreadyExistsError):
            await client.create(CONFIG_MAPS, namespace, config_map())
        with pytest.raises(NotFoundError) as missing:
            await client.get(CONFIG_MAPS, namespace, "b")
        assert missing.value.details is not None
        assert missing.value.details.name == "b"
        with pytest.raises(InvalidError):
            await client.create(CONFIG_MAPS, namespace, config_map("Not A Name"))
        changed = decode(await client.update(CONFIG_MAPS, namespace, "a", made | {"data": {"x": "2"}}))
        assert changed["data"] == {"x": "2"}
        with pytest.raises(ConflictError):
            await client.update(CONFIG_MAPS, namespace, "a", made | {"data": {"x": "3"}})


async def test_a_patch_of_a_stale_view_is_a_conflict(settings: Settings, namespace: str) -> None:
    """Status writes carry the resourceVersion: a stale view can only be refused, whichever kind of patch it is."""
    async with connected(settings) as client:
        old = decode(await client.create(CONFIG_MAPS, namespace, config_map(x="1")))["metadata"]["resourceVersion"]
        merged = {"metadata": {"resourceVersion": old}, "data": {"x": "2"}}
        new = decode(await client.patch(CONFIG_MAPS, namespace, "a", merged))["metadata"]["resourceVersion"]
        with pytest.raises(ConflictError):
            await client.patch(CONFIG_MAPS, namespace, "a", merged)

        def replacing(version: str) -> list[dict[str, str]]:
            return [
                {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
                {"op": "replace", "path": "/data/x", "value": "3"},
            ]

        with pytest.raises(ConflictError):
            await client.patch(CONFIG_MAPS, namespace, "a", replacing(old), content_type=JSON_PATCH)
        done = decode(await client.patch(CONFIG_MAPS, namespace, "a", replacing(new), content_type=JSON_PATCH))
        assert done["data"] == {"x": "3"}


async def test_a_delete_with_preconditions_spares_any_other_object(settings: Settings, namespace: str) -> None:
    """WR-08, Sieve's stale-state bugs."""
    async with connected(settings) as client:
        meta = decode(await client.create(CONFIG_MAPS, namespace, config_map()))["metadata"]
        with pytest.raises(ConflictError):
            await client.delete(CONFIG_MAPS, namespace, "a", uid="another")
        with pytest.raises(ConflictError):
            await client.delete(CONFIG_MAPS, namespace, "a", uid=meta["uid"], resource_version="1")
        await client.delete(CONFIG_MAPS, namespace, "a", uid=meta["uid"], resource_version=meta["resourceVersion"])
        with pytest.raises(NotFoundError):
            await client.get(CONFIG_MAPS, namespace, "a")


async def test_a_call_without_a_name_reaches_no_collection(
    settings: Settings, control_plane: ControlPlane, namespace: str
) -> None:
    """On the server it is the same request as a delete of the whole collection, and as a list."""
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
        await client.create(CONFIG_MAPS, namespace, config_map(x="1"))
        for call in (client.delete, client.get):
            with pytest.raises(ValueError, match="needs a namespace and a name"):
                await call(CONFIG_MAPS, namespace, "")
        assert (await client.get(CONFIG_MAPS, namespace, "a", Map)).metadata.name == "a"
        await transport.send(Request("DELETE", CONFIG_MAPS.path(namespace)))
        with pytest.raises(NotFoundError):
            await client.get(CONFIG_MAPS, namespace, "a")


class Size(Struct, frozen=True):
    replicas: int = 0


class WrittenSize(Size, frozen=True, omit_defaults=False):
    pass


async def test_a_struct_sets_0_only_if_it_does_not_omit_it(settings: Settings, namespace: str) -> None:
    """A create without the field would get the server's default of one replica, and a patch would leave the three."""
    labels = {"app": "a"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    spec: dict[str, Any] = {"selector": {"matchLabels": labels}, "template": pod}

    async with connected(settings) as client:

        async def replicas() -> int:
            return int((await client.get(DEPLOYMENTS, namespace, "a", dict[str, Any]))["spec"]["replicas"])

        await client.create(DEPLOYMENTS, namespace, {"metadata": {"name": "a"}, "spec": spec})
        assert await replicas() == 1
        await client.patch(DEPLOYMENTS, namespace, "a", {"spec": {"replicas": 3}})
        with pytest.raises(TypeError, match="Size omits fields"):
            await client.patch(DEPLOYMENTS, namespace, "a", {"spec": Size()})
        await client.patch(DEPLOYMENTS, namespace, "a", msgspec.json.encode({"spec": Size()}))
        assert await replicas() == 3
        await client.patch(DEPLOYMENTS, namespace, "a", {"spec": WrittenSize()})
        assert await replicas() == 0


async def test_a_patch_and_an_apply_with_a_uid_spare_any_other_object(settings: Settings, namespace: str) -> None:
    """Without it they change, and an apply creates, whatever has the name."""
    async with connected(settings) as client:
        await client.create(CONFIG_MAPS, namespace, config_map(x="theirs"))
        other = {"uid": "4af5e1fc-1e4a-4e2c-a54f-cfd2d7e0e1d0"}
        with pytest.raises((ConflictError, InvalidError)):  # by the version of the server
            await client.patch(CONFIG_MAPS, namespace, "a", {"metadata": other, "data": {"x": "ours"}})
        for name in ("a", "gone"):
            body = config_map(name, x="ours")
            with pytest.raises((ConflictError, InvalidError)):
                await client.apply(
                    CONFIG_MAPS, namespace, name, body | {"metadata": {"name": name} | other}, force=True
                )
        assert (await client.get(CONFIG_MAPS, namespace, "a", Map)).data == {"x": "theirs"}
        for field in ("uid", "resourceVersion"):
            body = {"metadata": {field: ""}, "data": {"x": field}}
            with pytest.raises(ValueError, match=f"metadata.{field} is empty"):
                await client.patch(CONFIG_MAPS, namespace, "a", body)
            unlimited = await client.patch(CONFIG_MAPS, namespace, "a", msgspec.json.encode(body), Map)
            assert unlimited.data == {"x": field}, "the server takes it for none"
        await client.update(CONFIG_MAPS, namespace, "a", config_map(x="ours"))
        assert (await client.get(CONFIG_MAPS, namespace, "a", Map)).data == {"x": "ours"}


async def test_a_dry_run_of_any_write_changes_nothing(settings: Settings, namespace: str) -> None:
    async with connected(settings) as client:
        await client.create(CONFIG_MAPS, namespace, config_map("b"), dry_run=True)
        with pytest.raises(NotFoundError):
            await client.get(CONFIG_MAPS, namespace, "b")
        made = await client.create(CONFIG_MAPS, namespace, config_map(x="1"))
        await client.update(CONFIG_MAPS, namespace, "a", config_map(x="2"), dry_run=True)
        await client.patch(CONFIG_MAPS, namespace, "a", {"data": {"x": "3"}}, dry_run=True)
        await client.delete(CONFIG_MAPS, namespace, "a", dry_run=True)
        assert decode(await client.get(CONFIG_MAPS, namespace, "a")) == decode(made)


async def test_fields_belong_to_whom_applied_them(settings: Settings, namespace: str) -> None:
    """WR-04"""
    async with connected(settings, "ours") as ours, connected(settings, "theirs") as theirs:

        async def apply(client: RestClient, *, force: bool = False, **data: str) -> dict[str, str]:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": data}
            return (await client.apply(CONFIG_MAPS, namespace, "shared", body, Map, force=force)).data

        assert await apply(ours, a="1", b="1") == {"a": "1", "b": "1"}, "it is created"
        with pytest.raises(ConflictError):
            await apply(theirs, a="2")
        assert await apply(theirs, a="2", force=True) == {"a": "2", "b": "1"}
        assert await apply(theirs, a="2", c="3") == {"a": "2", "b": "1", "c": "3"}
        assert await apply(ours, a="2", d="4") == {"a": "2", "c": "3", "d": "4"}, "what is left out is removed"


async def test_objects_come_back_as_the_type_that_was_asked_for(settings: Settings, namespace: str) -> None:
    async with connected(settings) as client:
        made = await client.create(CONFIG_MAPS, namespace, config_map(x="1"), Map)
        assert (made.metadata.name, made.data) == ("a", {"x": "1"})
        assert await client.get(CONFIG_MAPS, namespace, "a", Map) == made
        patched = await client.patch(CONFIG_MAPS, namespace, "a", {"data": {"x": "2"}}, Map)
        assert patched.data == {"x": "2"}
        listed = await client.list_page(CONFIG_MAPS, ListOptions(namespace, label_selector="color=red"), Maps)
        assert listed.items == [patched]
        assert b"\n  " in await client.get(CONFIG_MAPS, namespace, "a", query={"pretty": "true"})
        assert b"\n" not in (await client.get(CONFIG_MAPS, namespace, "a")).strip()


async def test_subresources_are_read_created_and_written(settings: Settings, namespace: str) -> None:
    async with connected(settings) as client:
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


async def test_a_table_has_the_columns_that_kubectl_prints(settings: Settings, namespace: str) -> None:
    """The tables of a list, of an object, and of each event of a watch."""
    async with connected(settings) as client:
        await client.create(CONFIG_MAPS, namespace, config_map(x="1"))
        options = ListOptions(namespace, label_selector="color")
        table = decode(await client.list_page(CONFIG_MAPS, options, accept=TABLE))
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
        one = decode(await client.get(CONFIG_MAPS, namespace, "a", accept=TABLE))
        async with asyncio.timeout(10), client.watch(CONFIG_MAPS, options, accept=TABLE) as lines:
            event = decode((await anext(aiter(lines)))[0])
        assert event["type"] == "ADDED"
        for each in (table, one, event["object"]):
            assert (each["kind"], [row["cells"][:2] for row in each["rows"]]) == ("Table", [["a", 1]])


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
        for number in range(4):
            last = await client.create(CONFIG_MAPS, namespace, config_map(f"m{number}", "blue", text="x" * 60_000), Map)
        version = last.metadata.resource_version
        options = ListOptions(namespace, label_selector="color=blue", resource_version=version)
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
    async with connected(settings) as client:
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


async def test_a_service_accounts_token_is_read_again_when_its_file_rotates(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """401 while the file holds nonsense; once it holds the account's token the server knows us, and RBAC says no."""
    token = await asyncio.to_thread(control_plane.request_token, namespace)
    file = with_token(control_plane, "", tmp_path)
    file.write_text(file.read_text().replace('"token": ""', '"tokenFile": "token"'))
    (tmp_path / "token").write_text("nonsense")
    async with connected(load_settings(str(file))) as client:
        with pytest.raises(UnauthorizedError):
            await client.get(CONFIG_MAPS, namespace, "a")
        (tmp_path / "token").write_text(f"{token}\n")
        with pytest.raises(ForbiddenError, match=f"system:serviceaccount:{namespace}:default"):
            await client.get(CONFIG_MAPS, namespace, "a")
