"""Gang scheduling on a real API server: PodGroups of both kinds; the test acts as scheduler."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.control_plane import ControlPlane
from integration.cluster import Cluster, replica, specs
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionType

HERE = Path(__file__).parent
VOLCANO = "podgroups.scheduling.volcano.sh"
COSCHEDULING = "podgroups.scheduling.x-k8s.io"


def install(plane: ControlPlane, name: str, crd: str) -> None:
    plane.run_kubectl("apply", "-f", str(HERE / "data" / name))
    plane.wait_for_crd(crd)


@pytest.fixture
def volcano(control_plane: ControlPlane) -> None:
    install(control_plane, "volcano-podgroups.yaml", VOLCANO)


@pytest.fixture
def no_volcano(control_plane: ControlPlane) -> Iterator[None]:
    control_plane.run_kubectl("delete", "crd", VOLCANO, "--ignore-not-found")
    yield
    control_plane.run_kubectl("delete", "crd", VOLCANO, "--ignore-not-found")


def pod_group(cluster: Cluster, name: str, crd: str = VOLCANO) -> dict[str, Any]:
    found = [group for group in cluster.items(crd) if group["metadata"]["name"] == name]
    return found[0] if found else {}


def enter(cluster: Cluster, name: str, phase: str) -> None:
    """Write a phase, as volcano does."""
    eventually(lambda: pod_group(cluster, name), "the PodGroup is there")
    cluster.patch(VOLCANO, f"{name}/status", {"status": {"phase": phase}})


def place(cluster: Cluster, count: int) -> None:
    """Wait for that many pods and bind them to the hollow node, as the gang scheduler would."""

    def place_new() -> bool:
        pods = cluster.items("pods")
        for pod in (each for each in pods if "nodeName" not in each["spec"]):
            target = {"apiVersion": "v1", "kind": "Node", "name": f"node-{cluster.namespace}"}
            meta = {"name": pod["metadata"]["name"]}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
            cluster.api("POST", "pods", f"{meta['name']}/binding", body)
        return len(pods) >= count

    eventually(place_new, f"{count} pods have their places")


def requesting(cpu: str, **fields: Any) -> dict[str, Any]:
    made = replica(**fields)
    made["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return made


def test_a_job_waits_until_volcano_lets_it_in_and_leaves_nothing_at_its_end(cluster: Cluster, volcano: None) -> None:
    """B65, B55, B31: PodGroup first; no pod before its phase allows it; a user's change of its queue stays; one deletion."""
    spec = specs(PS=requesting("500m", run="forever"), Worker=requesting("1", replicas=2, run="3s:0"))
    policy = {"queue": "research", "priorityClass": "high"}
    with cluster.operator("--enable-gang-scheduling"), cluster.node():
        cluster.create("gang", spec | {"runPolicy": {"schedulingPolicy": policy}})
        group = eventually(lambda: pod_group(cluster, "gang"), "the PodGroup is there")
        wanted = {"minMember": 3, "queue": "research", "priorityClassName": "high", "minResources": {"cpu": "2500m"}}
        assert group["spec"] == wanted
        (owner,) = group["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("TFJob", "gang", True)
        status = cluster.wait_for("gang", ConditionType.CREATED)
        assert status["replicaStatuses"]["Worker"] == {"active": 0, "succeeded": 0, "failed": 0}
        enter(cluster, "gang", "Pending")
        cluster.patch(VOLCANO, "gang", {"spec": {"queue": "elsewhere"}})
        time.sleep(1.0)
        assert cluster.names("pods") == []
        assert cluster.names("services") == []
        enter(cluster, "gang", "Inqueue")
        place(cluster, 3)
        cluster.wait_for("gang", ConditionType.RUNNING)
        pod = cluster.api("GET", "pods", "gang-worker-1")
        assert pod["spec"]["schedulerName"] == "volcano"
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "gang"
        assert pod["metadata"]["annotations"]["volcano.sh/task-spec"] == "worker"
        assert pod_group(cluster, "gang")["spec"]["queue"] == "elsewhere"
        cluster.wait_for("gang", ConditionType.SUCCEEDED)
        eventually(lambda: not pod_group(cluster, "gang"), "the PodGroup is gone")
        told = ("Normal", "SuccessfulDeletePodGroup", "Deleted PodGroup: gang")
        eventually(lambda: told in cluster.events("gang"), "its end is told")
        reasons = [reason for _, reason, _ in cluster.events("gang")]
        assert (reasons.count("SuccessfulCreatePodGroup"), reasons.count("SuccessfulDeletePodGroup")) == (1, 1)


def test_scaling_suspending_and_resuming_keep_the_group_true(cluster: Cluster, volcano: None) -> None:
    """B66: minMember follows the replicas and the queue stays; a suspended job has no group, a resumed one a new one."""
    with cluster.operator("--enable-gang-scheduling"), cluster.node():
        cluster.create("scaled", specs(Worker=requesting("1", replicas=2, run="forever")))
        enter(cluster, "scaled", "Running")
        place(cluster, 2)
        cluster.wait_for("scaled", ConditionType.RUNNING)
        cluster.patch(VOLCANO, "scaled", {"spec": {"queue": "elsewhere"}})
        cluster.patch("tfjobs", "scaled", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 4}}}})
        resized = {"minMember": 4, "minResources": {"cpu": "4"}, "queue": "elsewhere"}
        eventually(lambda: pod_group(cluster, "scaled")["spec"] == resized, "the PodGroup is resized")
        eventually(lambda: len(cluster.names("pods")) == 4, "the new pods are there")
        first = pod_group(cluster, "scaled")["metadata"]["uid"]
        cluster.patch("tfjobs", "scaled", {"spec": {"runPolicy": {"suspend": True}}})
        eventually(lambda: not pod_group(cluster, "scaled") and not cluster.names("pods"), "nothing is left")
        cluster.patch("tfjobs", "scaled", {"spec": {"runPolicy": {"suspend": False}}})
        enter(cluster, "scaled", "Inqueue")
        assert pod_group(cluster, "scaled")["metadata"]["uid"] != first
        eventually(lambda: len(cluster.names("pods")) == 4, "the pods are back")


