"""Children without an owner, and children whose labels or selectors are edited, on a real API server."""

from functools import partial
from pathlib import Path

from hack.hollow_node.script import RUN
from hack.objects import an_object
from integration.cluster import Cluster, replica, specs
from support.waiting import eventually
from tfjob_operator.api.core import PODS
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType


def controllers(cluster: Cluster, resource: str) -> set[str]:
    """The UIDs of whatever controls the objects of a resource; "" for an orphan."""
    return {
        next((owner["uid"] for owner in item["metadata"].get("ownerReferences", []) if owner.get("controller")), "")
        for item in cluster.items(resource)
    }


def test_a_job_that_is_made_again_takes_over_what_was_left_behind(served: Cluster) -> None:
    """RM-01, RM-02, RM-03, B12, B13: after `kubectl delete --cascade=orphan` the pods run on, owned by the new job."""
    spec = specs(Worker=replica(3, run="forever"))
    served.create("heir", spec)
    served.wait_for("heir", ConditionType.RUNNING)
    before = served.uids("pods", "services")
    served.kubectl("delete", "tfjob", "heir", "--cascade=orphan")
    eventually(lambda: controllers(served, "pods") == controllers(served, "services") == {""}, "they are orphans")
    served.create("heir", spec)
    uid = served.job("heir")["metadata"]["uid"]
    eventually(lambda: controllers(served, "pods") == controllers(served, "services") == {uid}, "they are adopted")
    served.wait_for("heir", ConditionType.RUNNING)
    assert served.uids("pods", "services") == before
    eventually(lambda: served.active("heir") == 3, "all three are counted")
    assert not served.warnings("heir")
    served.kubectl("delete", "tfjob", "heir")
    served.wait_for_no_children()


WORKER_0 = {
    c.LABEL_GROUP_NAME: c.GROUP_NAME,
    c.LABEL_OPERATOR_NAME: c.OPERATOR_NAME,
    c.LABEL_REPLICA_TYPE: "worker",
    c.LABEL_REPLICA_INDEX: "0",
}
"""The labels of worker 0, except the name of its job."""
SPEC = {"restartPolicy": "Never", "containers": [{"name": "tensorflow", "image": "i"}]}
pod = partial(an_object, PODS, spec=SPEC, annotations={RUN: "0.5s:0"})


def test_an_orphan_that_matches_is_adopted_and_one_with_another_owner_is_not(served: Cluster) -> None:
    """RM-01, B13: the orphan becomes the job's only worker; a pod with the same labels and another owner is not touched."""
    served.kubectl("create", "configmap", "somebody")
    owner = served.api("GET", "configmaps", "somebody")["metadata"]["uid"]
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "name": "somebody", "uid": owner, "controller": True}
    labels = WORKER_0 | {c.LABEL_JOB_NAME: "finds"}
    served.post(pod("foreign", labels=labels, ownerReferences=[foreign]))
    served.post(pod("finds-worker-0", labels=labels, annotations={RUN: "forever"}))
    served.create("finds", specs(Worker=replica(run="forever")))
    served.wait_for("finds", ConditionType.RUNNING)
    uid = served.job("finds")["metadata"]["uid"]
    assert served.names("pods") == ["finds-worker-0", "foreign"]
    assert controllers(served, "pods") == {uid, owner}


def is_labelled(cluster: Cluster, job: str, index: int) -> bool:
    """Whether pod and service of a worker bear the labels that say so, for old SDKs (U11) and new ones."""
    names = (c.LABEL_REPLICA_INDEX, "tf-replica-index", c.LABEL_PREFIX + c.LABEL_REPLICA_INDEX)
    wanted = {name: str(index) for name in names} | {c.LABEL_JOB_NAME: job, c.LABEL_OPERATOR_NAME: c.OPERATOR_NAME}
    wanted |= {c.LABEL_REPLICA_TYPE: "worker", "tf-replica-type": "worker"}
    found = [item["metadata"] for kind in ("pods", "services") for item in cluster.items(kind)]
    mine = [meta["labels"] for meta in found if meta["name"] == f"{job}-worker-{index}"]
    return len(mine) == 2 and all(labels.items() >= wanted.items() for labels in mine)


EDITS = (f"{c.LABEL_REPLICA_INDEX}=abc", f"{c.LABEL_JOB_NAME}=debug", f"{c.LABEL_OPERATOR_NAME}-")


