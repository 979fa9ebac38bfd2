"""Jobs of the alpha dialect on a real API server with the real Job controller; a hollow node runs their pods."""

import json
import secrets
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.control_plane import ControlPlane
from hack.hollow_node.script import RUN
from integration.cluster import Cluster, replica, specs
from integration.operator_process import ROOT
from integration.plugin import Plugin
from integration.stage import Stage
from support.waiting import eventually
from tfjob_operator.api.v1alpha1.constants import DIALECTS, KUBEFLOW, TENSORFLOW, Dialect

APIS = "--apis=kubeflow.org/v1,kubeflow.org/v1alpha1,tensorflow.org/v1alpha1"
BOTH = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.label)
OLDER = pytest.mark.parametrize(
    "dialect", [pytest.param(KUBEFLOW, marks=pytest.mark.nightly), TENSORFLOW], ids=lambda each: each.label
)
"""For what does not differ between the two: nightly in the newer one."""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane whose Job controller runs, with both CRDs."""
    with ControlPlane.start("alpha") as plane:
        plane.run_kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / "base" / "crd.yaml"))
        plane.run_kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / "addons" / "alpha" / "crd.yaml"))
        for group in ("kubeflow.org", "tensorflow.org"):
            plane.wait_for_crd(f"tfjobs.{group}")
        plane.restart_controller_manager()  # its garbage collector knows both kinds now
        yield plane


class AlphaCluster(Cluster):
    """A namespace with jobs of one dialect."""

    dialect: Dialect = KUBEFLOW

    @property
    def kind(self) -> str:
        return str(self.dialect.resource)

    def create_alpha(self, name: str, spec: dict[str, Any]) -> None:
        resource = self.dialect.resource
        head = {"apiVersion": f"{resource.group}/v1alpha1", "kind": resource.kind, "metadata": {"name": name}}
        self.post(head | {"spec": spec})

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api("GET", self.kind, name).get("status", {})
        return found

    def wait_for_phase(self, name: str, phase: str) -> dict[str, Any]:
        """Wait until a job is in that phase; return its status."""
        eventually(lambda: self.status(name).get("phase") == phase, f"{name} is {phase}", yet=lambda: self.status(name))
        return self.status(name)

    def pods(self) -> dict[str, dict[str, Any]]:
        return {item["metadata"]["labels"]["job-name"]: item for item in self.items("pods")}

    def wait_until_running(self, *jobs: str) -> None:
        """Wait until a pod of each of these Jobs runs."""

        def running() -> set[str]:
            return {name for name, pod in self.pods().items() if pod["status"]["phase"] == "Running"}

        eventually(lambda: running() >= set(jobs), f"{jobs} run", yet=running)

    def end(self, job: str) -> None:
        """Let the pod of a Job exit with 0."""
        self.patch("pods", self.pods()[job]["metadata"]["name"], {"metadata": {"annotations": {RUN: "0s:0"}}})


@pytest.fixture
def idle(plane: ControlPlane, tmp_path: Path) -> Iterator[AlphaCluster]:
    namespace = f"test-{secrets.token_hex(4)}"
    plane.create_namespace(namespace)
    yield AlphaCluster(plane, namespace, tmp_path)
    plane.run_kubectl("delete", "namespace", namespace, "--wait=false", check=False)


@pytest.fixture
def world(idle: AlphaCluster) -> Iterator[AlphaCluster]:
    """A namespace with an operator that serves all three APIs, and a hollow node."""
    with idle.operator(APIS, "--leader-elect=false"), idle.node():
        yield idle


def entry(kind: str | None, run: str, replicas: int = 1, **pod: Any) -> dict[str, Any]:
    """One entry of replicaSpecs, whose containers do what the script `run` says."""
    template = replica(run=run)["template"]
    template["spec"] |= {"restartPolicy": "OnFailure", **pod}
    found: dict[str, Any] = {"replicas": replicas, "template": template}
    return found if kind is None else found | {"tfReplicaType": kind}


@BOTH
def test_the_example_of_the_time_runs_as_its_document_shows(world: AlphaCluster, dialect: Dialect) -> None:
    """Jobs and services have the names that people type; parameter servers get their program; the status has both forms."""
    world.dialect = dialect
    servers = {"replicas": 2, "tfReplicaType": "PS", "template": {"metadata": {"annotations": {RUN: "forever"}}}}
    entries = [entry("MASTER", "forever"), entry("WORKER", "forever"), servers]
    world.create_alpha("example-job", {"RuntimeId": "76no", "replicaSpecs": entries})
    names = ["master-76no-0", "ps-76no-0", "ps-76no-1", "worker-76no-0"]
    world.wait_until_running(*names)
    assert world.names("jobs") == names
    assert world.names("services") == names
    pods = {name: pod["spec"]["containers"][0] for name, pod in world.pods().items()}
    assert sorted(pods) == names
    config = json.loads(next(each["value"] for each in pods["worker-76no-0"]["env"] if each["name"] == "TF_CONFIG"))
    assert config["cluster"]["ps"] == ["ps-76no-0:2222", "ps-76no-1:2222"]
    assert config["task"] == {"type": "worker", "index": 0}
    assert pods["ps-76no-1"]["command"][-1] == "1"
    program = world.api("GET", "configmaps", "cm-ps-76no")
    assert program["metadata"]["ownerReferences"][0]["kind"] == dialect.resource.kind
    assert "grpc_tensorflow_server.py" in program["data"]
    world.end("master-76no-0")
    world.kubectl("wait", f"{world.kind}/example-job", "--for=condition=Succeeded", "--timeout=60s")
    status = world.wait_for_phase("example-job", "Done")
    assert (status["state"], status["reason"], status["controlPaused"]) == ("Succeeded", "", False)
    array = status["alphaReplicaStatuses" if dialect is KUBEFLOW else "replicaStatuses"]
    assert array == [
        {"tf_replica_type": "MASTER", "state": "Succeeded", "ReplicasStates": {"Succeeded": 1}},
        {"tf_replica_type": "WORKER", "state": "Running", "ReplicasStates": {"Running": 1}},
        {"tf_replica_type": "PS", "state": "Running", "ReplicasStates": {"Running": 2}},
    ]
    if dialect is KUBEFLOW:
        assert status["replicaStatuses"]["Master"] == {"active": 0, "succeeded": 1, "failed": 0}
    # What still ran is deleted; what has ended can still be looked at.
    eventually(lambda: world.names("jobs") == ["master-76no-0"], "the others are gone")
    eventually(lambda: len(world.items("pods")) == 1, "their pods too")
    world.kubectl("delete", world.kind, "example-job")
    eventually(lambda: not (world.names("jobs") + world.names("services") + world.names("pods")), "all is collected")


@OLDER
def test_a_chief_that_is_killed_starts_again_and_one_that_fails_ends_the_job(
    world: AlphaCluster, dialect: Dialect
) -> None:
    """Under OnFailure in place, under Never as a new pod of the Job controller. Either would also restart one that failed."""
    world.dialect = dialect
    world.create_alpha("killed", {"replicaSpecs": [entry(None, "1s:137, 1s:143, 1s:0")]})
    again = {"replicaSpecs": [entry(None, "1s:143", restartPolicy="Never")], "RuntimeId": "again"}
    world.create_alpha("killed-for-good", again)
    world.create_alpha("fails", {"replicaSpecs": [entry(None, "1s:1, forever")]})
    world.create_alpha("fails-for-good", {"replicaSpecs": [entry(None, "1s:3, forever", restartPolicy="Never")]})
    world.create_alpha("has-no-memory", {"replicaSpecs": [entry(None, "1s:oom-killed, forever")]})
    for name, code in (("fails", 1), ("fails-for-good", 3), ("has-no-memory", 137)):
        status = world.wait_for_phase(name, "Done")
        assert status["state"] == "Failed"
        assert f"exited with code {code}" in status["reason"]
    assert world.wait_for_phase("killed", "Done")["state"] == "Succeeded"

    def pods() -> list[str]:
        return [name for name in world.names("pods") if name.startswith("master-again-0-")]

    eventually(lambda: len(pods()) > 1, "the Job controller makes another pod", yet=pods)
    assert world.status("killed-for-good")["state"] == "Running"


def test_a_wrong_specification_is_reported_in_the_jobs_own_words_and_harms_no_other(world: AlphaCluster) -> None:
    """One that the operator finds wrong, and a template that the API server refuses."""
    wrong = {
        "many": (entry("MASTER", "1s:0", 2), "The MASTER must have Replicas = 1"),
        "refused": (entry(None, "1s:0", hostname="No_Name"), "was rejected"),
    }
    for name, (given, _) in wrong.items():
        world.create_alpha(name, {"replicaSpecs": [given]})
    world.create_alpha("good", {"replicaSpecs": [entry(None, "1s:0")]})
    for name, (_, words) in wrong.items():
        status = world.wait_for_phase(name, "Failed")
        assert status["state"] == "Failed"
        assert words in status["reason"]
        assert status["conditions"][-1]["type"] == "Failed"
    assert world.wait_for_phase("good", "Done")["state"] == "Succeeded"


# What the plugin says of them


def test_list_watches_both_apis_and_prune_deletes_from_both(plane: ControlPlane, world: AlphaCluster) -> None:
    """Jobs of tensorflow.org stand there with their kind, as in the table that kubectl prints of several."""
    world.dialect = TENSORFLOW
    plugin = Plugin(plane.kubeconfig, world.namespace, plane.kubectl)
    world.create("young", specs(Worker=replica(run="1s:0")))
    with plugin.started("list", "--watch") as process:
        assert process.stdout is not None
        told: list[str] = []
        threading.Thread(target=told.extend, args=[process.stdout], daemon=True).start()

        def is_over(name: str) -> bool:
            return any(line.split()[0] == name and "Succeeded" in line for line in [*told] if line.strip())

        eventually(lambda: any(line.startswith("young") for line in [*told]), "it watches", yet=lambda: told)
        world.create_alpha("old", {"RuntimeId": "abcd", "replicaSpecs": [entry("MASTER", "1s:0")]})
        for name in ("young", "tfjob.tensorflow.org/old"):
            eventually(lambda: is_over(name), f"the end of {name} is printed", yet=lambda: told)  # noqa: B023
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    world.wait_for("young", "Succeeded")
    world.wait_for_phase("old", "Done")
    assert plugin("prune", "--yes").splitlines() == [
        "tfjob.kubeflow.org/young deleted",
        "tfjob.tensorflow.org/old deleted",
    ]


@BOTH
def test_the_plugin_shows_a_job_of_either_api(plane: ControlPlane, world: AlphaCluster, dialect: Dialect) -> None:
    """list, status, timeline, explain and wait find it by its name; its pods are told by their replicas."""
    world.dialect = dialect
    plugin = Plugin(plane.kubeconfig, world.namespace, plane.kubectl)
    entries = [entry("MASTER", "forever"), entry("WORKER", "forever", 2)]
    world.create_alpha("old", {"RuntimeId": "x7ab", "cleanupPodPolicy": "None", "replicaSpecs": entries})
    world.wait_until_running("master-x7ab-0", "worker-x7ab-0", "worker-x7ab-1")
    full = f"tfjob.{dialect.resource.group}/old"
    assert full in plugin("list", "--output=name")
    shown = f"{full} " if dialect is TENSORFLOW else "old "
    eventually(lambda: any(line.startswith(shown) for line in plugin("list").splitlines()), "it is listed")
    for name in ("old", full):
        status = json.loads(plugin("status", name, "--output=json"))
        found = {kind["type"]: [each["replica"] for each in kind["replicas"]] for kind in status["types"]}
        assert found == {"Master": ["master-0"], "Worker": ["worker-0", "worker-1"]}
        assert "1 of 1 master ready, 2 of 2 workers ready" in plugin("explain", name)
    world.api("DELETE", "pods", world.pods()["worker-x7ab-1"]["metadata"]["name"])
    eventually(lambda: "worker-1" in plugin("timeline", "old", "--utc"), "the replica is in the timeline")
    world.end("master-x7ab-0")
    assert plugin("wait", "old").startswith(f"{full} Succeeded: ")
    assert plugin("explain", "old").startswith("old: Succeeded ")


PROBLEMS = {
    "crash-loop": [entry("MASTER", "forever"), entry("WORKER", "0.1s:1", restartPolicy="OnFailure")],
    "image-pull-failed": [entry("MASTER", "image-pull-back-off")],
    "exit-code": [entry("MASTER", "0.1s:3")],
    "memory-without-limit": [entry("MASTER", "0.1s:oom-killed")],
    "service-account-missing": [entry("MASTER", "forever", serviceAccountName="nobody")],
    "priority-class-missing": [entry("MASTER", "forever", priorityClassName="nothing")],
    "template-refused": [entry("MASTER", "forever", hostname="No_Name")],
    "chief-missing": [entry("WORKER", "forever")],
    "container-name": [entry("MASTER", "forever", containers=[{"name": "main", "image": "train:1"}])],
    "restart-policy-always": [entry("MASTER", "forever", restartPolicy="Always")],
    "scheduler-missing": [entry("MASTER", "forever", schedulerName="nobody")],
    "batch-job-failed": [entry("MASTER", "forever"), entry("WORKER", "forever")],
    "field-unknown": [entry("MASTER", "forever") | {"replcas": 1}],
}
"""The cause that must stand on line one, by the job: what its API, the Job controller and the hollow node make of it."""
NOT_SERVED = ("alpha-form", "alpha-not-served")
"""Likewise, for an operator that serves v1 alone."""
LATER = {"scheduler-missing": 600.0}


@OLDER
def test_why_a_job_of_the_alpha_dialect_does_not_run_is_on_line_one(
    plane: ControlPlane, world: AlphaCluster, dialect: Dialect
) -> None:
    """Pods' troubles as in v1, what the Job controller meets when it creates pods, and mistakes in the words of the dialect."""
    world.dialect = dialect
    for name, entries in PROBLEMS.items():
        world.create_alpha(name, {"replicaSpecs": entries, "cleanupPodPolicy": "None"})
    world.wait_for_phase("batch-job-failed", "Running")
    late = f"worker-{world.status('batch-job-failed')['runtimeId']}-0"
    # The Job controller looks at a new deadline of a Job once, when it changes, and only if the Job has a start time by then.
    started = "its worker's Job has a start time"
    eventually(lambda: "startTime" in (world.find("jobs", late) or {}).get("status", {}), started)
    world.patch("jobs", late, {"spec": {"activeDeadlineSeconds": 1}})
    with Stage(plane, world) as stage:

        def first(name: str) -> str:
            return next((cause.id for cause in stage.explain(name, LATER.get(name, 0.0)).causes), "")

        for name in PROBLEMS:
            # On a busy machine the container has restarted several times when its turn comes.
            found = {name, "crash-loop"} if name == "exit-code" else {name}
            eventually(lambda: first(name) in found, name, yet=lambda: str(stage.explain(name)))  # noqa: B023
        to_do = stage.explain("service-account-missing").causes[0].to_do
        assert to_do[0].endswith("create serviceaccount nobody")


def test_a_form_that_the_operator_does_not_serve_is_on_line_one(plane: ControlPlane, idle: AlphaCluster) -> None:
    """A job of v1alpha1 where only v1 is served is a mistake; one of tensorflow.org stays without a status."""
    with idle.operator(), Stage(plane, idle) as stage:
        for name, idle.dialect in zip(NOT_SERVED, (KUBEFLOW, TENSORFLOW), strict=True):
            idle.create_alpha(name, {"replicaSpecs": [entry("MASTER", "forever")]})
            eventually(
                lambda: [each.id for each in stage.explain(name, 120.0).causes][:1] == [name],  # noqa: B023
                name,
                yet=lambda: str(stage.explain(name, 120.0)),  # noqa: B023
            )