def test_the_coscheduling_plugin_gets_group_and_pods_at_once(cluster: Cluster, control_plane: ControlPlane) -> None:
    """The group is older than every pod, and the pods bear its label."""
    install(control_plane, "coscheduling-podgroups.yaml", COSCHEDULING)
    policy = {"minAvailable": 1, "scheduleTimeoutSeconds": 30}
    with cluster.operator("--enable-gang-scheduling", "--gang-scheduler-name=coscheduler"), cluster.node():
        cluster.create("plug", specs(Worker=replica(2)) | {"runPolicy": {"schedulingPolicy": policy}})
        group = eventually(lambda: pod_group(cluster, "plug", COSCHEDULING), "the PodGroup is there")
        assert group["spec"] == {"minMember": 1, "scheduleTimeoutSeconds": 30}
        pods = eventually(lambda: cluster.items("pods"), "pods are there")
        assert {pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for pod in pods} == {"plug"}
        assert {pod["spec"]["schedulerName"] for pod in pods} == {"coscheduler"}
        created = int(group["metadata"]["resourceVersion"])
        assert all(int(pod["metadata"]["resourceVersion"]) > created for pod in pods)
        place(cluster, 2)
        cluster.wait_for("plug", ConditionType.SUCCEEDED)
        eventually(lambda: not pod_group(cluster, "plug", COSCHEDULING), "the PodGroup is gone")


def test_a_pod_group_of_somebody_else_keeps_the_pods_back_and_stays(cluster: Cluster, volcano: None) -> None:
    """B13: one Warning a person can act upon; when the stranger's group is gone the job goes on."""
    stranger = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "taken"}}
    with cluster.operator("--enable-gang-scheduling"), cluster.node():
        cluster.post(stranger)
        enter(cluster, "taken", "Running")
        cluster.create("taken", specs(Worker=replica()))
        text = (
            "Error creating: PodGroup taken already exists and is not controlled by this TFJob: it has no owner; "
            "delete it or recreate the job under another name"
        )
        eventually(lambda: ("Warning", "FailedCreatePodGroup", text) in cluster.events("taken"), "a person is told")
        assert cluster.names("pods") == []
        assert "ownerReferences" not in pod_group(cluster, "taken")["metadata"]
        cluster.api("DELETE", VOLCANO, "taken")
        eventually(lambda: pod_group(cluster, "taken").get("spec"), "the job has its own")
        enter(cluster, "taken", "Inqueue")
        place(cluster, 1)
        cluster.wait_for("taken", ConditionType.SUCCEEDED)


def test_without_the_crd_a_warning_says_so_and_what_runs_goes_on(
    cluster: Cluster, control_plane: ControlPlane, no_volcano: None
) -> None:
    """The operator is ready, looks after running jobs, and serves the others as soon as the CRD is there."""
    with cluster.node():
        with cluster.operator():
            cluster.create("runs", specs(Worker=replica(run="4s:0")))
            cluster.wait_for("runs", ConditionType.RUNNING)
        with cluster.operator("--enable-gang-scheduling"):
            cluster.create("waits", specs(Worker=replica()))
            cluster.wait_for("runs", ConditionType.SUCCEEDED)
            cluster.wait_for("waits", ConditionType.CREATED)
            ((reason, message),) = eventually(lambda: cluster.warnings("waits"), "a person is told")
            assert reason == "PodGroupsUnavailable"
            assert f"the CRD {VOLCANO} (v1beta1) is not installed" in message
            assert cluster.names("pods") == ["runs-worker-0"]
            install(control_plane, "volcano-podgroups.yaml", VOLCANO)
            enter(cluster, "waits", "Inqueue")
            place(cluster, 2)
            cluster.wait_for("waits", ConditionType.SUCCEEDED)
