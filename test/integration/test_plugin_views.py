"""What `kubectl tfjob` starts and shows, on a real API server: `submit`, `status`, `watch`, `timeline`."""

from __future__ import annotations

import json
import re
import signal

from integration.cluster import Cluster, replica, specs, with_policy
from integration.plugin import Plugin
from support.waiting import eventually


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
    eventually(lambda: "Worker: 0 of 2 running\n" in plugin("status", "mnist"), "its pods are gone")
    drawn = plugin("timeline", "mnist", "--utc")
    assert "\nsuspended " in drawn
    assert "TFJobSuspended: TFJob mnist is suspended." in drawn
    assert "ExitedWithCode" in drawn


def test_replicas_that_cannot_be_made_are_missing(cluster: Cluster, plugin: Plugin) -> None:
    """And the timeline has the message with which the server refused them."""
    spec = specs(Worker=replica(3))
    spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["serviceAccountName"] = "nobody"
    with cluster.operator():
        cluster.create("why", spec)
        eventually(lambda: "FailedCreatePod" in plugin("timeline", "why"), "the refusal is told")
    assert "Worker: 0 of 3 running, worker-[0-2] missing" in plugin("status", "why")
    assert plugin("status", "none", code=1) == 'Error from server (NotFound): tfjobs.kubeflow.org "none" not found\n'


def test_a_job_of_flags_runs(cluster: Cluster, plugin: Plugin) -> None:
    """The server and the operator accept it, and a second one of its name is refused in one line."""
    flags = (
        "--image=train:1",
        "--workers=2",
        "--chief",
        "--gpu=1",
        "--memory=1Gi",
        "--volume=data:/data:ro",
        "--env=A=b",
    )
    made = "tfjob.kubeflow.org/mnist created"
    assert plugin("submit", "mnist", *flags, "--dry-run=server") == f"{made} (server dry run)\n"
    assert cluster.names("tfjobs") == []
    with cluster.operator():
        assert plugin("submit", "mnist", *flags) == f"{made}\n"
        eventually(lambda: len(cluster.names("pods")) == 3, "its pods are made")
    refused = plugin("submit", "mnist", *flags, code=1)
    assert refused == 'Error from server (AlreadyExists): tfjobs.kubeflow.org "mnist" already exists\n'
    (pod,) = [each for each in cluster.items("pods") if each["metadata"]["name"] == "mnist-worker-1"]
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


def test_ctrl_c_ends_a_watch_without_a_word(cluster: Cluster, plugin: Plugin) -> None:
    """With exit code 130, as shells have it."""
    cluster.create("mnist", specs(Worker=replica()))
    with plugin.started("watch", "mnist") as process:
        assert process.stdout is not None
        assert "mnist New" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip()) == (130, "")
