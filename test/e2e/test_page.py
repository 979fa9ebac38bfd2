"""The dashboard in a pod, from `kubectl apply -k manifests/addons/page`: a viewer sees a job with real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import NAMESPACE, NodeCluster, job, replica
from integration.cluster import specs

ADDON = Path(__file__).parents[2] / "manifests" / "addons" / "page"
PAGE = ("tf-job-page", "kubeflow")
TRAINS = "echo step 1: loss = 0.5; while true; do sleep 1; done"


@pytest.fixture
def page(cluster: NodeCluster) -> Iterator[None]:
    """The addon, ready."""
    name, namespace = PAGE
    cluster.kubectl("apply", "--server-side", "-k", str(ADDON))

    def is_ready() -> bool:
        return bool(cluster.get("deployment", name, namespace).get("status", {}).get("availableReplicas"))

    cluster.eventually(is_ready, "the page is ready: it has read all jobs")
    yield
    cluster.kubectl("delete", "-k", str(ADDON), "--wait=false", "--ignore-not-found")


@pytest.mark.usefixtures("page")
def test_a_viewer_sees_a_job_and_its_log_and_somebody_without_rights_does_not(cluster: NodeCluster) -> None:
    """By tokens of service accounts: one has `view` in the namespace, the other nothing."""
    service, namespace = PAGE
    for name in ("sees-jobs", "sees-nothing"):
        cluster.kubectl("create", "serviceaccount", name, "-n", NAMESPACE)
    account = f"--serviceaccount={NAMESPACE}:sees-jobs"
    cluster.kubectl("create", "rolebinding", "sees-jobs", "--clusterrole=view", account, "-n", NAMESPACE)
    viewer, other = (cluster.node.plane.request_token(NAMESPACE, name) for name in ("sees-jobs", "sees-nothing"))
    cluster.create(job("paged", specs(Worker=replica(["sh", "-c", TRAINS]))))
    cluster.eventually(lambda: cluster.is_running("paged-worker-0"), "the process runs")

    def ask(path: str, token: str, until: str = "") -> str:
        return str(cluster.page(service, path, namespace=namespace, token=token, until=until))

    key, log = f"{NAMESPACE}/paged", f"/-/log/{NAMESPACE}/paged-worker-0"
    cluster.eventually(lambda: "step 1: loss" in ask(log, viewer), "its log is shown")
    told = ask(f"/-/stream?job={key}", viewer, until='"timeline"')
    assert f'"{key}"' in told
    assert "kind: TFJob" in ask(f"/-/manifest/{key}", viewer)
    assert "causes" in ask(f"/-/explain/{key}", viewer)
    for path in (log, f"/-/manifest/{key}", f"/-/explain/{key}"):
        assert ask(path, other) == ask(path, "") == ""
    cluster.delete("paged")
    cluster.kubectl("delete", "serviceaccount,rolebinding", "sees-jobs", "-n", NAMESPACE, "--ignore-not-found")
    cluster.kubectl("delete", "serviceaccount", "sees-nothing", "-n", NAMESPACE)
