"""Statuses that are too large for etcd, or that a CRD refuses, on a real API server."""

import base64
import json
import time
from typing import Any

import pytest

from integration.cluster import Cluster, replica, specs, tfjob
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionType, EventReason
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.controller.tfjob.plan.size import MAX_OBJECT

MINUTE_S = 60.0
ETCD_LIMIT = 1_572_864
REFUSED = "tf_operator_jobs_status_refused"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tfjobs.kubeflow.org"
RESTARTS = "/spec/versions/{}/schema/openAPIV3Schema/properties/status/properties/restarts/maxItems"


def stored_size(cluster: Cluster, name: str) -> int:
    """The bytes of a job in etcd."""
    key = f"/registry/kubeflow.org/tfjobs/{cluster.namespace}/{name}"
    found: Any = cluster.plane.etcd_call("kv/range", {"key": base64.b64encode(key.encode()).decode()})
    (pair,) = found["kvs"]
    return len(base64.b64decode(pair["value"]))


def with_text(spec: dict[str, Any], size: int) -> dict[str, Any]:
    """The spec with this many bytes of arguments in its workers."""
    found: dict[str, Any] = json.loads(json.dumps(spec))
    found["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"] = ["x" * 97] * (size // 100)
    return found


def record(index: int, **more: Any) -> dict[str, Any]:
    uid = f"{index:08}-aaaa-bbbb-cccc-0123456789ab"
    return {"type": "Worker", "index": index, "pod": uid, "carried": 6, "replaced": True} | more


def write_status(cluster: Cluster, name: str, status: dict[str, Any]) -> tuple[int, Any]:
    path = f"{cluster._path('tfjobs', name)}/status"
    return cluster.plane.request("PATCH", path, {"status": status}, content_type="application/merge-patch+json")


def is_reported(cluster: Cluster, name: str, text: str) -> bool:
    return any(reason == EventReason.STATUS_REFUSED and text in message for reason, message in cluster.warnings(name))


def test_a_job_of_10_000_restarted_replicas_is_kept_below_the_limit_of_etcd(cluster: Cluster) -> None:
    """With a template of 200 kB that `kubectl apply` has also stored in an annotation.

    The whole status at its worst, 3.5 MB, is one that etcd refuses. What it accepts is 1.5 MB, written by an older release; the
    next status of the operator is smaller, and has every restart. `<` takes six bytes in etcd.
    """
    spec = with_text(specs(Worker=replica(MAX_REPLICAS, "ExitCode")), 200_000)
    spec["runPolicy"] = {"suspend": True}
    spec["enableDynamicWorker"] = True
    job = tfjob("large", spec)
    job["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(job, separators=(",", ":"))}
    cluster.post(job)
    moment = "2026-01-01T00:00:00Z"
    worst = {"stopped": True, "onNode": True, "inPlace": 3, "failedAt": moment, "nextTime": moment, "rule": "r" * 128}
    history = [{"number": number, "message": "<" * 2048} for number in range(5)]
    status = {"observedGeneration": 1, "begun": {"generation": 1}, "attemptHistory": history}
    code, answer = write_status(
        cluster, "large", status | {"restarts": [record(index, **worst) for index in range(MAX_REPLICAS)]}
    )
    assert (code, "too large" in answer["message"]) in {(500, True), (413, True)}, answer
    records = [record(index) for index in range(MAX_REPLICAS)]
    code, answer = write_status(cluster, "large", status | {"restarts": records})
    assert code == 200, answer
    before = stored_size(cluster, "large")
    assert MAX_OBJECT < before < ETCD_LIMIT
    assert abs(before - len(json.dumps(cluster.job("large"), separators=(",", ":"))) - 5 * 5 * 2048) < 1000
    with cluster.operator() as operator:
        found = cluster.wait_for("large", ConditionType.SUSPENDED)
        size = stored_size(cluster, "large")
        assert 0.9 * MAX_OBJECT < size <= MAX_OBJECT
        assert (
            sum(each.get("carried", 0) + each.get("replaced", False) for each in found["restarts"]) == 7 * MAX_REPLICAS
        )
        assert operator.value(REFUSED) == 0
        version = cluster.job("large")["metadata"]["resourceVersion"]
        time.sleep(5)
        assert cluster.job("large")["metadata"]["resourceVersion"] == version


@pytest.mark.nightly
def test_a_status_that_a_crd_refuses_is_reported_and_written_when_the_crd_is_mended(cluster: Cluster) -> None:
    """Nothing is created or deleted meanwhile, and the running pod goes on. Each change shows within a minute."""
    versions = range(len(cluster.plane.request("GET", CRD)[1]["spec"]["versions"]))
    kind = "application/json-patch+json"
    with cluster.operator() as operator, cluster.node():
        runs = {"Worker": replica(1, "ExitCode", run="forever"), "PS": replica(1, "ExitCode", run="2s:137")}
        try:
            limit = [{"op": "add", "path": RESTARTS.format(number), "value": 0} for number in versions]
            code, answer = cluster.plane.request("PATCH", CRD, limit, content_type=kind)
            assert code == 200, answer
            time.sleep(2)
            cluster.create("refused", specs(**runs))
            eventually(lambda: len(cluster.names("pods")) == 2, "both pods are created")
            eventually(lambda: is_reported(cluster, "refused", "422"), "it is reported", limit_s=MINUTE_S + 10)
            assert operator.value(REFUSED) == 1
            uids = cluster.uids("pods", "services")
            time.sleep(5)
            assert cluster.uids("pods", "services") == uids
        finally:
            no_limit = [{"op": "remove", "path": RESTARTS.format(number)} for number in versions]
            cluster.plane.request("PATCH", CRD, no_limit, content_type=kind)
        eventually(lambda: cluster.job("refused")["status"].get("restarts"), "it is counted", limit_s=MINUTE_S)
        failed = uids["pods/refused-ps-0"]
        eventually(lambda: cluster.uids("pods").get("pods/refused-ps-0", failed) != failed, "its pod is replaced")
        assert cluster.uids("pods")["pods/refused-worker-0"] == uids["pods/refused-worker-0"]
        eventually(lambda: operator.value(REFUSED) == 0, "nothing is refused any more")


@pytest.mark.nightly
def test_a_spec_that_leaves_no_room_for_a_status_is_reported_and_runs_when_it_is_shortened(cluster: Cluster) -> None:
    """etcd accepted the spec, and nothing of the status."""
    spec = specs(Worker=replica(1, run="forever"))
    size = ETCD_LIMIT - 1000
    body = tfjob("full", with_text(spec, size))
    while cluster.plane.request("POST", cluster._path("tfjobs", ""), body)[0] != 201:
        size -= 400
        body = tfjob("full", with_text(spec, size))
    with cluster.operator() as operator, cluster.node():
        eventually(lambda: is_reported(cluster, "full", "too large"), "it is reported", limit_s=MINUTE_S + 10)
        assert operator.value(REFUSED) == 1
        assert len(cluster.names("pods")) <= 1
        cluster.patch("tfjobs", "full", {"spec": spec})
        cluster.wait_for("full", ConditionType.RUNNING)
        assert operator.value(REFUSED) == 0
