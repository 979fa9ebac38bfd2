"""The hollow node as scheduler of several nodes, on a real API server; with `--record`, the real kube-scheduler.

`--record` writes kube-scheduler's messages for the pods in `test/fakes/unschedulable.py` into `test/data/recordings`.
"""

import asyncio
import json
import ssl
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPSConnection
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
from integration.cluster import Cluster, replica, specs
from integration.operator_process import ROOT, kubeconfig
from support.waiting import eventually, until
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
    said = (
        "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient nvidia.com/gpu."
    )
    with cluster.operator(), cluster.node(POOLS):
        cluster.create("gpus", specs(Worker=worker) | {"successPolicy": "AllWorkers"})
        (event,) = eventually(
            lambda: [each for each in cluster.items("events") if each["reason"] == "FailedScheduling"], "one waits"
        )
        assert event["message"].startswith(said)
        (condition,) = next(pod for pod in cluster.items("pods") if "nodeName" not in pod["spec"])["status"][
            "conditions"
        ]
        told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": event["message"]}
        assert condition.items() >= told.items()
        cluster.wait_for("gpus", "Succeeded")
        assert {pod["spec"]["nodeName"] for pod in cluster.items("pods")} == {"gpu-0", "gpu-1"}


def test_a_node_object_is_heeded_when_it_is_edited_and_goes_with_its_process(cluster: Cluster) -> None:
    """A pod waits while the only node is cordoned."""
    path = "/api/v1/nodes/only"
    with cluster.node("[{name: only}]"):
        assert cluster.plane.request("GET", path)[1]["status"]["conditions"][0]["type"] == "Ready"
        cluster.kubectl("cordon", "only")
        cluster.kubectl("run", "p", "--image=img", "--restart=Never")
        eventually(lambda: "1 node(s) were unschedulable" in str(cluster.items("pods")), "it waits")
        cluster.kubectl("uncordon", "only")
        eventually(lambda: cluster.items("pods")[0]["status"]["phase"] == "Succeeded", "it ran")
    assert cluster.plane.request("GET", path)[0] == HTTPStatus.NOT_FOUND


def test_a_hollow_node_that_cannot_work_says_why_in_one_line(tmp_path: Path) -> None:
    """Exit code 2 for an unusable kubeconfig, 1 for a server that is not there."""
    nowhere = kubeconfig(tmp_path, "http://127.0.0.1:9")
    for file, code in ((tmp_path / "missing", 2), (nowhere, 1)):
        command = [sys.executable, "-m", "hack.hollow_node", f"--kubeconfig={file}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1)
        assert done.stderr.startswith("hollow-node: ")


def test_kubectl_reads_the_logs_of_a_pod_from_its_script(cluster: Cluster) -> None:
    """By the API server, which has to show its client certificate: of a run, the one before, and as they are printed."""
    meta = {"name": "p", "annotations": {RUN: "1.2s:1, 1.2s:0", LOG: "loading\n0.5s half\n1s done"}}
    spec = {"restartPolicy": "OnFailure", "containers": [{"name": "main", "image": "img"}]}
    with cluster.node():
        cluster.post({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        eventually(lambda: "'restartCount': 1" in str(cluster.items("pods")), "it is restarted")
        assert cluster.kubectl("logs", "p", "--follow") == "loading\nhalf\ndone\n"
        assert cluster.kubectl("logs", "p", "--previous", "--tail=1") == "done\n"
        stamped = cluster.kubectl("logs", "p", "--timestamps", "--limit-bytes=40")
        assert stamped.startswith(f"{datetime.now(UTC):%Y-%m-%dT}")
        assert len(stamped) == 40
        node = cluster.plane.request("GET", f"/api/v1/nodes/node-{cluster.namespace}")[1]
        port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        anybody = ssl.create_default_context()
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        stranger = HTTPSConnection("127.0.0.1", port, context=anybody, timeout=10.0)
        with closing(stranger):
            stranger.request("GET", f"/containerLogs/{cluster.namespace}/p/main")
            with pytest.raises((ssl.SSLError, ConnectionError)):
                stranger.getresponse()


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
    nodes = parse_nodes(case.nodes) if case.nodes != "[]" else ()
    async with registered(client, nodes, 1, datetime.now(UTC), NEWEST):
        for name in case.cordoned:
            await client.patch(NODES, "", name, {"spec": {"unschedulable": True}})
        for name, spec in case.running.items():
            await _create(client, f"on-{name}", {**spec, "nodeName": name})
        await asyncio.sleep(1.0)  # until the scheduler knows of them
        await _create(client, "waiting", case.pod)
        messages: list[str] = []

        async def is_told() -> bool:
            pod = msgspec.json.decode(await client.get(PODS, "default", "waiting"))
            messages[:] = [each["message"] for each in pod["status"].get("conditions", [])[:1]]
            assert "nodeName" not in pod["spec"], case
            return any(messages)

        await until(is_told, "the scheduler says why the pod waits", tick_s=0.1)
        for name in ("waiting", *(f"on-{name}" for name in case.running)):
            await client.delete(PODS, "default", name, grace_s=0)
    return messages[0]


async def _create(client: RestClient, name: str, spec: dict[str, Any]) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    await client.create(PODS, "default", body)
