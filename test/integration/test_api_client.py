"""The API client and the real API server: verbs, refusals, watches, tokens."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.loopback import CONFIG_MAPS, follow
from hack.control_plane import ControlPlane
from support.waiting import until
from tfjob_operator.api.client import (
    JSON_PATCH,
    HttpTransport,
    ListOptions,
    RestClient,
    Settings,
    load_settings,
)
from tfjob_operator.api.client.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
)


@pytest.fixture
def settings(control_plane: ControlPlane) -> Settings:
    return load_settings(str(control_plane.kubeconfig))


def config_map(name: str = "a", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def decode(raw: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(raw)
    return decoded


async def test_verbs_and_their_refusals(settings: Settings, namespace: str) -> None:
    async with HttpTransport(settings) as transport:
        client = RestClient(transport, field_manager="tfjob-operator-test")
        made = decode(await client.create(CONFIG_MAPS, namespace, config_map(x="1")))
        assert [entry["manager"] for entry in made["metadata"]["managedFields"]] == ["tfjob-operator-test"]  # WR-03
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
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
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
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
        meta = decode(await client.create(CONFIG_MAPS, namespace, config_map()))["metadata"]
        with pytest.raises(ConflictError):
            await client.delete(CONFIG_MAPS, namespace, "a", uid="another")
        with pytest.raises(ConflictError):
            await client.delete(CONFIG_MAPS, namespace, "a", uid=meta["uid"], resource_version="1")
        await client.delete(CONFIG_MAPS, namespace, "a", uid=meta["uid"], resource_version=meta["resourceVersion"])
        with pytest.raises(NotFoundError):
            await client.get(CONFIG_MAPS, namespace, "a")


async def test_a_dry_run_of_any_write_changes_nothing(settings: Settings, namespace: str) -> None:
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
        await client.create(CONFIG_MAPS, namespace, config_map("b"), dry_run=True)
        with pytest.raises(NotFoundError):
            await client.get(CONFIG_MAPS, namespace, "b")
        made = await client.create(CONFIG_MAPS, namespace, config_map(x="1"))
        await client.update(CONFIG_MAPS, namespace, "a", config_map(x="2"), dry_run=True)
        await client.patch(CONFIG_MAPS, namespace, "a", {"data": {"x": "3"}}, dry_run=True)
        await client.delete(CONFIG_MAPS, namespace, "a", dry_run=True)
        assert decode(await client.get(CONFIG_MAPS, namespace, "a")) == decode(made)


async def test_a_watch_sees_what_happens(settings: Settings, namespace: str) -> None:
    async with HttpTransport(settings) as watches, HttpTransport(settings) as writes:
        client = RestClient(writes)
        options = ListOptions(namespace=namespace)
        version = decode(await client.list_page(CONFIG_MAPS, options))["metadata"]["resourceVersion"]
        seen: list[bytes] = []
        since = ListOptions(namespace=namespace, resource_version=version, timeout_s=60, allow_bookmarks=True)
        watching = asyncio.create_task(follow(RestClient(watches), seen, options=since))
        for name in ("a", "b"):
            await client.create(CONFIG_MAPS, namespace, config_map(name, text="two\nlines"))
        await client.delete(CONFIG_MAPS, namespace, "a")
        await until(lambda: len(seen) >= 3)
        watching.cancel()
        await asyncio.wait([watching])
        events = [decode(line) for line in seen]
        assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
            ("ADDED", "a"),
            ("ADDED", "b"),
            ("DELETED", "a"),
        ]


async def test_a_version_that_was_compacted_away_is_expired(
    settings: Settings, control_plane: ControlPlane, namespace: str
) -> None:
    """RF-06, SV-05."""
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
        for name in "abc":
            await client.create(CONFIG_MAPS, namespace, config_map(name))
        options = ListOptions(namespace=namespace, limit=1)
        page = decode(await client.list_page(CONFIG_MAPS, options))["metadata"]
        later = decode(await client.create(CONFIG_MAPS, namespace, config_map("d")))["metadata"]["resourceVersion"]
        await asyncio.to_thread(control_plane.forget_before, int(later))
        with pytest.raises(ExpiredError):
            await client.list_page(CONFIG_MAPS, ListOptions(namespace, limit=1, continue_token=page["continue"]))


async def test_a_service_accounts_token_is_read_again_when_its_file_rotates(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """401 while the file holds nonsense; once it holds the account's token the server knows us, and RBAC says no."""
    token = await asyncio.to_thread(control_plane.request_token, namespace)
    document = json.loads(control_plane.kubeconfig.read_text())
    document["users"][0]["user"] = {"tokenFile": "token"}
    (tmp_path / "kubeconfig").write_text(json.dumps(document))
    (tmp_path / "token").write_text("nonsense")
    settings = load_settings(str(tmp_path / "kubeconfig"))
    async with HttpTransport(settings) as transport:
        client = RestClient(transport)
        with pytest.raises(UnauthorizedError):
            await client.get(CONFIG_MAPS, namespace, "a")
        (tmp_path / "token").write_text(f"{token}\n")
        with pytest.raises(ForbiddenError, match=f"system:serviceaccount:{namespace}:default"):
            await client.get(CONFIG_MAPS, namespace, "a")
