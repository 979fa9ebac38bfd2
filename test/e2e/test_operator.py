"""Disruptions of the operator: its leader crashes, a new version is rolled out."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from e2e.cluster import OPERATOR, NodeCluster, job, replica, runs, script
from integration.cluster import specs
from tfjob_operator.api.v1.constants import ConditionType

JOBS = 50
LEASE_S = 15.0
RETRY_S = 2.0


def test_the_trouble_shooting_guide_works_as_written(cluster: NodeCluster) -> None:
    """Find the operator's pod by its label and look for the line about an invalid job."""
    cluster.create(job("wrong", specs(Worker={"replicas": 1, "template": {"spec": {"containers": []}}})))
    cluster.wait_for("wrong", ConditionType.FAILED)

    def lines() -> list[str]:
        logs = [cluster.kubectl("logs", "-n", "kubeflow", pod) for pod in cluster.operators()]
        return [line for log in logs for line in log.splitlines() if "default/wrong" in line]

    cluster.eventually(lambda: any("InvalidTFJobSpec" in line for line in lines()), "a line tells", 10.0, lines)
    assert "InvalidTFJobSpec" in cluster.kubectl("describe", "tfjobs", "wrong")
    cluster.delete("wrong")


def test_an_idle_operator_fits_its_requests(cluster: NodeCluster, figure: Callable[[str], None]) -> None:
    """An idle replica needs less memory than it requests, so that there is room for jobs."""
    asked = 128e6
    for pod in cluster.operators():
        used = cluster.node.containers.memory(cluster.container_id(pod, "kubeflow"))
        status = cluster.kubectl("exec", "-n", "kubeflow", pod, "--", "cat", "/proc/1/status").splitlines()
        resident = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS:"))
        figure(f"memory of an idle operator: {used / 1e6:.0f} MB in its cgroup, {resident:.1f} MB resident")
        assert used < asked


@pytest.mark.parametrize("how", ["killed", "deleted"])
def test_fifty_jobs_run_once_though_the_leader_goes(
    cluster: NodeCluster, how: str, figure: Callable[[str], None]
) -> None:
    """No job is lost and none runs twice; a deleted leader hands over at once, after a killed one its lease has to run out."""
    cluster.wait_for_operator()
    names = [f"{how}-{number}" for number in range(JOBS)]
    for half in (names[: JOBS // 2], names[JOBS // 2 :]):
        cluster.create(*(job(name, specs(Worker=replica(script(name, then="sleep 1")))) for name in half))
        if half[0] == names[0]:
            old, pod = cluster.holder(), cluster.leader()
            if how == "killed":
                cluster.kill_container(pod, "kubeflow")
            else:
                cluster.kubectl("delete", "pod", pod, "-n", "kubeflow", "--wait=false")
            left = time.monotonic()
    cluster.eventually(lambda: cluster.holder() not in {"", old}, "another one leads", LEASE_S + 4 * RETRY_S)
    figure(f"hand-over from a leader that was {how}: {time.monotonic() - left:.1f} s")

    def states() -> dict[str, int]:
        items: list[dict[str, Any]] = json.loads(cluster.kubectl("get", "tfjobs", "-o", "json"))["items"]
        found = [item["status"]["conditions"][-1]["type"] if "status" in item else "" for item in items]
        return {state: found.count(state) for state in set(found)}

    cluster.eventually(lambda: states().get(ConditionType.SUCCEEDED, 0) >= JOBS, "all have succeeded", 400.0, states)
    assert [name for name in names if runs(name) != 1] == []
    cluster.kubectl("delete", "tfjobs", *names, "--wait=false")
    cluster.wait_for_operator()


def test_jobs_do_not_notice_a_new_version_of_the_operator(cluster: NodeCluster) -> None:
    """A rolling update always leaves two ready replicas, and a running job goes on in its pod."""
    cluster.create(job("goes-on", specs(Worker=replica(script("goes-on", then="sleep 20")))))
    cluster.wait_for("goes-on", ConditionType.RUNNING)
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
    cluster.wait_for("goes-on", ConditionType.SUCCEEDED)
    assert runs("goes-on") == 1
    cluster.delete("goes-on")
