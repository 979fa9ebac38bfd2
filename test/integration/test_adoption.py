"""Children without an owner, and children that are taken out, on a real API server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from api.v1 import constants as c
from hack.hollow_node.script import RUN
from integration.cluster import eventually, replica, specs

if TYPE_CHECKING:
    from hack.hollow_node.script import RUN
from integration.cluster import Cluster


def uids(cluster: Cluster, resource: str) -> dict[str, str]:
    """The UIDs of all objects of a resource, by name."""
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in cluster.items(resource)}


def controllers(cluster: Cluster, resource: str) -> set[str]:
    """The UIDs of whatever controls the objects of a resource; "" for an orphan."""
    return {
        next((owner["uid"] for owner in item["metadata"].get("ownerReferences", []) if owner.get("controller")), "")
        for item in cluster.items(resource)
    }


def test_a_job_that_is_made_again_takes_over_what_was_left_behind(cluster: Cluster) -> None:
    """RM-01, RM-02, RM-03, B12, B13: `kubectl delete --cascade=orphan`; the pods that run go on, under the new job."""
    with cluster.operator(), cluster.node():
        spec = specs(Worker=replica(3, run="forever"))
        cluster.create("heir", spec)
        cluster.wait_for("heir", c.RUNNING)
        before = {kind: uids(cluster, kind) for kind in ("pods", "services")}
        cluster.kubectl("delete", "tfjob", "heir", "--cascade=orphan")
        eventually(lambda: controllers(cluster, "pods") == controllers(cluster, "services") == {""}, "they are orphans")
        cluster.create("heir", spec)
        uid = cluster.job("heir")["metadata"]["uid"]
        eventually(
            lambda: controllers(cluster, "pods") == controllers(cluster, "services") == {uid}, "they are adopted"
        )
        cluster.wait_for("heir", c.RUNNING)
        assert {kind: uids(cluster, kind) for kind in ("pods", "services")} == before
        eventually(
            lambda: cluster.job("heir")["status"]["replicaStatuses"]["Worker"]["active"] == 3, "all three are counted"
        )
        assert not [event for event in cluster.events("heir") if event[0] == "Warning"]
        cluster.kubectl("delete", "tfjob", "heir")
        eventually(lambda: not cluster.names("pods") and not cluster.names("services"), "they go with their new owner")


def pod(job: str, name: str, owners: list[dict[str, Any]]) -> str:
    """A pod that bears all labels of worker 0 of a job."""
    labels = {
        c.LABEL_GROUP_NAME: c.GROUP_NAME,
        c.LABEL_OPERATOR_NAME: c.OPERATOR_NAME,
        c.LABEL_JOB_NAME: job,
        c.LABEL_REPLICA_TYPE: "worker",
        c.LABEL_REPLICA_INDEX: "0",
    }
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": {RUN: "0.5s:0"}, "ownerReferences": owners},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "tensorflow", "image": "i"}]},
    }
    return json.dumps(body)


def test_an_orphan_that_matches_is_adopted_and_one_with_another_owner_is_not(cluster: Cluster) -> None:
    """RM-01, B13: the job's only worker is the orphan; the pod of a job that is gone long ago is not looked at."""
    cluster.kubectl("create", "configmap", "somebody")
    owner = json.loads(cluster.kubectl("get", "configmap", "somebody", "--output=json"))["metadata"]["uid"]
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "name": "somebody", "uid": owner, "controller": True}
    with cluster.operator(), cluster.node():
        cluster.kubectl("create", "-f", "-", stdin=pod("finds", "foreign", [foreign]))
        cluster.kubectl("create", "-f", "-", stdin=pod("finds", "finds-worker-0", []))
        cluster.create("finds", specs(Worker=replica(run="forever")))
        cluster.wait_for("finds", c.SUCCEEDED)
        uid = cluster.job("finds")["metadata"]["uid"]
        assert cluster.names("pods") == ["finds-worker-0", "foreign"]
        assert controllers(cluster, "pods") == {uid, owner}


def test_a_pod_whose_label_is_changed_is_released(cluster: Cluster) -> None:
    """RM-01: it goes on by itself, and outlives the job."""
    with cluster.operator(), cluster.node():
        cluster.create("frees", specs(Worker=replica(2, run="forever")))
        cluster.wait_for("frees", c.RUNNING)
        cluster.kubectl("label", "pod", "frees-worker-1", "--overwrite", f"{c.LABEL_JOB_NAME}=debug")
        eventually(lambda: "" in controllers(cluster, "pods"), "it is released")
        cluster.kubectl("delete", "tfjob", "frees")
        eventually(lambda: cluster.names("pods") == ["frees-worker-1"], "the other one is gone")
