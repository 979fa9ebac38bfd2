"""The operator is installed on clusters of other operators: their jobs continue, and nothing runs twice.

Jobs, pods and services are created as by those operators, with their CRD without a schema. Then the CRD of this project is
applied, and the operator starts.
"""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from fakes.predecessors import PREDECESSORS, Alpha, Predecessor
from hack.control_plane import ControlPlane
from hack.crd_schema.__main__ import CRD
from hack.hollow_node.script import RUN
from hack.matrix.cluster import open_crd
from hack.objects import an_object
from integration.cluster import Cluster, replica
from support.waiting import eventually
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType

pytestmark = pytest.mark.nightly
BY_OPERATOR = pytest.mark.parametrize("predecessor", PREDECESSORS, ids=str)
OLD_VERSIONS: Final = ("v1alpha1", "v1alpha2", "v1beta2", "v1")
FOREVER: Final = replica(run="forever")


def old_crd(stored: str) -> dict[str, Any]:
    """The CRD as it was then: without a schema and without a status subresource."""
    crd = open_crd("kubeflow.org", "TFJob", "tfjobs")
    (version,) = crd["spec"]["versions"]
    crd["spec"]["names"]["singular"] = "tfjob"
    crd["spec"]["versions"] = [version | {"name": name, "storage": name == stored} for name in OLD_VERSIONS]
    return crd


def create_all(plane: ControlPlane, namespace: str, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Create objects with one kubectl, and return them as the server has stored them."""
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    made = plane.run_kubectl("create", f"--namespace={namespace}", "--output=json", "-f", "-", input=body).stdout
    found, decoder = [], json.JSONDecoder()
    while made := made.strip():  # one object after the other
        each, end = decoder.raw_decode(made)
        found.append(each)
        made = made[end:]
    return found


class OldCluster:
    """A namespace in which another operator has worked."""

    def __init__(self, plane: ControlPlane, predecessor: Predecessor) -> None:
        self._plane = plane
        self._predecessor = predecessor
        self._jobs: list[dict[str, Any]] = []
        self._runs: dict[str, dict[str, str]] = {}
        self.namespace = f"test-{secrets.token_hex(4)}"
        plane.create_namespace(self.namespace)

    def job(self, name: str, spec: dict[str, Any], status: dict[str, Any], *, pods: bool = True, **run: str) -> None:
        """Plan a job with this status and its children; `run` has scripts by type, for pods that do not follow the template."""
        self._jobs.append(self._predecessor.job(name, spec, status))
        if pods:
            self._runs[name] = run

    def fill(self) -> None:
        """Create a job in each of the states in which an operator may leave one."""
        predecessor, namespace = self._predecessor, self.namespace
        three = {"Master": FOREVER, "Worker": FOREVER, "PS": FOREVER}
        self.job("runs", predecessor.spec(three), predecessor.running(namespace, "runs", Master=1, Worker=1, PS=1))
        two = {"Worker": FOREVER, "PS": FOREVER}
        self.job("over", predecessor.spec(two), predecessor.ended(namespace, "over", Worker=1), Worker="0s:0")
        brief = predecessor.spec({"Worker": FOREVER}, ttlSecondsAfterFinished=1)
        self.job("brief", brief, predecessor.ended(namespace, "brief", Worker=1), Worker="0s:0")
        self.job("begins", predecessor.spec({"Worker": FOREVER}), predecessor.created("begins"), pods=False)
        retries = predecessor.spec({"Worker": replica(policy="ExitCode", run="0.1s:0")})
        self.job("retries", retries, predecessor.running(namespace, "retries", Worker=1), Worker="0s:137")
        self.job("fails", predecessor.spec({"Worker": FOREVER}), predecessor.created("fails"), Worker="0s:1")
        jobs = create_all(self._plane, namespace, self._jobs)
        create_all(self._plane, namespace, [child for job in jobs for child in self._children(job)])

    def _children(self, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the pods and services of a job that was created."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        if name not in self._runs:
            return
        for kind, each in job["spec"]["tfReplicaSpecs"].items():
            pod = self._predecessor.pod(name, uid, kind, 0, each, master=kind == "Master")
            if kind in self._runs[name]:
                pod["metadata"]["annotations"] = {RUN: self._runs[name][kind]}
            yield pod
            yield self._predecessor.service(name, uid, kind, 0)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """An API server of these tests' own, whose CRD changes."""
    with ControlPlane.start("upgrade") as plane:
        yield plane


@pytest.fixture(scope="module")
def namespaces(plane: ControlPlane) -> dict[str, str]:
    """The namespaces in which the other operators have worked, by the operators' names; our CRD was applied afterwards."""
    found: dict[str, str] = {}
    verb = "create"
    for stored in OLD_VERSIONS:
        plane.run_kubectl(verb, "-f", "-", input=json.dumps(old_crd(stored)))
        plane.wait_for_crd("tfjobs.kubeflow.org")
        verb = "replace"
        for predecessor in PREDECESSORS:
            if predecessor.version == stored:
                old = OldCluster(plane, predecessor)
                old.fill()
                found[predecessor.name] = old.namespace
        if stored == "v1alpha1":
            found["alpha"] = fill_alpha(plane)
    plane.run_kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD))
    plane.wait_for_crd("tfjobs.kubeflow.org")
    plane.restart_controller_manager()
    return found


