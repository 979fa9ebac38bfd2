"""The operator's own problems: its leader dies, its node is lost, a new version is rolled out."""

import datetime as dt
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from e2e.cluster import OPERATOR, NodeCluster, job, replica, runs, script
from tfjob_operator.api.v1.constants import ConditionType

JOBS = 50
FOREVER = "while true; do sleep 1; done"
LEASE_S = 15.0
RETRY_S = 2.0
NODE_LOST_LIMIT_S = 120.0  # the API server's controllers give a silent node 40 s, and its pods TOLERATION_S more


def test_the_trouble_shooting_guide_works_as_written(cluster: NodeCluster) -> None:
    """Find the operator's pod by its label and look for the line about an invalid job."""
    cluster.create(job("wrong", {"Worker": {"replicas": 1, "template": {"spec": {"containers": []}}}}))
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
        cluster.create(*(job(name, {"Worker": replica(script(name, then="sleep 1"))}) for name in half))
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
    cluster.create(job("goes-on", {"Worker": replica(script("goes-on", then="sleep 20"))}))
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


class SpareNode:
    """A Node object without a machine, which is ready as long as a test calls `beat`.

    If the lost node were the only one, Kubernetes would assume that it is itself cut off, and evict no pods.
    """

    def __init__(self, cluster: NodeCluster) -> None:
        self._cluster = cluster
        ready = {"type": "Ready", "status": "True", "reason": "Spare", "message": "made by a test"}
        node = {"kind": "Node", "metadata": {"name": "spare"}, "spec": {"unschedulable": True}}
        self._apply("create", {"apiVersion": "v1", **node, "status": {"conditions": [ready]}})
        self._lease("create")

    def beat(self) -> None:
        """Renew the node's lease, as a kubelet does every ten seconds."""
        self._lease("replace")

    def _lease(self, verb: str) -> None:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": "spare", "leaseDurationSeconds": 40, "renewTime": now}
        meta = {"name": "spare", "namespace": "kube-node-lease"}
        self._apply(verb, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})

    def _apply(self, verb: str, content: dict[str, Any]) -> None:
        self._cluster.kubectl(verb, "-f", "-", stdin=json.dumps(content))


def test_a_job_outlives_the_loss_of_its_node(cluster: NodeCluster) -> None:
    """The pods of a lost node are evicted, but may still run: no other pod is started before the node says that they ended."""
    then = f"test $RUN -ge 2 || {FOREVER}"
    cluster.create(job("stranded", {"Worker": replica(script("stranded", then=then), policy="OnFailure")}))
    cluster.eventually(lambda: runs("stranded") == 1 and cluster.is_running("stranded-worker-0"), "it runs")
    spare = SpareNode(cluster)

    def is_evicted() -> bool:
        spare.beat()
        return not cluster.pods_of("stranded")

    cluster.node.stop_kubelet()
    try:
        cluster.eventually(is_evicted, "its pod is to go", NODE_LOST_LIMIT_S)
        assert not cluster.node.is_ready()
        uid, _ = cluster.pod("stranded-worker-0")
        assert uid
        assert cluster.state("stranded") == ConditionType.RUNNING
    finally:
        cluster.node.start_kubelet()
        cluster.kubectl("delete", "node", "spare")
    cluster.eventually(cluster.node.is_ready, "the node is back")
    cluster.wait_for("stranded", ConditionType.SUCCEEDED, NODE_LOST_LIMIT_S)
    assert runs("stranded") == 2
    assert cluster.pod("stranded-worker-0")[0] != uid
    cluster.delete("stranded")
    cluster.wait_for_operator()
