"""Failure policies and lost nodes: real processes, a real kubelet, and a hollow node to which jobs move."""

import contextlib
import datetime as dt
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from e2e.cluster import LIMIT_S, RUNS, NodeCluster, job, replica, runs, script
from hack.matrix.cluster import MANIFESTS, hollow_node
from hack.real_node.node import NODE
from integration.cluster import specs, with_policy
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType

SPARE: Final = "spare"
FOREVER = "while true; do touch /runs/$HOSTNAME; sleep 1; done"
NODE_LOST_LIMIT_S = 120.0  # the API server's controllers give a silent node 40 s, and its pods TOLERATION_S more
TIMEOUT_S = 60
HIT_LIMIT_S = 180.0  # a taint counts after 30 s, and a missing right is tried again after 30 s


class SpareNode:
    """A hollow node for pods that tolerate its taint. It is ready while a test waits by `eventually`.

    If the lost node were the only one, Kubernetes would assume that it is itself cut off, and evict no pods.
    """

    def __init__(self, cluster: NodeCluster) -> None:
        self._cluster = cluster
        spec = {"taints": [{"key": SPARE, "effect": "NoSchedule"}]}
        self._apply("create", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": SPARE}, "spec": spec})
        self._renew_lease("create")

    def eventually(
        self, holds: Callable[[], Any], what: str, limit_s: float = LIMIT_S, yet: Callable[[], object] = str
    ) -> None:
        """Wait until `holds` returns true, and renew the lease of the node meanwhile, as its kubelet would."""

        def holds_by_now() -> Any:
            self._renew_lease("replace")
            return holds()

        self._cluster.eventually(holds_by_now, what, limit_s, yet)

    def _renew_lease(self, verb: str) -> None:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": SPARE, "leaseDurationSeconds": 40, "renewTime": now}
        meta = {"name": SPARE, "namespace": "kube-node-lease"}
        self._apply(verb, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})

    def _apply(self, verb: str, content: dict[str, Any]) -> None:
        self._cluster.kubectl(verb, "-f", "-", stdin=json.dumps(content))


@contextlib.contextmanager
def spare_node(cluster: NodeCluster) -> Iterator[SpareNode]:
    """Run the hollow node to the end of the block. Pods that are pending when it begins may be bound to it."""
    node = SpareNode(cluster)
    try:
        with hollow_node(cluster.node.plane, f"--name={SPARE}", "--namespace=default"):
            yield node
    finally:
        cluster.kubectl("delete", "node", SPARE)
        cluster.kubectl("delete", "lease", SPARE, "-n", "kube-node-lease", "--ignore-not-found")


@pytest.fixture(scope="module")
def nodes_addon(cluster: NodeCluster) -> Iterator[None]:
    """The rights to read nodes and to fail pods."""
    addon = str(MANIFESTS / "addons" / "nodes")
    cluster.kubectl("apply", "-k", addon)
    yield
    cluster.kubectl("delete", "-k", addon)


def restarted(name: str, command: list[str], rule: dict[str, Any], **policy: Any) -> dict[str, Any]:
    """A job of two workers that may run on the spare node, and that is restarted once, by one rule."""
    worker = replica(command, replicas=2)
    worker["template"]["spec"]["tolerations"] = [{"key": SPARE, "operator": "Exists"}]
    failures = {"maxRestarts": 1, "rules": [{"name": "again", "action": "RestartAll", **rule}]}
    return job(name, with_policy(specs(Worker=worker), failurePolicy=failures, cleanPodPolicy="None", **policy))


def started(cluster: NodeCluster, name: str) -> None:
    """Wait until both workers of a job run, on the real node."""
    pods = [f"{name}-worker-{index}" for index in range(2)]
    cluster.eventually(lambda: all(map(cluster.is_running, pods)), f"{name} runs")
    assert places(cluster, name) == [(NODE, "0")] * 2


def places(cluster: NodeCluster, name: str) -> list[tuple[str, str]]:
    """The node and the attempt of each pod of a job."""
    pods = [cluster.get("pod", pod) for pod in cluster.pods_of(name)]
    return [(pod["spec"].get("nodeName", ""), pod["metadata"]["labels"][c.LABEL_ATTEMPT]) for pod in pods]