def uids(cluster: Cluster, resource: str, job: str) -> dict[str, str]:
    found = [item["metadata"] for item in cluster.items(resource)]
    return {meta["name"]: meta["uid"] for meta in found if meta["ownerReferences"][0]["name"] == job}


def phases(cluster: Cluster, job: str) -> set[str]:
    items = cluster.items("pods")
    return {item["status"]["phase"] for item in items if item["metadata"]["ownerReferences"][0]["name"] == job}


@BY_OPERATOR
def test_jobs_that_another_operator_began_go_on_under_this_one(
    plane: ControlPlane, namespaces: dict[str, str], tmp_path: Path, predecessor: Predecessor
) -> None:
    """B13, B72: running pods keep their UIDs, missing ones are created, failed ones replaced, and ended jobs stay ended."""
    cluster = Cluster(plane, namespaces[predecessor.name], tmp_path)
    with cluster.node():
        eventually(lambda: phases(cluster, "runs") == {"Running"}, "all of it runs")
        eventually(lambda: phases(cluster, "over") == {"Running", "Succeeded"}, "one has ended, one runs")
        eventually(lambda: phases(cluster, "retries") | phases(cluster, "fails") == {"Failed"}, "they have failed")
        before = {job: {kind: uids(cluster, kind, job) for kind in ("pods", "services")} for job in ("runs", "over")}
        failed, over = uids(cluster, "pods", "retries"), cluster.job("over")
        with cluster.operator():
            eventually(lambda: "begun" in cluster.job("runs")["status"], "the job is this operator's")
            assert {kind: uids(cluster, kind, "runs") for kind in ("pods", "services")} == before["runs"]
            status = cluster.job("runs")["status"]
            one = {"active": 1, "succeeded": 0, "failed": 0}
            assert status["replicaStatuses"] == {"Master": one, "Worker": one, "PS": one}
            assert status["conditions"][-1]["type"] == ConditionType.RUNNING
            assert_selected(cluster, "runs")
            cluster.wait_for("begins", ConditionType.RUNNING)
            cluster.wait_for("retries", ConditionType.SUCCEEDED)
            assert uids(cluster, "pods", "retries").keys() == failed.keys()
            assert uids(cluster, "pods", "retries") != failed
            cluster.wait_for("fails", ConditionType.FAILED)
            eventually(lambda: "brief" not in cluster.names("tfjobs"), "its time is over")
            eventually(lambda: not uids(cluster, "pods", "brief"), "its pods go with it")
            cluster.kubectl("annotate", "pod", "runs-master-0", f"{RUN}=0s:0", "--overwrite")
            cluster.wait_for("runs", ConditionType.SUCCEEDED)
            eventually(lambda: set(uids(cluster, "pods", "runs")) == {"runs-master-0"}, "what still ran is gone")
            eventually(lambda: set(uids(cluster, "services", "runs")) == {"runs-master-0"}, "its services too")
            assert uids(cluster, "pods", "runs")["runs-master-0"] == before["runs"]["pods"]["runs-master-0"]
        after = cluster.job("over")
        assert after["metadata"]["resourceVersion"] == over["metadata"]["resourceVersion"]
        assert after["status"] == over["status"]
        assert {kind: uids(cluster, kind, "over") for kind in ("pods", "services")} == before["over"]
        created = [text for _, reason, text in cluster.events("runs") if reason.startswith("SuccessfulCreate")]
        assert created == []
        took_over = [text for _, reason, text in cluster.events("runs") if reason == "SuccessfulAdopt"]
        assert bool(took_over) is not predecessor.watched
        assert not [event for event in cluster.events("runs") if event[0] == "Warning"]


