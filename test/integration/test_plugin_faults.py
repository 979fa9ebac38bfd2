"""`kubectl tfjob` waits for a job of a real API server behind a proxy that cuts connections and rejects requests."""

import asyncio
import http.client
import math
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from hack.control_plane import ControlPlane
from hack.fault_proxy.proxy import Action, Proxy, Seen, answer_status, black_hole
from integration.cluster import Cluster, replica, specs
from integration.plugin import Plugin
from support.waiting import until
from tfjob_operator.api.v1.constants import TFJOBS

AWAY_S: Final = 2.5
UNKNOWN: Final = 4
Fault = Callable[[Proxy, Callable[[], None]], Awaitable[None]]
"""A fault of the proxy during which a change is made."""


async def away(proxy: Proxy, change: Callable[[], None]) -> None:
    """All connections are cut, and new ones are refused for a while."""
    await proxy.refuse()
    proxy.cut_streams()
    change()
    await asyncio.sleep(AWAY_S)
    await proxy.accept()


async def cut(proxy: Proxy, change: Callable[[], None]) -> None:
    """Only the watches are cut."""
    proxy.cut_streams()
    change()


def rejecting(action: Action) -> Fault:
    """The watches are cut, and then each request is rejected once."""

    async def fault(proxy: Proxy, change: Callable[[], None]) -> None:
        for verb in ("get", "list", "watch"):
            for resource in ("tfjobs", "pods"):
                proxy.rule(partial(_is, verb, resource), action)
        await cut(proxy, change)

    return fault


def _is(verb: str, resource: str, seen: Seen) -> bool:
    return (seen.verb, seen.place.resource) == (verb, resource)


FAULTS: Final[dict[str, Fault]] = {
    "away": away,
    "cut": cut,
    "429": rejecting(answer_status(http.client.TOO_MANY_REQUESTS, "TooManyRequests", retry_after_s=1)),
    "503": rejecting(answer_status(http.client.SERVICE_UNAVAILABLE, "ServiceUnavailable")),
}


@dataclass
class Stage:
    """A job without an operator, and the plugin behind a proxy."""

    cluster: Cluster
    proxy: Proxy
    plugin: Plugin

    def become(self, condition: str) -> None:
        """Write a condition of the job as the operator does."""
        status = {"conditions": [{"type": condition, "status": "True", "message": "", "reason": f"TFJob{condition}"}]}
        path, kind = f"{TFJOBS.path(self.cluster.namespace, 'mnist')}/status", "application/merge-patch+json"
        code, answer = self.cluster.plane.request("PATCH", path, {"status": status}, content_type=kind)
        assert code == http.client.OK, answer

    async def wait_for_watch(self) -> None:
        """Wait until the plugin watches jobs."""
        await until(
            lambda: any(each.seen.place.resource == "tfjobs" for each in self.proxy.streams), "the plugin watches jobs"
        )


@asynccontextmanager
async def staged(cluster: Cluster, folder: Path) -> AsyncIterator[Stage]:
    cluster.create("mnist", specs(Worker=replica()))
    async with Proxy(cluster.plane.kubeconfig) as proxy:
        kubeconfig = proxy.kubeconfig_through(folder / "through-the-proxy")
        yield Stage(cluster, proxy, Plugin(kubeconfig, cluster.namespace, cluster.plane.kubectl))


async def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = await asyncio.to_thread(process.communicate, timeout=60)
    return process.returncode, output, errors


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("verb", ["wait", "watch"])
async def test_a_job_that_succeeds_while_the_api_server_cannot_be_read_has_succeeded(
    cluster: Cluster, tmp_path: Path, fault: Fault, verb: str
) -> None:
    async with staged(cluster, tmp_path) as it:
        with it.plugin.started(verb, "mnist") as process:
            await it.wait_for_watch()
            await fault(it.proxy, lambda: it.become("Succeeded"))
            code, output, errors = await finished(process)
    assert code == 0, f"{output}{errors}"
    assert output.splitlines()[-1].startswith("tfjob.kubeflow.org/mnist Succeeded: ")


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_list_that_is_watched_shows_what_changed_while_the_api_server_cannot_be_read(
    cluster: Cluster, tmp_path: Path, fault: Fault
) -> None:
    async with staged(cluster, tmp_path) as it:
        with it.plugin.started("list", "--watch", "--no-headers") as process:
            assert process.stdout is not None
            lines = map(str.split, process.stdout)
            assert (await asyncio.to_thread(next, lines))[:2] == ["mnist", "New"]
            await it.wait_for_watch()
            await fault(it.proxy, lambda: it.become("Running"))
            assert (await asyncio.to_thread(next, lines))[:2] == ["mnist", "Running"]
            await it.wait_for_watch()
            it.become("Succeeded")
            assert (await asyncio.to_thread(next, lines))[:2] == ["mnist", "Succeeded"]


@pytest.mark.parametrize("is_silent", [False, True], ids=["refused", "silent"])
async def test_a_job_whose_api_server_stays_away_is_unknown_when_the_time_is_over(
    cluster: Cluster, tmp_path: Path, *, is_silent: bool
) -> None:
    """Also if it accepts connections and never answers."""
    async with staged(cluster, tmp_path) as it:
        with it.plugin.started("wait", "mnist", "--timeout=3s") as process:
            await it.wait_for_watch()
            if is_silent:
                it.proxy.rule(lambda _: True, black_hole, times=math.inf)
            else:
                await it.proxy.refuse()
            it.proxy.cut_streams()
            code, output, errors = await finished(process)
    assert (code, output) == (UNKNOWN, ""), errors
    assert errors.splitlines()[-1].startswith("error: ")


def test_without_a_job_or_the_right_to_read_it_its_state_is_unknown(
    control_plane: ControlPlane, cluster: Cluster, plugin: Plugin
) -> None:
    cluster.create("mnist", specs(Worker=replica()))
    stranger = Plugin(control_plane.kubeconfig_for("stranger"), cluster.namespace, control_plane.kubectl)
    assert "Error from server (Forbidden)" in stranger("wait", "mnist", code=UNKNOWN)
    assert "Error from server (NotFound)" in plugin("wait", "missing", code=UNKNOWN)
