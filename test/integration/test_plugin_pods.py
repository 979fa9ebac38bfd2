"""The verbs of `kubectl tfjob` that are about pods, on a real API server: `restart`, `prune`, `top`."""

from __future__ import annotations

from integration.cluster import Cluster, replica, specs, with_policy
from integration.plugin import Plugin
from support.waiting import eventually


def uids(cluster: Cluster) -> dict[str, str]:
    """The UIDs of the pods that run, by name."""
    pods = cluster.items("pods")
    return {
        each["metadata"]["name"]: each["metadata"]["uid"] for each in pods if each["status"].get("phase") == "Running"
    }


def test_a_replica_that_is_restarted_gets_a_new_pod_and_the_others_go_on(served: Cluster, plugin: Plugin) -> None:
    """Then the whole job is restarted; neither restart counts as a failure, of which the job allows none."""
    served.create("mnist", with_policy(specs(Worker=replica(2, "OnFailure", run="600s:0")), backoffLimit=0))
    eventually(lambda: len(uids(served)) == 2, "both run")
    first = uids(served)
    assert plugin("restart", "mnist", "--replica=worker-1") == "pod/mnist-worker-1 deleted\n"
    eventually(lambda: len(uids(served)) == 2 and uids(served) != first, "worker 1 runs anew")
    second = uids(served)
    assert second["mnist-worker-0"] == first["mnist-worker-0"]
    assert plugin("restart", "mnist").splitlines() == [f"pod/mnist-worker-{index} deleted" for index in (0, 1)]
    eventually(lambda: len(uids(served)) == 2 and not set(uids(served).values()) & set(second.values()), "both are new")
    assert served.state("mnist") == "Running"


def test_what_has_ended_is_pruned_and_what_runs_is_not(served: Cluster, plugin: Plugin) -> None:
    """A dry run lists the same jobs beforehand and deletes none."""
    served.create("long", specs(Worker=replica(run="600s:0")))
    for name, end in (("fine", "1s:0"), ("broken", "1s:1")):
        served.create(name, specs(Worker=replica(run=end)))
    served.wait_for("fine", "Succeeded")
    served.wait_for("broken", "Failed")
    assert plugin("restart", "fine", code=1).startswith("error: fine has finished: Succeeded.")
    assert plugin("prune", "--dry-run").splitlines() == [
        f"tfjob.kubeflow.org/{name} deleted (dry run)" for name in ("broken", "fine")
    ]
    assert plugin("prune", "--yes", "--older-than=1h") == (f"No finished jobs found in {served.namespace} namespace.\n")
    assert plugin("prune", "--yes", "--state=failed") == "tfjob.kubeflow.org/broken deleted\n"
    assert plugin("prune", "--yes") == "tfjob.kubeflow.org/fine deleted\n"
    assert served.names("tfjobs") == ["long"]


def test_top_of_a_cluster_without_metrics_is_one_line(served: Cluster, plugin: Plugin) -> None:
    """Instead of the server's text for an unknown path the user is told what to do."""
    served.create("mnist", specs(Worker=replica(run="600s:0")))
    eventually(lambda: uids(served), "it runs")
    told = plugin("top", "mnist", code=1)
    assert told == ("error: Metrics API not available: install metrics-server\n")