def assert_selected(cluster: Cluster, job: str) -> None:
    """Check that each service selects the pod of its name, by labels that a recreated pod would have too."""
    pods = {item["metadata"]["name"]: item["metadata"]["labels"] for item in cluster.items("pods")}
    for service in cluster.items("services"):
        name, selector = service["metadata"]["name"], service["spec"]["selector"]
        if service["metadata"]["ownerReferences"][0]["name"] == job:
            assert set(selector) == set(c.SELECTING_LABELS)
            assert [pod for pod, labels in pods.items() if labels.items() >= selector.items()] == [name]


RUNTIME_ID: Final = "76no"
KINDS: Final = ("MASTER", "WORKER", "PS")


def alpha_job(name: str, status: dict[str, Any]) -> dict[str, Any]:
    """A job of kubeflow.org/v1alpha1 as tf-operator 0.3 stored it: with defaults, and a random RuntimeId."""
    template = FOREVER["template"] | {"spec": FOREVER["template"]["spec"] | {"restartPolicy": "OnFailure"}}
    entries = [{"tfReplicaType": kind, "replicas": 1, "tfPort": 2222, "template": template} for kind in KINDS]
    spec = {
        "RuntimeId": RUNTIME_ID,
        "replicaSpecs": entries,
        "terminationPolicy": {"chief": {"replicaName": "MASTER", "replicaIndex": 0}},
        "tfImage": "tensorflow/tensorflow:1.3.0",
    }
    return an_object(Alpha.RESOURCE, name, spec, status)


def fill_alpha(plane: ControlPlane) -> str:
    """Create a namespace in which tf-operator 0.3 has run one job, and has ended another one. Return its name."""
    namespace = f"test-{secrets.token_hex(4)}"
    plane.create_namespace(namespace)

    running = alpha_job("learns", Alpha.status("Running", "Running", *KINDS))
    done = alpha_job("done", Alpha.status("Done", "Succeeded", *KINDS))
    learns, _ = create_all(plane, namespace, [running, done])
    uid, children = learns["metadata"]["uid"], []
    for each in learns["spec"]["replicaSpecs"]:
        kind = each["tfReplicaType"]
        children.append(Alpha.pod(Alpha.child("learns", uid, RUNTIME_ID, kind, 0), each["template"]))
        children.append(Alpha.service("learns", uid, RUNTIME_ID, kind, 0))
    create_all(plane, namespace, children)
    return namespace


def test_pods_that_tf_operator_0_3_made_in_the_alpha_dialect_go_on(
    plane: ControlPlane, namespaces: dict[str, str], tmp_path: Path
) -> None:
    """B13, B72: their names are random, so only their labels keep them from being created twice."""
    cluster = Cluster(plane, namespaces["alpha"], tmp_path)
    apis = "--apis=kubeflow.org/v1,kubeflow.org/v1alpha1"
    with cluster.node():
        eventually(lambda: phases(cluster, "learns") == {"Running"}, "all of it runs")
        before, done = uids(cluster, "pods", "learns"), cluster.job("done")
        assert len(before) == 3
        with cluster.operator(apis, "--leader-elect=false"):
            eventually(lambda: "begun" in cluster.job("learns")["status"], "the job is this operator's")
            status = cluster.job("learns")["status"]
            assert (status["phase"], status["runtimeId"]) == ("Running", RUNTIME_ID)
            assert uids(cluster, "pods", "learns") == before
            assert cluster.names("jobs") == []
            worker = f"learns-worker-{RUNTIME_ID}-0-x7k2q"
            cluster.kubectl("delete", "pod", worker)
            eventually(lambda: cluster.names("jobs") == [f"worker-{RUNTIME_ID}-0"], "the worker has a Job now")
            eventually(lambda: len(cluster.names("pods")) == 3, "and a pod")
            cluster.kubectl("annotate", "pod", f"learns-master-{RUNTIME_ID}-0-x7k2q", f"{RUN}=0s:0", "--overwrite")
            eventually(lambda: cluster.job("learns")["status"]["phase"] == "Done", "the job has ended")
            assert cluster.job("learns")["status"]["state"] == "Succeeded"
            eventually(lambda: list(uids(cluster, "pods", "learns")) == [f"learns-master-{RUNTIME_ID}-0-x7k2q"], "rest")
            eventually(lambda: cluster.names("jobs") == [], "the worker's Job is gone")
        after = cluster.job("done")
        assert after["metadata"]["resourceVersion"] == done["metadata"]["resourceVersion"]
        assert after["status"] == done["status"]
