"""Pods with accelerators: what they get from a configuration file that changes, and how long they held them."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from fakes.manifests import read_document
from integration.cluster import Cluster, replica, specs, with_policy
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.controller.config.file import REASON

AZURE = Path(__file__).parents[2] / "manifests" / "addons" / "accelerators-azure" / "config.yaml"
GPU = "alpha.kubernetes.io/nvidia-gpu"
PATHS = ["/usr/lib/nvidia", "/usr/local/nvidia/bin", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"]


def training(cluster: Cluster, job: str) -> dict[str, Any]:
    """Create a job; return the specification of its worker, as the API server has it."""
    cluster.create(job, specs(Worker=replica(resources={"requests": {GPU: 1}})))
    found: dict[str, Any] = eventually(lambda: cluster.find("pods", f"{job}-worker-0"), f"{job} has a pod")["spec"]
    return found


def test_pods_get_what_their_accelerators_need_from_a_file_that_may_change(cluster: Cluster, tmp_path: Path) -> None:
    """No file: no driver. The manifests' example: the driver. A wrong file: the driver stays, the Deployment gets an event."""
    variables = {"KUBEFLOW_NAMESPACE": cluster.namespace, "OPERATOR_DEPLOYMENT": "operator"}
    cluster.kubectl("create", "deployment", "operator", "--image=operator:1")
    file = tmp_path / "controller_config_file.yaml"
    with cluster.operator(f"--controller-config-file={file}", variables=variables) as operator:
        before = training(cluster, "before")
        file.write_text(read_document(AZURE)["data"][file.name])
        operator.wait_for("config_file_loaded")
        during = training(cluster, "during")
        file.write_text("accelerators: nonsense")
        operator.wait_for("config_file_invalid")

        def warnings() -> list[str]:
            events = cluster.items("events")
            return [each["involvedObject"]["name"] for each in events if each["reason"] == REASON]

        eventually(lambda: warnings() == ["operator"], "the Deployment has an event")
        assert "got `str`" in cluster.kubectl("describe", "deployment", "operator")
        after = training(cluster, "after")
    assert "LD_LIBRARY_PATH" not in str(before)
    for spec in (during, after):
        (container,) = spec["containers"]
        mounts = [each["mountPath"] for each in container["volumeMounts"]]
        assert [path for path in mounts if path in PATHS] == PATHS
        assert [each["name"] for each in container["env"] if each["name"] == "LD_LIBRARY_PATH"] == ["LD_LIBRARY_PATH"]
        assert {"lib", "bin", "libcuda"} <= {each["name"] for each in spec["volumes"]}


def with_gpus(entry: dict[str, Any], **limits: str) -> dict[str, Any]:
    (container,) = entry["template"]["spec"]["containers"]
    container["resources"] = {"limits": limits}
    return entry


def test_the_seconds_of_accelerators_are_in_the_status_though_operators_are_killed(cluster: Cluster) -> None:
    """By the pods of a list and of a watch; those of a suspended run, and of a run that ends."""
    chief = with_gpus(replica(run="6s:0"), **{"nvidia.com/gpu": "4", "cpu": "1m"})
    servers = with_gpus(replica(run="forever"), **{"nvidia.com/gpu": "1", "example.com/fpga": "2"})
    with cluster.node():
        with cluster.operator():
            cluster.create("job", with_policy(specs(Chief=chief, PS=servers), cleanPodPolicy="None"))
            eventually(lambda: "acceleratorPods" in cluster.job("job").get("status", {}), "its pods run")
            cluster.patch("tfjobs", "job", {"spec": {"runPolicy": {"suspend": True}}})
            cluster.wait_for("job", ConditionType.SUSPENDED)
        cluster.patch("tfjobs", "job", {"spec": {"runPolicy": {"suspend": False}}})
        with cluster.start():  # and kill it
            eventually(lambda: cluster.job("job")["status"].get("acceleratorPods", {}).get("running"), "its pods run")
        with cluster.operator() as second:
            status = cluster.wait_for("job", ConditionType.SUCCEEDED)
            finished = second.wait_for("job_finished")
    pod = cluster.find("pods", "job-chief-0")["status"]
    ended = pod["containerStatuses"][0]["state"]["terminated"]["finishedAt"]
    held_s = (datetime.fromisoformat(ended) - datetime.fromisoformat(pod["startTime"])).total_seconds()
    assert "acceleratorPods" not in status
    seconds = status["acceleratorSeconds"]
    gpus, fpgas = seconds["nvidia.com/gpu"], seconds["example.com/fpga"]
    assert gpus["succeeded"] == 4 * held_s > 0
    assert (fpgas["endedWithJob"], fpgas.keys()) == (2 * gpus["endedWithJob"], {"endedWithJob", "suspended"})
    assert (json.loads(finished["accelerator_seconds"]), finished["outcome"]) == (seconds, "Succeeded")
