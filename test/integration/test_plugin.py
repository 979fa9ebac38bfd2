"""`kubectl tfjob` on a real API server: what it lists, shows, starts, restarts and prunes."""

import json
import re
import signal
from pathlib import Path

import pytest
import yaml

from hack.control_plane import ControlPlane
from integration.cluster import Cluster, replica, specs, tfjob, with_policy
from integration.plugin import Plugin
from integration.stage import one
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
    served.kubectl("create", "quota", "team", "--hard=pods=6")
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
    file = tmp_path / "job.json"
    file.write_text(json.dumps(tfjob("wrong", wrong)))
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
    plugin = Plugin(control_plane.kubeconfig_for(user), cluster.namespace, control_plane.kubectl)
    spec = one(serviceAccountName="nobody")
    with cluster.operator():
        cluster.create("why", spec)
        eventually(
            lambda: "[error: service-account-missing]" in " ".join(plugin("explain", "why").split()),
            "the cause is told",
        )
    told = " ".join(plugin("explain", "why").split())
    assert ' 1. ServiceAccount "nobody" not found (why-worker-0 not created)' in told
    assert "because you have no permission to read: CRDs, deployments, leases" in told


def test_status_and_timeline_show_what_became_of_each_replica(served: Cluster, plugin: Plugin) -> None:
    """They show a restart in place, a new pod after an exit code, and a suspension."""
    spec = specs(
        Worker=replica(2, "ExitCode", run="1s:137,600s:0"), Chief=replica(policy="OnFailure", run="1s:1,600s:0")
    )
    served.create("mnist", with_policy(spec, backoffLimit=10))

    def again() -> list[int]:
        told = json.loads(plugin("status", "mnist", "--output=json"))
        return [each["restarts"] for kind in told["types"] for each in kind["replicas"] if each["state"] == "Running"]

    eventually(lambda: len(again()) >= 1 and again()[0] == 1, "the chief runs again")
    lines = plugin("status", "mnist").splitlines()
    assert lines[0].startswith("mnist in ")
    assert any("chief-0" in line and "Running" in line for line in lines)
    plugin("suspend", "mnist")
    eventually(lambda: "Worker: 0 of 2 ready\n" in plugin("status", "mnist"), "its pods are gone")
    told = "TFJobSuspended: TFJob mnist is suspended."
    drawn = eventually(lambda: told in (text := plugin("timeline", "mnist", "--utc")) and text, "it tells of it")
    assert "\nsuspended " in drawn
    assert "ExitedWithCode" in drawn


def test_replicas_that_cannot_be_made_are_missing(cluster: Cluster, plugin: Plugin) -> None:
    """And the timeline has the message with which the server refused them."""
    with cluster.operator():
        cluster.create("why", one(serviceAccountName="nobody"))
        eventually(lambda: "FailedCreatePod" in plugin("timeline", "why"), "the refusal is told")
    assert "Worker: 0 of 1 ready, worker-0 missing" in plugin("status", "why")
    assert plugin("status", "none", code=1) == 'Error from server (NotFound): tfjobs.kubeflow.org "none" not found\n'


def test_a_job_of_flags_runs(cluster: Cluster, plugin: Plugin) -> None:
    """The server and the operator accept it, and a second one of its name is refused in one line."""
    flags = [
        "--image=train:1",
        "--workers=2",
        "--chief",
        "--gpu=1",
        "--memory=1Gi",
        "--volume=data:/data:ro",
        "--env=A=b",
    ]
    made = "tfjob.kubeflow.org/mnist created"
    assert plugin("submit", "mnist", *flags, "--dry-run=server") == f"{made} (server dry run)\n"
    assert cluster.names("tfjobs") == []
    with cluster.operator():
        assert plugin("submit", "mnist", *flags) == f"{made}\n"
        eventually(lambda: len(cluster.names("pods")) == 3, "its pods are made")
    refused = plugin("submit", "mnist", *flags, code=1)
    assert refused == 'Error from server (AlreadyExists): tfjobs.kubeflow.org "mnist" already exists\n'
    pod = cluster.api("GET", "pods", "mnist-worker-1")
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"memory": "1Gi", "nvidia.com/gpu": "1"}


def test_watch_prints_what_happens_until_the_job_has_ended(served: Cluster, plugin: Plugin) -> None:
    """The exit code tells how the job ended; it is 3 if the job was deleted."""
    served.create("fails", specs(Worker=replica(2, run="2s:1")))
    lines = plugin("watch", "fails", code=1).splitlines()
    assert lines[-1].startswith("tfjob.kubeflow.org/fails Failed: ")
    # Its pod may be Failed later than the job, which ends with the container.
    assert any(re.search(r"worker-[01] (Running|Failed).* exit 1", line) for line in lines), lines
    served.create("gone", specs(Worker=replica(run="600s:0")))
    with plugin.started("watch", "gone") as process:
        assert process.stdout is not None
        assert "gone " in process.stdout.readline()
        served.kubectl("delete", "tfjob", "gone")
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (3, "tfjob.kubeflow.org/gone was deleted\n")


def test_a_job_that_its_ttl_deleted_is_told_so_with_how_it_ended(served: Cluster, plugin: Plugin) -> None:
    served.create("brief", with_policy(specs(Worker=replica(run="1s:3")), ttlSecondsAfterFinished=0))
    eventually(lambda: "brief" not in served.names("tfjobs"), "its TTL deletes it")
    told = eventually(lambda: " by its TTL " in (text := plugin("explain", "brief", code=1)) and text, "it is told so")
    found = r'tfjobs.kubeflow.org "brief" not found: it was deleted \d+s ago by its TTL .*, after TFJobFailed: TFJob .*'
    assert re.fullmatch(rf"Error from server \(NotFound\): {found}\n", told), told
    served.create("mnist-large", with_policy(one(), suspend=True))
    assert plugin("status", "mnist-larg", code=1).endswith(" not found: did you mean mnist-large?\n")


def uids(cluster: Cluster) -> dict[str, str]:
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
    for attempt in (1, 2):
        assert plugin("restart", "mnist") == f"tfjob.kubeflow.org/mnist restarted as attempt {attempt}\n"
    eventually(lambda: len(uids(served)) == 2 and not set(uids(served).values()) & set(second.values()), "both are new")
    served.wait_for("mnist", "Running")


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
