"""Jobs that hang, found by their logs, which the API server proxies to the kubelet."""

from typing import Any, Final

from integration.cluster import Cluster, replica, specs, with_policy
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.controller.jobs.job_metrics import WAITING_SINCE

FOREVER: Final = "forever"
LIMIT_S: Final = 120.0
LOG: Final = "hollow.tfjob.kubeflow.org/log"
RULE: Final = {"action": "RestartAll", "onFailureReasons": ["ProgressDeadlineExceeded"]}
DEADLINE: Final = {"progressDeadlineSeconds": 60}


def conditions(cluster: Cluster, name: str) -> dict[str, dict[str, Any]]:
    return {each["type"]: each for each in cluster.job(name).get("status", {}).get("conditions", [])}


def test_silent_jobs_are_found_restarted_and_those_that_log_are_left_alone(cluster: Cluster) -> None:
    """Each deadline is a minute, the shortest one. kubectl shows Running all the while."""
    ticks = "\n".join(f"{second}s step {second}" for second in range(0, 600, 5))
    with cluster.operator() as operator, cluster.node():
        cluster.create(
            "silent", with_policy(specs(Worker=replica(2, run=FOREVER, notes={LOG: "1s rendezvous"})), **DEADLINE)
        )
        policy = {"failurePolicy": {"maxRestarts": 1, "rules": [RULE]}}
        cluster.create(
            "hangs",
            with_policy(specs(Worker=replica(2, run="600s:0, 1s:0", notes={LOG: "1s step 1"})), **DEADLINE, **policy),
        )
        cluster.create("logs", with_policy(specs(Worker=replica(2, run=FOREVER, notes={LOG: ticks})), **DEADLINE))
        cluster.create("plain", specs(Worker=replica(2, run=FOREVER)))
        for name in ("silent", "hangs", "logs", "plain"):
            cluster.wait_for(name, ConditionType.RUNNING)
        found = eventually(lambda: conditions(cluster, "silent").get("Stalled"), "it is found", limit_s=LIMIT_S)
        message = (
            "TFJob silent is stalled: no new log line for 60s in silent-worker-0 .. silent-worker-1; "
            "last line of silent-worker-0: rendezvous"
        )
        assert (found["status"], found["reason"], found["message"]) == ("True", "ProgressDeadlineExceeded", message)
        assert cluster.state("silent") == ConditionType.RUNNING
        assert ("ProgressDeadlineExceeded", message) in cluster.warnings("silent")
        series = [dict(labels) for name, labels in operator.scrape() if name == WAITING_SINCE.name]
        assert {"namespace": cluster.namespace, "state": "Stalled"} in series
        eventually(lambda: cluster.job("hangs")["status"].get("attempt"), "a rule restarts it", limit_s=LIMIT_S)
        (attempt,) = cluster.job("hangs")["status"]["attemptHistory"]
        assert (attempt["reason"], attempt["action"]) == ("ProgressDeadlineExceeded", "RestartAll")
        assert attempt["message"].endswith("last line of hangs-worker-0: step 1")
        assert conditions(cluster, "hangs")["Stalled"]["status"] == "False"
        assert not conditions(cluster, "logs").keys() & {"Stalled"}
        assert not conditions(cluster, "plain").keys() & {"Stalled"}
        cluster.patch("tfjobs", "silent", {"spec": {"runPolicy": {"suspend": True}}})
        cluster.wait_for("silent", ConditionType.SUSPENDED)
        assert conditions(cluster, "silent")["Stalled"]["status"] == "False"
