"""A configuration file that changes while the operator runs, and the pods that the API server then holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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


def deployment(name: str) -> dict[str, Any]:
    """A Deployment that stands for the operator's own."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "operator", "image": "operator:1"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def training(cluster: Cluster, job: str) -> dict[str, Any]:
    """The specification of a job's worker, as the API server has it."""
    found = ("get", "pod", f"{job}-worker-0", "--ignore-not-found", "--output=json")
    eventually(lambda: bool(cluster.kubectl(*found)), f"{job} has a pod")
    spec: dict[str, Any] = json.loads(cluster.kubectl(*found))["spec"]
    return spec


def test_pods_get_what_their_accelerators_need_from_a_file_that_may_change(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file: no driver. The manifests' example: the driver. A wrong file: the driver stays, the Deployment gets an event."""
    monkeypatch.setenv("KUBEFLOW_NAMESPACE", cluster.namespace)
    monkeypatch.setenv("OPERATOR_DEPLOYMENT", "operator")
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(deployment("operator")))
    file = tmp_path / "controller_config_file.yaml"
    log = tmp_path / "process-1.log"
    with cluster.operator(f"--controller-config-file={file}"):
        cluster.create("before", specs(Worker=worker()))
        before = training(cluster, "before")
        file.write_text(read_document(AZURE)["data"][file.name])
        eventually(lambda: "config_file_taken_up" in log.read_text(), "the file is taken up")
        cluster.create("during", specs(Worker=worker()))
        during = training(cluster, "during")
        file.write_text("accelerators: nonsense")
        eventually(lambda: "config_file_wrong" in log.read_text(), "the file is found wrong")

        def warnings() -> list[str]:
            events = cluster.items("events")
            return [each["involvedObject"]["name"] for each in events if each["reason"] == REASON]

        eventually(lambda: warnings() == ["operator"], "the Deployment has an event")
        assert "got `str`" in cluster.kubectl("describe", "deployment", "operator")
        cluster.create("after", specs(Worker=worker()))
        after = training(cluster, "after")
    assert "env" not in before["containers"][0] or not any(
        each["name"] == "LD_LIBRARY_PATH" for each in before["containers"][0]["env"]
    )
    for spec in (during, after):
        (container,) = spec["containers"]
        mounts = [each["mountPath"] for each in container["volumeMounts"]]
        assert [path for path in mounts if path in PATHS] == PATHS
        assert [each["name"] for each in container["env"] if each["name"] == "LD_LIBRARY_PATH"] == ["LD_LIBRARY_PATH"]
        assert {"lib", "bin", "libcuda"} <= {each["name"] for each in spec["volumes"]}
