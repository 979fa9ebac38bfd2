"""The controller of docs/write-a-controller.md, on the real API server."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from hack.examples.mirror import run
from tfjob_operator.api.client import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from hack.control_plane import ControlPlane


async def until(holds: Callable[[], bool]) -> None:
    """Poll in a thread, so that the controller goes on, until it is true."""
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # the answer is kubectl's, there is no event to wait for


async def test_the_example_of_the_guide_mirrors_follows_heals_and_collects(
    control_plane: ControlPlane, namespace: str
) -> None:
    """It does everything that the guide says about it."""

    def kubectl(*arguments: str) -> str:
        return control_plane.run_kubectl(*arguments, f"--namespace={namespace}", check=False).stdout

    def copy() -> str:
        return kubectl("get", "configmap", "a-mirror", "--ignore-not-found", "--output=jsonpath={.data.x}")

    stop = asyncio.Event()
    running = asyncio.create_task(run(load_settings(str(control_plane.kubeconfig)), stop))
    await asyncio.to_thread(kubectl, "create", "configmap", "a", "--from-literal=x=1")
    await asyncio.to_thread(kubectl, "create", "configmap", "other", "--from-literal=x=1")
    await asyncio.to_thread(kubectl, "label", "configmap", "a", "mirror=yes")
    await until(lambda: copy() == "1")
    change = json.dumps({"data": {"x": "2"}})
    await asyncio.to_thread(kubectl, "patch", "configmap", "a", "--patch", change)
    await until(lambda: copy() == "2")
    await asyncio.to_thread(kubectl, "delete", "configmap", "a-mirror")
    await until(lambda: copy() == "2")
    assert "other-mirror" not in await asyncio.to_thread(kubectl, "get", "configmaps")
    await asyncio.to_thread(kubectl, "delete", "configmap", "a")
    await until(lambda: copy() == "")
    stop.set()
    await running
