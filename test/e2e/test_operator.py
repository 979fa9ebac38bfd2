"""The operator's own troubles: its leader dies, its node is lost, a new version is rolled out."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from api.v1 import constants as c
from e2e.cluster import OPERATOR, job, replica, runs, script

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.cluster import Cluster

JOBS = 50
FOREVER = "while true; do sleep 1; done"
LEASE_S = 15.0
RETRY_S = 2.0
NODE_LOST_LIMIT_S = 120.0  # the API server's controllers give a silent node 40 s, and its pods TOLERATION_S more


def test_the_trouble_shooting_guide_works_as_written(cluster: Cluster) -> None:
    """Find the operator's pod by its label and look for the line about an invalid job; seed 4."""
    cluster.create(job("wrong", {"Worker": {"replicas": 1, "template": {"spec": {"containers": []}}}}))
    cluster.wait_for("wrong", c.FAILED)
    logs = [cluster.kubectl("logs", "-n", "kubeflow", pod) for pod in cluster.operators()]
    assert any('"default/wrong"' in line and "tensorflow" in line for log in logs for line in log.splitlines())
    assert "tensorflow" in cluster.kubectl("describe", "tfjobs", "wrong")
    cluster.delete("wrong")


def test_an_idle_operator_fits_its_requests(cluster: Cluster, record_property: Callable[[str, object], None]) -> None:
    """The memory that a replica asks for is what it needs, with room for jobs."""
    asked = 128e6
    for pod in cluster.operators():
        used = cluster.node.containers.memory(container_id(cluster, pod))
        record_property(f"{pod} bytes", used)
        assert used < asked


def container_id(cluster: Cluster, pod: str) -> str:
    """The container of an operator's pod."""
    status = cluster.get("pod", pod, "kubeflow")["status"]["containerStatuses"][0]
    return str(status["containerID"]).removeprefix("containerd://")


@pytest.mark.parametrize("how", ["killed", "deleted"])
def test_fifty_jobs_run_once_though_the_leader_goes(
    cluster: Cluster, how: str, record_property: Callable[[str, object], None]
) -> None:
    """No job is lost and no pod made twice; a leader that is told to go hands over, a dead one costs the rest of its lease."""
    cluster.wait_for_operator()
    names = [f"{how}-{number}" for number in range(JOBS)]
    for half in (names[: JOBS // 2], names[JOBS // 2 :]):
        cluster.create(*(job(name, {"Worker": replica(script(name, then="sleep 1"))}) for name in half))
        if half[0] == names[0]:
            old = cluster.leader()
            if how == "killed":
                cluster.kubectl("delete", "pod", old, "-n", "kubeflow", "--grace-period=0", "--force")
            else:
                cluster.kubectl("delete", "pod", old, "-n", "kubeflow", "--wait=false")
            left = time.monotonic()
    cluster.eventually(lambda: cluster.leader() not in {"", old}, "another one leads", LEASE_S + 4 * RETRY_S)
    record_property("hand-over seconds", round(time.monotonic() - left, 1))

    def states() -> dict[str, int]:
        items: list[dict[str, Any]] = json.loads(cluster.kubectl("get", "tfjobs", "-o", "json"))["items"]
        found = [item["status"]["conditions"][-1]["type"] if "status" in item else "" for item in items]
        return {state: found.count(state) for state in set(found)}

    cluster.eventually(lambda: states().get(c.SUCCEEDED, 0) >= JOBS, "all have succeeded", 400.0, states)
    assert [name for name in names if runs(name) != 1] == []
    cluster.kubectl("delete", "tfjobs", *names, "--wait=false")
    cluster.wait_for_operator()


def test_jobs_do_not_notice_a_new_version_of_the_operator(cluster: Cluster) -> None:
    """A rolling update: one pod more than usual, never one fewer, and a job that runs goes on in its pod."""
    cluster.create(job("goes-on", {"Worker": replica(script("goes-on", then="sleep 20"))}))
    cluster.wait_for("goes-on", c.RUNNING)
    before = cluster.operators()
    cluster.kubectl("rollout", "restart", OPERATOR, "-n", "kubeflow")
    fewest = 2

    def is_renewed() -> bool:
        nonlocal fewest
        status = cluster.get("deployment", "tf-job-operator", "kubeflow")["status"]
        fewest = min(fewest, status.get("readyReplicas", 0))
        return not set(before) & set(cluster.operators()) and cluster.leader() in cluster.operators()

    cluster.eventually(is_renewed, "all replicas are new, and one leads")
    cluster.wait_for_operator()
    assert fewest == 2
    cluster.wait_for("goes-on", c.SUCCEEDED)
    assert runs("goes-on") == 1
    cluster.delete("goes-on")


def test_a_job_outlives_the_loss_of_its_node(cluster: Cluster) -> None:
    """The node is silent, its pods are marked for deletion; when it is back they go, and the job runs again and ends."""
    then = f"test $RUN -ge 2 || {FOREVER}"
    cluster.create(job("stranded", {"Worker": replica(script("stranded", then=then), policy="OnFailure")}))
    cluster.eventually(lambda: runs("stranded") == 1 and cluster.is_running("stranded-worker-0"), "it runs")
    cluster.node.stop_kubelet()
    try:
        cluster.eventually(lambda: not cluster.node.is_ready(), "the node is lost", NODE_LOST_LIMIT_S)
        cluster.eventually(lambda: not cluster.pods_of("stranded"), "its pods are to go", NODE_LOST_LIMIT_S)
    finally:
        cluster.node.start_kubelet()
    cluster.eventually(cluster.node.is_ready, "the node is back")
    cluster.wait_for("stranded", c.SUCCEEDED, NODE_LOST_LIMIT_S)
    assert runs("stranded") == 2
    cluster.delete("stranded")
    cluster.wait_for_operator()