def test_what_is_edited_of_children_is_set_back_and_they_go_with_their_job(served: Cluster) -> None:
    """U9, U17, D13: labels, also the one by which the operator watches, and a service's selector; no child is recreated."""
    served.create("keeps", specs(Worker=replica(3, run="forever")))
    served.wait_for("keeps", ConditionType.RUNNING)
    before = served.uids("pods", "services")
    assert is_labelled(served, "keeps", 0)
    selected = served.items("services")[0]["spec"]["selector"]
    for index, edit in enumerate(EDITS):
        served.kubectl("label", "pod", f"keeps-worker-{index}", "--overwrite", edit)
    served.kubectl("label", "service", "keeps-worker-1", "--overwrite", EDITS[0])
    served.kubectl("patch", "service", "keeps-worker-0", "--patch", '{"spec":{"selector":{"version":"2"}}}')
    eventually(lambda: all(is_labelled(served, "keeps", index) for index in range(3)), "the labels are back")
    eventually(lambda: served.items("services")[0]["spec"]["selector"] == selected, "the selector is back")
    assert served.uids("pods", "services") == before
    told = {"RestoredPodLabels", "RestoredServiceLabels", "RestoredServiceSelector"}
    eventually(lambda: told <= dict(served.warnings("keeps")).keys(), "it is told")
    served.kubectl("delete", "tfjob", "keeps")
    served.wait_for_no_children()


def test_a_second_pod_of_a_replica_goes(served: Cluster) -> None:
    """D7, U7: it is owned and labelled like the real one, and fails; the job goes on and does not count the failure."""
    served.create("single", specs(Worker=replica(run="forever")))
    served.wait_for("single", ConditionType.RUNNING)
    (true,) = served.items("pods")
    meta = {"labels": WORKER_0 | {c.LABEL_JOB_NAME: "single"}, "annotations": {RUN: "0.1s:1"}}
    served.post(pod("copy", ownerReferences=true["metadata"]["ownerReferences"], **meta))
    eventually(lambda: served.names("pods") == ["single-worker-0"], "the copy is gone")
    status = served.job("single")["status"]
    assert status["conditions"][-1]["type"] == ConditionType.RUNNING
    assert not status.get("restarts")
    assert served.uids("pods")["pods/single-worker-0"] == true["metadata"]["uid"]


def test_pods_that_have_ended_are_not_adopted_by_a_new_job(served: Cluster) -> None:
    """D15: the new job says which pod is in its way, and runs when that is deleted."""
    spec = specs(Worker=replica(run="0.1s:0")) | {"runPolicy": {"cleanPodPolicy": "None"}}
    served.create("again", spec)
    served.wait_for("again", ConditionType.SUCCEEDED)
    served.kubectl("delete", "tfjob", "again", "--cascade=orphan")
    eventually(lambda: controllers(served, "pods") == {""}, "it is an orphan")
    served.create("again", spec)
    eventually(lambda: "FailedCreatePod" in dict(served.warnings("again")), "it is told")
    served.wait_for("again", ConditionType.CREATED)
    served.kubectl("delete", "pod", "again-worker-0")
    served.wait_for("again", ConditionType.SUCCEEDED)


def test_a_pod_of_another_tenant_that_names_a_job_as_its_owner_changes_nothing_for_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    """D2: it has the UID, labels and name of the victim, and a finalizer that keeps it; the operator is a cluster-wide one."""
    tenant = f"{cluster.namespace}-mallory"
    cluster.plane.run_kubectl("create", "namespace", tenant)
    with cluster.operator("--namespace="), cluster.node():
        cluster.create("victim", specs(Worker=replica(run="forever")) | {"runPolicy": {"suspend": True}})
        cluster.wait_for("victim", ConditionType.SUSPENDED)
        uid = cluster.job("victim")["metadata"]["uid"]
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "victim", "uid": uid, "controller": True}
        mallory = Cluster(cluster.plane, tenant, tmp_path)
        meta = {"labels": WORKER_0 | {c.LABEL_JOB_NAME: "victim"}, "finalizers": ["example.com/stay"]}
        mallory.post(pod("victim-worker-0", ownerReferences=[owner], **meta))
        cluster.patch("tfjobs", "victim", {"spec": {"runPolicy": {"suspend": False}}})
        cluster.wait_for("victim", ConditionType.RUNNING)
        assert cluster.names("pods") == ["victim-worker-0"]
        assert cluster.active("victim") == 1
        mallory.patch("pods", "victim-worker-0", {"metadata": {"finalizers": None}})
        cluster.plane.run_kubectl("delete", "namespace", tenant, "--wait=false")
