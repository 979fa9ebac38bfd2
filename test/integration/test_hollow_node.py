"""The hollow node against a real API server: what pods look like there while it acts as their kubelet."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hack.control_plane import ControlPlane
from hack.hollow_node import HollowNode, Timing
from hack.hollow_node.node import NODES
from hack.kubernetes_versions import (
    NEWEST,
    SANDBOX_CONDITION,
    Kubernetes,
)
from integration.cluster import BOTH_KUBELETS
from tfjob_operator.api.client import HttpTransport, RestClient, load_settings
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import Resource

ROOT = Path(__file__).parents[2]
PREFIX = "hollow.tfjob.kubeflow.org/"
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
PATIENCE_S = 30.0  # for what takes a second on a machine that does nothing else
MAIN = [{"name": "main", "image": "img"}]

Pod = dict[str, Any]


@dataclass
class HollowNamespace:
    """One namespace of the API server, as a user sees it."""

    client: RestClient
    plane: ControlPlane
    namespace: str
    kubelet: Kubernetes

    @property
    def node_name(self) -> str:
        """The name of a node for this test alone, so that tests do not share one."""
        return f"hollow-{self.namespace}"

    def node(self, scale: float = 1 / 20) -> HollowNode:
        """A hollow node for this namespace alone; by default ten seconds of a kubelet take half a second."""
        return HollowNode(
            self.client,
            name=self.node_name,
            namespace=self.namespace,
            timing=Timing(scale),
            kubernetes=self.kubelet,
        )

    async def create(self, name: str = "p", run: str | None = None, **more: Any) -> Pod:
        """Create a pod; `annotations`, `owners` and every field of the spec can be given."""
        annotations = {PREFIX + key: text for key, text in more.pop("annotations", {}).items()}
        if run is not None:
            annotations[PREFIX + "run"] = run
        spec = {"restartPolicy": "Never", "containers": MAIN} | more
        meta = {"name": name, "annotations": annotations, "ownerReferences": spec.pop("owners", [])}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        return decode(await self.client.create(PODS, self.namespace, body))

    async def get(self, name: str = "p") -> Pod:
        """The pod as it is now."""
        return decode(await self.client.get(PODS, self.namespace, name))

    async def until(self, holds: Callable[[Pod], bool], name: str = "p") -> Pod:
        """Wait until something holds of a pod; return that pod."""
        pod: Pod = {}
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    pod = await self.get(name)
                    if holds(pod):
                        return pod
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pytest.fail(f"the pod never came to it: {pod.get('status')}")

    async def until_gone(self, name: str = "p") -> None:
        """Wait until there is no such pod."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await self.get(name)
                except NotFoundError:
                    return
                await asyncio.sleep(0.05)


@asynccontextmanager
async def cluster(plane: ControlPlane, namespace: str, kubelet: Kubernetes = NEWEST) -> AsyncIterator[HollowNamespace]:
    """A client for the length of a test, and the version of the kubelet that its hollow node imitates."""
    async with HttpTransport(load_settings(str(plane.kubeconfig))) as transport:
        yield HollowNamespace(RestClient(transport, field_manager="test"), plane, namespace, kubelet)


def decode(body: bytes) -> Pod:
    """Read an object."""
    result: Pod = msgspec.json.decode(body)
    return result


def phase(wanted: str) -> Callable[[Pod], bool]:
    """Whether a pod is in this phase."""
    return lambda pod: pod["status"]["phase"] == wanted


def waits_for(reason: str) -> Callable[[Pod], bool]:
    """Whether the first container waits for this reason."""
    return lambda pod: main_of(pod).get("state", {}).get("waiting", {}).get("reason") == reason


def main_of(pod: Pod) -> Pod:
    """The status of the first container."""
    statuses = pod["status"].get("containerStatuses") or [{}]
    status: Pod = statuses[0]
    return status


def conditions(pod: Pod) -> dict[str, str]:
    """The status of each condition."""
    return {condition["type"]: condition["status"] for condition in pod["status"]["conditions"]}


def sandbox_aside(pod: Pod, kubelet: Kubernetes) -> dict[str, str]:
    """The conditions but PodReadyToStartContainers, which kubelets that know it must report, as true while the pod runs."""
    told = conditions(pod)
    sandbox = told.pop("PodReadyToStartContainers", None)
    runs = str(pod["status"]["phase"] == "Running")
    assert sandbox == (runs if kubelet.has(SANDBOX_CONDITION) else None)
    return told


def moment(text: str) -> datetime:
    """Read a time of the API."""
    return datetime.fromisoformat(text).astimezone(UTC)


@BOTH_KUBELETS
async def test_a_pod_without_annotations_runs_two_seconds_and_succeeds(
    control_plane: ControlPlane, namespace: str, kubelet: Kubernetes
) -> None:
    """Bound, with addresses, Running with the right conditions, then Succeeded with times that add up."""
    async with cluster(control_plane, namespace, kubelet) as here, here.node():
        await here.create()
        pod = await here.until(phase("Running"))
        assert pod["spec"]["nodeName"] == here.node_name
        assert pod["status"]["podIP"] == pod["status"]["podIPs"][0]["ip"]
        assert pod["status"]["hostIP"]
        always = dict.fromkeys(("PodScheduled", "Initialized"), "True")
        assert sandbox_aside(pod, kubelet) == always | {"Ready": "True", "ContainersReady": "True"}
        assert main_of(pod)["ready"] is True
        assert "startedAt" in main_of(pod)["state"]["running"]
        end = main_of(await here.until(phase("Succeeded")))["state"]["terminated"]
        assert (end["exitCode"], end["reason"]) == (0, "Completed")
        assert 1 <= (moment(end["finishedAt"]) - moment(end["startedAt"])).total_seconds() <= 3
        assert sandbox_aside(await here.get(), kubelet) == always | {"Ready": "False", "ContainersReady": "False"}


