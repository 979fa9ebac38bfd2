"""The first status of a job on a real API server, whose schema would reject an invalid status."""

from datetime import datetime
from typing import Final

from integration.cluster import Cluster, replica, specs, with_policy
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionType

BURST: Final = 300
MOST_EARLY_S: Final = 5.0
"""A sync creates a service before the pod, on a busy machine, and both times have whole seconds."""


def test_every_first_status_write_fits_the_schema(cluster: Cluster) -> None:
    """B31: of a job that is suspended from the start, of an invalid one, of one without replicas, and of an ordinary one."""
    with cluster.operator(), cluster.node():
        cluster.create("asleep", with_policy(specs(Worker=replica()), suspend=True))
        cluster.create("invalid", {})
        cluster.create("nobody", specs(Worker=replica(0)))
        cluster.create("ordinary", specs(Worker=replica(run="forever")))
        cluster.wait_for("asleep", ConditionType.SUSPENDED)
        cluster.wait_for("invalid", ConditionType.FAILED)
        cluster.wait_for("nobody", ConditionType.CREATED)
        cluster.wait_for("ordinary", ConditionType.RUNNING)
        assert cluster.names("pods") == ["ordinary-worker-0"]


def test_in_a_burst_jobs_have_the_times_of_their_containers(cluster: Cluster) -> None:
    """Though most first statuses are written seconds after the pods were created: 300 jobs whose containers run for 2 s."""
    kept = with_policy(specs(Worker=replica(run="2s:0")), cleanPodPolicy="None")
    with cluster.node(), cluster.operator():
        for number in range(BURST):
            cluster.create(f"burst-{number}", kept)
        eventually(
            lambda: all("completionTime" in each.get("status", {}) for each in cluster.items("tfjobs")), "all end"
        )
    pods = {each["metadata"]["name"]: each for each in cluster.items("pods")}
    early = []
    for each in cluster.items("tfjobs"):
        pod = pods[f"{each['metadata']['name']}-worker-0"]
        ran = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        started = datetime.fromisoformat(each["status"]["startTime"])
        assert started <= datetime.fromisoformat(ran["startedAt"]), each["metadata"]["name"]
        assert each["status"]["completionTime"] == ran["finishedAt"]
        early.append((datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) - started).total_seconds())
    assert 0.0 <= min(early) <= max(early) <= MOST_EARLY_S


def test_two_replicas_on_one_hosts_network_have_their_clash_found_by_the_scheduler(cluster: Cluster) -> None:
    """B64: every pod declares the training port; with hostNetwork the API server makes it a host port, unique on a node.

    The scheduler puts the second pod on another node, or reports that it cannot.
    """
    shared = replica(2, run="forever")
    shared["template"]["spec"]["hostNetwork"] = True
    with cluster.operator():
        cluster.create("host", specs(Worker=shared))
        eventually(lambda: len(cluster.names("pods")) == 2, "both pods are there")
        for pod in cluster.items("pods"):
            (port,) = pod["spec"]["containers"][0]["ports"]
            assert (port["name"], port["hostPort"]) == ("tfjob-port", 2222)
