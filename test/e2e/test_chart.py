"""The Helm chart on a real node: helm takes ownership of objects of kubectl, upgrades and removes them, while jobs run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.cluster import RUNS, NodeCluster, job, replica, runs, script
from e2e.stand_in import TRAINER
from hack.chart.__main__ import CHART, ROOT
from hack.chart.helm import Helm
from hack.matrix.releases import HELMS, cached
from hack.objects import an_object
from integration.cluster import specs
from support.machine import lacks
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1alpha1.constants import TENSORFLOW

RELEASE: Final = ("tf-job", "--namespace=kubeflow")
WAIT: Final = ("--wait", "--timeout=140s")
VALUES: Final = (
    "--set=image.repository=tfjob-operator",
    "--set=cloud=azure",
    "--set=apis={kubeflow.org/v1,kubeflow.org/v1alpha1,tensorflow.org/v1alpha1}",
)
HELM: Final = next(release.helm for release in HELMS if release.helm.startswith("3.17"))
"""The Helm 3 that can take objects over."""
EXAMPLES: Final = ROOT / "manifests" / "examples"
TF_JOB: Final = "tfjobs.tensorflow.org"


@pytest.fixture
def helm(cluster: NodeCluster, images: None, tmp_path: Path) -> Iterator[Helm]:
    """A helm from the cache; after the test the operator is again installed by kubectl, as other tests expect."""
    program = cached("helm", HELM)
    if program is None:
        pytest.skip(lacks(f"helm {HELM}", "make chart"))
    helm = Helm(program, tmp_path, cluster.node.plane.kubeconfig)
    yield helm
    helm("uninstall", *RELEASE, "--ignore-not-found", "--wait")
    standalone = str(ROOT / "manifests" / "overlays" / "standalone")
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", standalone)
    cluster.wait_for_operator()


def test_jobs_that_run_notice_nothing_of_helm_and_those_of_documents_run_under_its_operator(
    cluster: NodeCluster, helm: Helm
) -> None:
    """A job of v1 and one of tensorflow.org each run once, in one pod, whatever happens to the operator meanwhile."""
    helm("install", *RELEASE, str(CHART), *WAIT, *VALUES, "--take-ownership")
    cluster.node.plane.wait_for_crd(TF_JOB)
    cluster.node.plane.restart_controller_manager()  # its garbage collector knows TfJobs now
    cluster.wait_for_operator()
    found = cluster.kubectl("describe", "configmaps", "tf-job-operator-config", "-n", "kubeflow")
    assert "alpha.kubernetes.io/nvidia-gpu" in found
    run_documents(cluster)
    pods = start_jobs_that_wait(cluster)
    helm("upgrade", *RELEASE, str(CHART), *WAIT, *VALUES, "--set=logLevel=debug")
    cluster.wait_for_operator()
    helm("uninstall", *RELEASE, "--wait")
    assert cluster.operators() == []
    assert {name: cluster.pod(name) for name in pods} == pods
    assert all(cluster.is_running(name) for name in pods)
    helm("install", *RELEASE, str(CHART), *WAIT, *VALUES)
    cluster.wait_for_operator()
    assert {name: cluster.pod(name) for name in pods} == pods
    (RUNS / "may-end").touch()
    cluster.wait_for("steady", ConditionType.SUCCEEDED)
    cluster.kubectl("wait", f"{TF_JOB}/steady", "--for=condition=Succeeded", "--timeout=120s")
    assert (runs("steady-v1"), runs("steady-alpha")) == (1, 1)
    cluster.kubectl("delete", "tfjob/steady", f"{TF_JOB}/steady")


def start_jobs_that_wait(cluster: NodeCluster) -> dict[str, tuple[str, int]]:
    """Start a job of v1 and one of tensorflow.org that run until they may end. Return their pods."""
    then = "until test -e /runs/may-end; do sleep 0.2; done"
    cluster.create(job("steady", specs(Worker=replica(script("steady-v1", then=then), policy="OnFailure"))))
    template = replica(script("steady-alpha", then=then))["template"]
    template["spec"]["restartPolicy"] = "OnFailure"
    spec = {"RuntimeId": "calm", "replicaSpecs": [{"template": template}]}
    alpha = an_object(TENSORFLOW.resource, "steady", spec)
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(alpha))
    cluster.eventually(lambda: runs("steady-v1") == runs("steady-alpha") == 1, "both run")
    selected = ("-l", "job-name in (steady, master-calm-0)", "-o", "jsonpath={.items[*].metadata.name}")
    names = cluster.kubectl("get", "pods", *selected).split()
    assert len(names) == 2
    for name in names:
        cluster.eventually(lambda name=name: cluster.is_running(name), f"{name} is said to run")  # type: ignore[misc]
    return {name: cluster.pod(name) for name in names}


def run_documents(cluster: NodeCluster) -> None:
    """Run the first job of the guide of 2017, and the job with parameter server and workers of the guide to v1."""
    cluster.kubectl("create", "-f", str(EXAMPLES / "migration" / "v1alpha1" / "tensorflow-org.yaml"))
    text = (EXAMPLES / "02-ps-workers.yaml").read_text().replace("gcr.io/your-project/your-image", TRAINER)
    v1: dict[str, Any] = yaml.safe_load(text)
    v1["metadata"] = {"name": "trains", "namespace": "default"}
    cluster.create(v1)
    cluster.kubectl("wait", f"{TF_JOB}/poet", "--for=condition=Succeeded", "--timeout=120s")
    cluster.wait_for("trains", ConditionType.SUCCEEDED)
    assert "got parameters from trains-ps-0.default.svc:2222" in cluster.kubectl("logs", "trains-worker-0")
    cluster.kubectl("delete", f"{TF_JOB}/poet")
    cluster.delete("trains")
