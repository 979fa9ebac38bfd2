"""The first status of a job on a real API server: the schema of the status is exact, so a wrong write would be refused."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import Final

from integration.cluster import Cluster, replica, specs, with_policy
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionType

BURST: Final = 300
MOST_EARLY_S: Final = 5.0
"""A sync creates a service before the pod, on a busy machine, and both times have whole seconds."""
log = logging.getLogger(__name__)


def test_every_first_status_write_fits_the_schema(cluster: Cluster) -> None:
    """B31: of a job that is suspended from the start, of an invalid one, of one without replicas, and of an ordinary one."""
    with cluster.operator(), cluster.node():
        cluster.create("asleep", with_policy(specs(Worker=replica()), suspend=True))
        cluster.create("invalid", {})
        cluster.create("nobody", specs(Worker=replica(0)))
        cluster.create("ordinary", specs(Worker=replica(run="forever")))
        for name, state in (
            ("asleep", ConditionType.SUSPENDED),
            ("invalid", ConditionType.FAILED),
            ("nobody", ConditionType.CREATED),
            ("ordinary", ConditionType.RUNNING),
        ):
            cluster.wait_for(name, state)
        assert cluster.names("pods") == ["ordinary-worker-0"]


def test_in_a_burst_jobs_have_the_times_of_their_containers(cluster: Cluster) -> None:
    """Though most first statuses are written seconds after the pods were created: 300 jobs whose containers run for 2 s."""
    kept = with_policy(specs(Worker=replica(run="2s:0")), cleanPodPolicy="None")
    jobs = [
        {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": f"burst-{number}"}, "spec": kept}
        for number in range(BURST)
    ]
    with cluster.node(), cluster.operator():
        cluster.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs}))
        eventually(
            lambda: all("completionTime" in each.get("status", {}) for each in cluster.items("tfjobs")), "all end"
        )
    pods = {each["metadata"]["name"]: each for each in cluster.items("pods")}
    early, late = [], []
    for each in cluster.items("tfjobs"):
        pod = pods[f"{each['metadata']['name']}-worker-0"]
        ran = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        started, created, began, ended = (
            datetime.fromisoformat(time)
            for time in (
                each["status"]["startTime"],
                pod["metadata"]["creationTimestamp"],
                ran["startedAt"],
                ran["finishedAt"],
            )
        )
        completed = datetime.fromisoformat(each["status"]["completionTime"])
        assert (started <= began, completed) == (True, ended), each["metadata"]["name"]
        early.append((created - started).total_seconds())
        written = datetime.fromisoformat(each["status"]["conditions"][-1]["lastTransitionTime"])
        late.append((written - ended).total_seconds())
    log.info("pods created after startTime: %s s at most; ends written after them: %s s at most", max(early), max(late))
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