async def test_a_pod_that_can_not_start_says_why(control_plane: ControlPlane, namespace: str) -> None:
    """Never started, no image, a malformed annotation: Pending, each with its reason; a mended annotation takes effect."""
    async with cluster(control_plane, namespace) as here, here.node():
        await here.create("stuck", "never-start")
        await here.create("pull", "image-pull-back-off")
        await here.create("typo", "1s;0")
        assert (await here.until(waits_for("ContainerCreating"), "stuck"))["status"]["phase"] == "Pending"
        assert (await here.until(waits_for("ImagePullBackOff"), "pull"))["status"]["phase"] == "Pending"
        typo = main_of(await here.until(waits_for("CreateContainerConfigError"), "typo"))
        assert "'1s;0' cannot be read" in typo["state"]["waiting"]["message"]
        await here.client.patch(PODS, namespace, "typo", {"metadata": {"annotations": {PREFIX + "run": "0s:0"}}})
        await here.until(phase("Succeeded"), "typo")


async def test_a_list_of_runs_goes_on_in_a_pod_that_its_controller_creates_again(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The first run exits with 137, the second with 0, though that is another pod."""
    async with cluster(control_plane, namespace) as here, here.node():
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
        uid = decode(await here.client.create(CONFIG_MAPS, namespace, body))["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": True}
        await here.create(run="0.2s:137, 0.2s:0", owners=[owner])
        await here.until(phase("Failed"))
        await here.client.delete(PODS, namespace, "p")
        await here.until_gone()
        await here.create(run="0.2s:137, 0.2s:0", owners=[owner])
        await here.until(phase("Succeeded"))


async def test_a_node_that_is_started_again_goes_on_where_the_pods_are(
    control_plane: ControlPlane, namespace: str
) -> None:
    """A run that is under way is neither started again nor forgotten, and restart counts are kept."""
    async with cluster(control_plane, namespace) as here:
        async with here.node():
            await here.create("long", "4s:0")
            await here.create("loop", "0.2s:1, 4s:1, 0s:0", restartPolicy="OnFailure")
            before = await here.until(phase("Running"), "long")
            await here.until(lambda pod: main_of(pod).get("restartCount") == 1, "loop")
        async with here.node():
            after = await here.until(phase("Succeeded"), "long")
            assert after["status"]["podIP"] == before["status"]["podIP"]
            assert main_of(after)["containerID"] == main_of(before)["containerID"]
            end = main_of(after)["state"]["terminated"]
            assert end["startedAt"] == main_of(before)["state"]["running"]["startedAt"]
            assert (moment(end["finishedAt"]) - moment(end["startedAt"])).total_seconds() == 4
            assert main_of(await here.until(phase("Succeeded"), "loop"))["restartCount"] == 2


async def test_the_command_line_tells_when_it_is_ready_and_stops_when_asked(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Its Node object is there while it runs, and gone a second after SIGTERM."""
    async with cluster(control_plane, namespace) as here:
        name = here.node_name
        async with command(
            "--kubeconfig", control_plane.kubeconfig, "--name", name, "--namespace", namespace
        ) as process:
            assert process.stdout is not None
            assert name in (await process.stdout.readline()).decode()
            node = decode(await here.client.get(NODES, "", name))
            assert {"type": "Ready", "status": "True"}.items() <= node["status"]["conditions"][0].items()
            assert int(node["status"]["allocatable"]["pods"]) >= 1100
            process.terminate()
            async with asyncio.timeout(5.0):
                assert await process.wait() == 0
        with pytest.raises(NotFoundError):
            await here.client.get(NODES, "", name)


async def test_a_server_that_goes_away_for_a_while_costs_no_pod_its_life(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Its pods report something five times a second, so reports fall into the gap; those that fail are repeated."""
    async with cluster(control_plane, namespace) as here:
        node = HollowNode(here.client, name=here.node_name, namespace=namespace, timing=Timing(0.0))
        async with node:
            for number in range(5):
                await here.create(f"p{number}", "0.2s:1, " * 20 + "0s:0", restartPolicy="OnFailure")
            await here.until(phase("Running"), "p4")
            await asyncio.to_thread(control_plane.restart_apiserver)
            await here.create("later", "0s:0")
            for number in range(5):
                pod = await here.until(phase("Succeeded"), f"p{number}")
                assert main_of(pod)["restartCount"] == 20
            await here.until(phase("Succeeded"), "later")


async def test_the_command_line_fails_with_one_line(tmp_path: Path) -> None:
    """Exit code 2 for an unusable kubeconfig, 1 for a server that is not there."""
    nowhere = tmp_path / "nowhere"
    nowhere.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
        " clusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}], users: [{name: a, user: {}}]}"
    )
    for kubeconfig, exit_code in ((tmp_path / "missing", 2), (nowhere, 1)):
        async with command("--kubeconfig", kubeconfig) as process:
            _, errors = await process.communicate()
            assert process.returncode == exit_code
            assert errors.decode().startswith("hollow-node: ")
            assert errors.decode().count("\n") == 1


@asynccontextmanager
async def command(*arguments: str | Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `python -m hack.hollow_node`; it does not outlive the block."""
    pipe = asyncio.subprocess.PIPE
    program = [sys.executable, "-m", "hack.hollow_node", *map(str, arguments)]
    process = await asyncio.create_subprocess_exec(*program, cwd=ROOT, stdout=pipe, stderr=pipe)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
