"""`kubectl tfjob` on a real API server: the same columns as kubectl's, and changes that the operator takes up."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import yaml

from hack.control_plane import ControlPlane
from integration.cluster import Cluster, replica, specs, with_policy
from integration.plugin import Plugin
from support.waiting import eventually


@pytest.mark.parametrize("output", ["name", "json", "yaml", "jsonpath={.items[*].metadata.name}"])
def test_list_prints_what_kubectl_prints(cluster: Cluster, plugin: Plugin, output: str) -> None:
    """The same names, and the same objects."""
    cluster.create("mnist", specs(Worker=replica(2)))
    cluster.create("a-much-longer-name", with_policy(specs(Worker=replica()), suspend=True))
    texts = plugin("list", f"--output={output}"), cluster.kubectl("get", "tfjobs", f"--output={output}")
    if output not in {"json", "yaml"}:
        assert texts[0] == texts[1]
        return
    ours, theirs = map(yaml.safe_load, texts)
    theirs["metadata"].pop("selfLink", None)  # of kubectl before 1.21, as are managed fields
    for item in theirs["items"]:
        item["metadata"].pop("managedFields", None)
    assert ours == theirs


def test_list_shows_which_jobs_are_sick_and_why(served: Cluster, plugin: Plugin) -> None:
    """A quota that refuses pods is told by an event alone."""
    served.kubectl("create", "quota", "team", "--hard=pods=5")
    runs = {"healthy": "600s:0", "crash": "0.1s:1", "memory": "0.1s:oom-killed", "image": "image-pull-back-off"}
    for name, run in runs.items():
        served.create(name, specs(Worker=replica(run=run, policy="OnFailure")))
    served.create("failed", specs(Worker=replica(run="0.1s:3", policy="Never")))
    served.create("limited", with_policy(specs(Worker=replica(run="0.1s:1", policy="OnFailure")), backoffLimit=0))
    served.create("paused", with_policy(specs(Worker=replica()), suspend=True))
    eventually(lambda: len(served.names("pods")) >= 5, "each has its pod")
    served.create("refused", specs(Worker=replica(8, run="600s:0")))

    def reasons() -> dict[str, str]:
        lines = [line.split() for line in plugin("list").splitlines()[1:]]
        return {line[0]: f"{line[1]} {line[2]} {line[-1]}" for line in lines}

    eventually(
        lambda: (
            {
                "crash": "Running 0/1 CrashLoopBackOff",
                "memory": "Running 0/1 OOMKilled",
                "image": "Created 0/1 ImagePullBackOff",
                "failed": "Failed 0/1 ExitCode:3",
                "limited": "Failed 0/1 BackoffLimitExceeded",
                "paused": "Suspended 0/1 Suspended",
            }.items()
            <= reasons().items()
            and reasons()["refused"].endswith("/8 QuotaExceeded")
            and reasons()["healthy"].startswith("Running 1/1 ")
        ),
        "all reasons are shown",
        yet=reasons,
    )


def test_a_watch_prints_a_job_that_is_created_later(cluster: Cluster, plugin: Plugin) -> None:
    """And Ctrl-C ends it silently, with exit code 130 as shells have it."""
    cluster.create("first", specs(Worker=replica()))
    with plugin.started("list", "--watch") as process:
        assert process.stdout is not None
        assert process.stdout.readline().split()[0] == "NAME"
        assert process.stdout.readline().split()[0] == "first"
        cluster.create("second", specs(Worker=replica()))
        assert process.stdout.readline().split()[0] == "second"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip()) == (130, "")


def test_what_validate_calls_a_mistake_is_what_the_operator_says(
    cluster: Cluster, plugin: Plugin, tmp_path: Path
) -> None:
    """Word for word: the condition has the same sentences."""
    wrong = specs(Worker=replica(policy="Sometimes"), Trainer=replica())
    body = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "wrong"}, "spec": wrong}
    file = tmp_path / "job.json"
    file.write_text(json.dumps(body))
    with cluster.operator():
        cluster.create("wrong", wrong)
        condition = plugin("wait", "wrong", "--timeout=60s", code=1)
    said = [line.partition(":1: ")[2] for line in plugin("validate", str(file), code=1).splitlines()[:-1]]
    assert len(said) == 2
    for mistake in said:
        assert mistake in condition


def test_explain_tells_a_user_of_one_namespace_what_it_may_not_see(
    control_plane: ControlPlane, cluster: Cluster
) -> None:
    """The cause is on line one even so: it is the API server's refusal, in an event on the job."""
    user = f"reader-of-{cluster.namespace}"
    cluster.kubectl("create", "rolebinding", "reader", "--clusterrole=view", f"--user={user}")
    rule = ("--verb=get,list,watch", "--resource=tfjobs.kubeflow.org")
    cluster.kubectl("create", "role", "tfjobs", *rule)
    cluster.kubectl("create", "rolebinding", "tfjobs", "--role=tfjobs", f"--user={user}")
    plugin = Plugin(str(control_plane.kubeconfig_for(user)), cluster.namespace)
    spec = specs(Worker=replica(2))
    spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["serviceAccountName"] = "nobody"
    with cluster.operator():
        cluster.create("why", spec)
        eventually(
            lambda: "[error: service-account-missing]" in one_line(plugin("explain", "why")), "the cause is told"
        )
    told = one_line(plugin("explain", "why"))
    assert ' 1. ServiceAccount "nobody" not found (2 pods not created)' in told
    assert "because you have no permission to read: CRDs, deployments, leases" in told


def one_line(text: str) -> str:
    return " ".join(text.split())
