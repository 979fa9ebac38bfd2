"""The gallery of manifests/examples: each file is created as documented, and its job reaches the state in README.md.

Nodes of three pools are simulated, so with a wrong label, taint or resource the job would stay Created. The programs do not
run.
"""

import json
import re
from typing import Final

import yaml

from hack.control_plane import ControlPlane
from integration.cluster import Cluster
from integration.operator_process import ROOT
from support.waiting import eventually

EXAMPLES: Final = ROOT / "manifests" / "examples"
NODES: Final = """
- {name: cpu, count: 2, allocatable: {cpu: 16, memory: 64Gi}}
- name: gpu
  labels: {pool: gpu}
  taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
  allocatable: {cpu: 8, nvidia.com/gpu: 1}
- {name: spot, labels: {pool: spot}, taints: [{key: spot, value: "true", effect: NoSchedule}]}
"""
CRON_JOB_V1: Final = 21
"""The first minor version of Kubernetes that serves CronJobs as batch/v1."""


def gallery() -> dict[str, str]:
    """The states by file, as README.md names them. Files that are marked "not run" are left out."""
    section = (EXAMPLES / "README.md").read_text().partition("## Gallery")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\S+\.yaml)` \| .* \| (.+) \|$", section, re.MULTILINE)
    return {file: state for file, state in rows if state != "not run"}


def test_every_job_of_the_gallery_reaches_the_state_of_its_line(control_plane: ControlPlane, cluster: Cluster) -> None:
    """One job of each file; of the sweep as many as its loop makes; of the CronJob the one that it would make at night."""
    states = gallery()
    assert states.keys() >= {path.name for path in EXAMPLES.glob("2*.yaml")}
    with cluster.operator(), cluster.node(NODES):
        jobs: dict[str, str] = {}
        for file, state in states.items():
            text = (EXAMPLES / file).read_text()
            if control_plane.version.minor < CRON_JOB_V1:
                text = text.replace("batch/v1\nkind: CronJob", "batch/v1beta1\nkind: CronJob")
            variants = (
                [text.replace('"0.01"', f'"{rate}"') for rate in (0.1, 0.01, 0.001)] if "sweep" in file else [text]
            )
            for each in variants:
                jobs |= dict.fromkeys(created(cluster, each), state)
        eventually(lambda: "restart-all-worker-3" in cluster.names("pods"), "the pod that is to fail exists")
        cluster.kubectl("annotate", "pod", "restart-all-worker-3", "hollow.tfjob.kubeflow.org/run=0s:42", "--overwrite")
        jobs[nightly(control_plane, cluster)] = states["27-nightly.yaml"]
        assert len(cluster.names("tfjobs")) == len(jobs) == len(states) + 2
        for job, state in jobs.items():
            cluster.wait_for(job, state)
        nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in cluster.items("pods")}
        assert (nodes["gpu-worker-0"], nodes["spot-worker-0"]) == ("gpu", "spot")
        status = cluster.job("restart-all")["status"]
        assert (status["attempt"], status["attemptHistory"][0]["exitCode"]) == (1, 42)
        assert "board-tensorboard" in cluster.names("deployments")
        assert len(cluster.kubectl("get", "tfjobs", "--selector=sweep=rate", "--output=name").split()) == 3


def created(cluster: Cluster, text: str) -> list[str]:
    """Create the objects of a file; return the names of its TFJobs."""
    names = cluster.kubectl("create", "--output=name", "-f", "-", stdin=text).split()
    return [name.partition("/")[2] for name in names if name.startswith("tfjob.")]


def nightly(plane: ControlPlane, cluster: Cluster) -> str:
    """Start the CronJob's Job now, and run its command, which no node runs here, as its service account; return the TFJob."""
    cluster.kubectl("create", "job", "--from=cronjob/nightly", "nightly-now")
    (config,) = (each for each in cluster.items("configmaps") if each["metadata"]["name"] == "nightly")
    (cron,) = json.loads(cluster.kubectl("get", "cronjobs", "--output=json"))["items"]
    (container,) = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["kubectl", "create", "--filename=/job/job.yaml"]
    assert yaml.safe_load(config["data"]["job.yaml"])["kind"] == "TFJob"
    eventually(
        lambda: cluster.kubectl("get", "job", "nightly-now", "--output=jsonpath={.status.succeeded}") == "1", "it ran"
    )
    user = f"system:serviceaccount:{cluster.namespace}:nightly"
    kubeconfig = plane.kubeconfig_for(user)
    made = plane.run_kubectl(
        f"--kubeconfig={kubeconfig}",
        f"--namespace={cluster.namespace}",
        "create",
        "--output=name",
        "--filename=-",
        input=config["data"]["job.yaml"],
    ).stdout
    return made.strip().partition("/")[2]
