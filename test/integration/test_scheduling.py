"""The hollow node as scheduler of several nodes, on a real API server; and, with `--record`, the real kube-scheduler.

`--record` writes what kube-scheduler says of the pods in `test/fakes/unschedulable.py` into `test/data/recordings`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.recordings import texts_file
from fakes.unschedulable import CASES, Case
from hack.control_plane import ControlPlane
from hack.control_plane.build.binaries import find_or_build_programs, version_of
from hack.control_plane.run.part import Part
from hack.hollow_node.node import NODES, parse_nodes, registered
from hack.hollow_node.script import LOG, RUN
from hack.kubernetes_versions import NEWEST
from hack.real_node.node import kube_scheduler_command
from integration.cluster import ROOT, Cluster, replica, specs
from support.waiting import eventually
from tfjob_operator.api.client import HttpTransport, RestClient, load_settings
from tfjob_operator.api.core import PODS

POOLS = """
- {name: cpu, allocatable: {cpu: 4}}
- name: gpu
  count: 2
  labels: {pool: gpu}
  taints: [{key: gpu, value: "true", effect: NoSchedule}]
  allocatable: {cpu: 8, nvidia.com/gpu: 2}
"""


def test_pods_wait_for_room_in_the_schedulers_words_and_get_it(cluster: Cluster) -> None:
    """Three workers that share two GPU nodes; the third one gets its place when the first ones have ended."""
    worker = replica(3, run="2s:0")
    worker["template"]["spec"] |= {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "containers": [{"name": "tensorflow", "image": "img", "resources": {"limits": {"nvidia.com/gpu": 2}}}],
    }
    with cluster.operator(), cluster.node(POOLS):
        cluster.create("gpus", specs(Worker=worker) | {"successPolicy": "AllWorkers"})
        (event,) = eventually(
            lambda: [each for each in cluster.items("events") if each["reason"] == "FailedScheduling"], "one waits"
        )
        said = "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient nvidia.com/gpu."
        assert event["message"].startswith(said)
        waiting = next(pod for pod in cluster.items("pods") if "nodeName" not in pod["spec"])
        (condition,) = waiting["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "Unschedulable",
        )
        assert condition["message"] == event["message"]
        cluster.wait_for("gpus", "Succeeded")
        assert {pod["spec"]["nodeName"] for pod in cluster.items("pods")} == {"gpu-0", "gpu-1"}


def test_a_node_that_is_no_longer_cordoned_takes_the_pods_that_wait(cluster: Cluster) -> None:
    """As with a toleration or a label: whoever edits a Node object is heeded."""
    with cluster.node("[{name: only}]"):
        cluster.kubectl("cordon", "only")
        cluster.kubectl("run", "p", "--image=img", "--restart=Never")
        eventually(lambda: "1 node(s) were unschedulable" in cluster.kubectl("describe", "pod", "p"), "it waits")
        cluster.kubectl("uncordon", "only")
        eventually(lambda: cluster.items("pods")[0]["status"]["phase"] == "Succeeded", "it ran")


def test_kubectl_reads_the_logs_of_a_pod_from_its_script(cluster: Cluster, control_plane: ControlPlane) -> None:
    """By the API server, which has to show its client certificate: of a run, the one before, and as they are printed."""
    script = {RUN: "1.2s:1, 1.2s:0", LOG: "loading\n0.5s half\n1s done"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": script},
        "spec": {"restartPolicy": "OnFailure", "containers": [{"name": "main", "image": "img"}]},
    }
    with cluster.node():
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(pod))
        eventually(lambda: "restartCount: 1" in cluster.kubectl("get", "pod", "p", "--output=yaml"), "it is restarted")
        assert cluster.kubectl("logs", "p", "--follow") == "loading\nhalf\ndone\n"
        assert cluster.kubectl("logs", "p", "--previous", "--tail=1") == "done\n"
        stamped = cluster.kubectl("logs", "p", "--timestamps", "--limit-bytes=40")
        assert stamped.startswith(f"{datetime.now(UTC):%Y-%m-%dT}")
        assert len(stamped) == 40
        path = "jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}"
        port = cluster.kubectl("get", "node", f"node-{cluster.namespace}", f"--output={path}")
        url = f"https://127.0.0.1:{port}/containerLogs/{cluster.namespace}/p/main"
        stranger = subprocess.run(["curl", "-sk", url], capture_output=True, text=True, check=False)
        assert (stranger.returncode != 0, stranger.stdout) == (True, "")


async def test_what_the_real_scheduler_says_is_recorded(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Each case has its own nodes, which no kubelet stands behind."""
    if not pytestconfig.getoption("--record", default=False):
        pytest.skip("records only")
    program = find_or_build_programs(["kube-scheduler"])["kube-scheduler"]
    said: dict[str, str] = {}
    with ControlPlane.start("scheduling") as plane:
        kubeconfig = plane.kubeconfig_for("system:kube-scheduler")
        scheduler = Part("kube-scheduler", tmp_path / "log")
        scheduler.start(kube_scheduler_command(program, kubeconfig, version_of(program)), ROOT)
        try:
            async with HttpTransport(load_settings(str(plane.kubeconfig))) as transport:
                for name, case in CASES.items():
                    said[name] = await _said_of(RestClient(transport, field_manager="test"), case)
        finally:
            scheduler.kill()
        version = json.loads(plane.run_kubectl("get", "--raw", "/version").stdout)["gitVersion"].removeprefix("v")
    texts_file(version, "scheduling").write_text(json.dumps(said, indent=1) + "\n")


async def _said_of(client: RestClient, case: Case) -> str:
    """Return the message of a case's pod."""
    nodes = parse_nodes(case.nodes) if case.nodes != "[]" else ()
    async with registered(client, nodes, 1, datetime.now(UTC), NEWEST):
        for name in case.cordoned:
            await client.patch(NODES, "", name, {"spec": {"unschedulable": True}})
        for name, spec in case.running.items():
            await _create(client, f"on-{name}", {**spec, "nodeName": name})
        await asyncio.sleep(1.0)  # until the scheduler knows of them
        await _create(client, "waiting", case.pod)
        message = ""
        while not message:
            await asyncio.sleep(0.1)
            pod = msgspec.json.decode(await client.get(PODS, "default", "waiting"))
            message = pod["status"].get("conditions", [{}])[0].get("message", "")
            assert "nodeName" not in pod["spec"], case
        for name in ("waiting", *(f"on-{name}" for name in case.running)):
            await client.delete(PODS, "default", name, grace_s=0)
    return message


async def _create(client: RestClient, name: str, spec: dict[str, Any]) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    await client.create(PODS, "default", body)
