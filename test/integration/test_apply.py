"""Server-side apply against a real API server: who owns what, and what becomes of fields that are no longer wanted."""

from __future__ import annotations

import json

import pytest

from hack.control_plane import ControlPlane
from tfjob_operator.api.client import HttpTransport, RestClient, load_settings
from tfjob_operator.api.client.errors import ConflictError
from tfjob_operator.api.meta import Resource

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


async def test_fields_belong_to_whom_applied_them(control_plane: ControlPlane, namespace: str) -> None:
    """WR-04"""
    settings = load_settings(str(control_plane.kubeconfig))
    async with HttpTransport(settings) as transport:
        ours, theirs = (RestClient(transport, field_manager=name) for name in ("ours", "theirs"))

        async def apply(client: RestClient, *, force: bool = False, **data: str) -> dict[str, str]:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": data}
            answer = await client.apply(CONFIG_MAPS, namespace, "shared", body, force=force)
            found: dict[str, str] = json.loads(answer)["data"]
            return found

        assert await apply(ours, a="1", b="1") == {"a": "1", "b": "1"}, "it is created"
        with pytest.raises(ConflictError):
            await apply(theirs, a="2")
        assert await apply(theirs, a="2", force=True) == {"a": "2", "b": "1"}
        assert await apply(theirs, a="2", c="3") == {"a": "2", "b": "1", "c": "3"}
        assert await apply(ours, a="2", d="4") == {"a": "2", "c": "3", "d": "4"}, "what is left out is removed"
