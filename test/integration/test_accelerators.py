"""A configuration file that changes while the operator runs, and the pods that are created afterwards."""

from pathlib import Path
from typing import Any

from fakes.manifests import read_document
from integration.cluster import Cluster, specs
from support.waiting import eventually
from tfjob_operator.controller.config.file import REASON

AZURE = Path(__file__).parents[2] / "manifests" / "addons" / "accelerators-azure" / "config.yaml"
GPU = "alpha.kubernetes.io/nvidia-gpu"
PATHS = ["/usr/lib/nvidia", "/usr/local/nvidia/bin", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"]


def worker() -> dict[str, Any]:
    """A worker that asks for a GPU in its requests only, not in its limits."""
    container = {"name": "tensorflow", "image": "train:1", "resources": {"requests": {GPU: 1}}}
    return {"replicas": 1, "template": {"spec": {"containers": [container]}}}


def training(cluster: Cluster, job: str) -> dict[str, Any]:
    """Create a job; return the specification of its worker, as the API server has it."""
    cluster.create(job, specs(Worker=worker()))
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