def test_the_last_words_of_a_worker_that_causes_a_restart_of_the_whole_job_are_kept(cluster: NodeCluster) -> None:
    """The kubelet takes them from the log, since nothing was written to the termination message."""
    first = "if [ ${HOSTNAME##*-} = 1 ]; then echo lost shard 7 of attempt $TFJOB_RESTART_ATTEMPT >&2; exit 42; fi"
    command = ["sh", "-c", f"test $TFJOB_RESTART_ATTEMPT = 0 || exit 0; {first}; {FOREVER}"]
    cluster.create(restarted("again", command, {"onExitCodes": {"operator": "In", "values": [42]}}))
    status = cluster.wait_for("again", ConditionType.SUCCEEDED)
    assert (status["attempt"], status["countedRestarts"]) == (1, 1)
    (attempt,) = status["attemptHistory"]
    assert (attempt["podName"], attempt["exitCode"], attempt["rule"]) == ("again-worker-1", 42, "again")
    assert "lost shard 7 of attempt 0" in attempt["message"]
    assert places(cluster, "again") == [(NODE, "1")] * 2
    cluster.delete("again")


@pytest.mark.usefixtures("nodes_addon")
def test_a_job_leaves_a_tainted_node(cluster: NodeCluster) -> None:
    """The taint lets pods run, and the scheduler may place more there: only the job avoids the node."""
    taint = {"key": "gpu", "value": "broken", "effect": "PreferNoSchedule"}
    cluster.create(restarted("leaves", ["sh", "-c", FOREVER], {"onNodes": {"taints": [taint]}}))
    started(cluster, "leaves")
    with spare_node(cluster) as spare:
        cluster.kubectl("taint", "node", NODE, "gpu=broken:PreferNoSchedule")
        try:
            done = ConditionType.SUCCEEDED
            spare.eventually(
                lambda: cluster.state("leaves") == done,
                "it ends elsewhere",
                HIT_LIMIT_S,
                lambda: cluster.kubectl("describe", "tfjob", "leaves"),
            )
        finally:
            cluster.kubectl("taint", "node", NODE, "gpu-")
        status = cluster.get("tfjob", "leaves")["status"]
        assert (status["attempt"], [node["name"] for node in status["avoidedNodes"]]) == (1, [NODE])
        assert places(cluster, "leaves") == [(SPARE, "1")] * 2
        cluster.delete("leaves")
        spare.eventually(lambda: not cluster.pods_of("leaves"), "its pods are gone")


@pytest.mark.usefixtures("nodes_addon")
def test_a_lost_node_holds_only_jobs_that_do_not_say_when_it_is_lost(cluster: NodeCluster) -> None:
    """Its pods are evicted, but may still run. By default no other pod is started before the node reports that they ended."""
    then = f"test $RUN -ge 2 || {FOREVER}"
    cluster.create(
        job("stranded", specs(Worker=replica(script("stranded", then=then), policy="OnFailure"))),
        restarted("moves", ["sh", "-c", FOREVER], {"onFailureReasons": ["NodeLost"]}, nodeLostTimeoutSeconds=TIMEOUT_S),
    )
    started(cluster, "moves")
    cluster.eventually(lambda: runs("stranded") == 1 and cluster.is_running("stranded-worker-0"), "it runs")
    with spare_node(cluster) as spare:
        cluster.node.stop_kubelet()
        try:
            done, limit_s = ConditionType.SUCCEEDED, NODE_LOST_LIMIT_S + TIMEOUT_S
            spare.eventually(lambda: not cluster.pods_of("stranded"), "a pod is to go", NODE_LOST_LIMIT_S)
            assert not cluster.node.is_ready()
            uid, _ = cluster.pod("stranded-worker-0")
            assert uid
            spare.eventually(lambda: cluster.state("moves") == done, "the other job ends elsewhere", limit_s)
            assert time.time() - (RUNS / "moves-worker-0").stat().st_mtime < 10.0, "the old process still runs"
            assert cluster.pod("stranded-worker-0")[0] == uid
            assert cluster.state("stranded") == ConditionType.RUNNING
        finally:
            cluster.node.start_kubelet()
        status = cluster.get("tfjob", "moves")["status"]
        assert (status["attempt"], [each["nodeName"] for each in status["attemptHistory"]]) == (1, [NODE])
        assert places(cluster, "moves") == [(SPARE, "1")] * 2
        cluster.delete("moves")
        spare.eventually(cluster.node.is_ready, "the node is back")
    cluster.wait_for("stranded", ConditionType.SUCCEEDED, NODE_LOST_LIMIT_S)
    assert runs("stranded") == 2
    assert cluster.pod("stranded-worker-0")[0] != uid
    cluster.delete("stranded")
    cluster.wait_for_operator()
