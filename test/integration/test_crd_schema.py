"""The CRD's schema on a real API server rejects what Go cannot decode, and nothing else."""

import functools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from fakes.jobs import container
from fakes.manifests import read_document
from hack.control_plane import ControlPlane
from hack.crd_schema.__main__ import CRD
from hack.kubernetes_versions import NUMBERS_ARE_EXACT
from integration.cluster import Cluster, replica, specs, tfjob
from integration.fuzz import specifications
from integration.go_types import CannotDecodeError, decode
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.controller.tfjob.crd_check import OPENAPI_V2, OPENAPI_V3, missing_fields

CREATED, BAD_REQUEST, REFUSED = 201, 400, 422
SEED = 11
"""Any number will do; as it is fixed, two runs differ only if the schema does."""
EXPLAINS_BY_V3 = 27
"""The first minor version of kubectl whose `explain` uses OpenAPI v3; servers have that since three versions earlier."""
NAMESPACE = "stored"


def go_can_decode(body: bytes) -> bool:
    try:
        decode(body)
    except CannotDecodeError:
        return False
    return True


def with_container(**fields: Any) -> dict[str, Any]:
    """A specification whose only container has these fields, too."""
    return specs(Worker={"template": container(**fields)})


@pytest.mark.nightly
def test_what_the_api_server_lets_through_go_can_decode(
    control_plane: ControlPlane, crd: None, request: pytest.FixtureRequest
) -> None:
    """U6: one object that Go cannot decode would take the whole list from every Go program that watches TFJobs.

    `--creates 100000` for a long run.
    """
    said: Counter[int] = Counter()
    connection = control_plane.connect()

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=request.config.getoption("--creates"),
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(specifications(fractions_too=control_plane.version.has(NUMBERS_ARE_EXACT)))
    def create(spec: Any) -> None:
        path = "/apis/kubeflow.org/v1/namespaces/default/tfjobs?dryRun=All"
        connection.request("POST", path, json.dumps(tfjob("fuzz", spec)), {"Content-Type": "application/json"})
        with connection.getresponse() as response:
            answer = response.read()
        said[response.status] += 1
        assert response.status in {CREATED, BAD_REQUEST, REFUSED}, answer
        if response.status == CREATED:
            decode(answer)

    try:
        create()
    finally:
        connection.close()
    assert min(said[CREATED], said[REFUSED]) > sum(said.values()) / 20, said


@pytest.mark.parametrize(
    "fields",
    [
        {"args": None},
        {"args": [None]},
        {"env": None, "ports": None, "resources": None},
        {"env": [{"name": "A", "value": ""}]},
        {"resources": {"limits": {"cpu": 0.5, "memory": "1Gi", "nvidia.com/gpu": 1}}},
        {"livenessProbe": {"httpGet": {"port": "http"}}},
        {"livenessProbe": {"httpGet": {"port": 80}}},
        {"fieldOfTomorrow": {"deep": [1, None, {}]}},
        {"securityContext": {"runAsUser": 2**31 + 1}},
    ],
    ids=str,
)
def test_what_pods_take_is_stored_as_it_came(cluster: Cluster, fields: dict[str, Any]) -> None:
    """U6: the schema accepts what Go accepts, and nothing of it is lost but fields that are null, which say nothing."""
    spec = with_container(**fields)
    spec["tfReplicaSpecs"]["Worker"]["template"]["metadata"] = {"creationTimestamp": None}
    cluster.create("taken", spec)
    expected = with_container()
    expected["tfReplicaSpecs"]["Worker"]["template"]["metadata"] = {"creationTimestamp": None}
    (kept,) = expected["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    kept.update({name: value for name, value in fields.items() if value is not None})
    assert cluster.job("taken")["spec"] == expected


def test_null_replicas_are_unset(cluster: Cluster) -> None:
    """The scale subresource takes no null for the number of workers."""
    spec = with_container()
    spec["tfReplicaSpecs"]["Worker"]["replicas"] = None
    cluster.create("unset", spec)
    assert cluster.job("unset")["spec"] == with_container()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"args": [5]}, "string"),
        ({"env": [{"name": "A", "value": 3}]}, "string"),
        ({"resources": {"limits": {"cpu": "abc"}}}, "cpu"),
        ({"resources": {"limits": {"cpu": True}}}, "cpu"),
        ({"ports": [{"containerPort": 2**31}]}, "containerPort"),
        ({"ports": "2222"}, "array"),
    ],
    ids=str,
)
def test_what_go_cannot_decode_is_refused(cluster: Cluster, fields: dict[str, Any], told: str) -> None:
    """U6: by the API server, which names the field."""
    spec = with_container(**fields)
    assert not go_can_decode(json.dumps(tfjob("x", spec)).encode())
    with pytest.raises(Exception, match=told):
        cluster.create("refused", spec)


def test_a_document_that_shows_a_status_can_be_created_again(cluster: Cluster) -> None:
    """U10b: with kubectl's own validation and the API server's, also where the status is another operator's."""
    status = {
        "conditions": [{"type": "Running", "status": "True", "note": "of another time"}],
        "replicaStatuses": {"Worker": {"running": 1}, "PS": {}},
        "tfReplicaStatuses": {"Worker": {"active": 1}},
        "startTime": "2019-01-01T00:00:00Z",
    }
    cluster.kubectl(
        "create", "--validate=true", "-f", "-", stdin=json.dumps(tfjob("shown", with_container(), status=status))
    )
    assert "status" not in cluster.job("shown")


def test_both_kinds_of_apply_take_a_job(cluster: Cluster) -> None:
    """U6: server-side apply reads the schema too, and must not stumble over its quantities."""
    document = json.dumps(tfjob("applied", with_container(resources={"limits": {"cpu": 0.5, "memory": "1Gi"}})))
    cluster.kubectl("apply", "-f", "-", stdin=document)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=document)


@pytest.mark.parametrize(
    ("field", "of_the_field", "of_all"),
    [
        ("backoffLimit", "restarts before the job fails.", "backoffLimit (the number of restarts"),
        (
            "failurePolicy.rules.action",
            "RestartAll restarts the whole job",
            "failurePolicy (rules that restart or fail the job",
        ),
        ("nodeLostTimeoutSeconds", "Containers on such a node may still run.", "nodeLostTimeoutSeconds"),
    ],
)
def test_kubectl_explains_the_fields(
    control_plane: ControlPlane, crd: None, field: str, of_the_field: str, of_all: str
) -> None:
    """U6: an old kubectl, which reads OpenAPI v2, shows the description of the whole object, which names the field."""

    def explained() -> str:
        path = f"tfjob.spec.runPolicy.{field}"
        return " ".join(control_plane.run_kubectl("explain", path, check=False).stdout.split())

    expected = of_the_field if control_plane.version.minor >= EXPLAINS_BY_V3 else of_all
    eventually(lambda: expected in explained(), f"{field} is explained")


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """An API server of this module's own, whose CRD changes."""
    with ControlPlane.start("crd") as plane:
        plane.create_namespace(NAMESPACE)
        yield plane


def install(plane: ControlPlane, **schemas: dict[str, Any]) -> None:
    """Apply our CRD, with other schemas for `spec` or `status`."""
    crd = read_document(CRD)
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] |= schemas
    plane.run_kubectl("apply", "--server-side", "-f", "-", input=json.dumps(crd))
    plane.wait_for_crd("tfjobs.kubeflow.org")


def test_a_job_from_before_the_schema_harms_no_other(plane: ControlPlane, tmp_path: Path) -> None:
    """U6: it stays as it is stored and can be deleted, though old API servers refuse every other write to it."""
    install(plane, spec={"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    bad = {
        "args": with_container(args=[5]),
        "policy": specs(Worker=replica()) | {"runPolicy": "x"},
        "text": {"successPolicy": 3},
    }
    create = functools.partial(plane.run_kubectl, "create", f"--namespace={NAMESPACE}", "-f", "-", check=False)
    for name, spec in bad.items():
        stored = functools.partial(create, input=json.dumps(tfjob(name, spec)))
        eventually(lambda stored=stored: stored().returncode == 0, "the open schema is in use")  # type: ignore[misc]
    install(plane)
    refused = functools.partial(create, input=json.dumps(tfjob("new", {"successPolicy": 3})))
    eventually(lambda: "must be of type" in refused().stderr, "the schema is in use")
    cluster = Cluster(plane, NAMESPACE, tmp_path)
    with cluster.operator(), cluster.node():
        cluster.create("good", specs(Worker=replica()))
        cluster.wait_for("good", ConditionType.SUCCEEDED)
        cluster.kubectl("delete", "tfjob", *bad, "--timeout=30s")
    assert cluster.names("tfjobs") == ["good"]
    cluster.kubectl("delete", "tfjob", "good")


def test_a_crd_that_lacks_our_fields_costs_a_warning_and_no_writes(plane: ControlPlane, tmp_path: Path) -> None:
    """D3: under such a CRD, that of the Go operators, every job used to be rewritten once a second without a warning."""
    status = read_document(CRD)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    del status["x-kubernetes-preserve-unknown-fields"]
    kept = {"conditions", "replicaStatuses", "startTime", "completionTime", "lastReconcileTime"}
    status["properties"] = {name: schema for name, schema in status["properties"].items() if name in kept}
    install(plane, status=status)
    eventually(lambda: missing_fields(_openapi(plane)), "the API server shows the schema, some time after it uses it")
    cluster = Cluster(plane, NAMESPACE, tmp_path)
    with cluster.operator() as operator, cluster.node():
        names = ("foreign-1", "foreign-2")
        for name in names:
            cluster.create(name, specs(Worker=replica()))
        for name in names:
            cluster.wait_for(name, ConditionType.SUCCEEDED)
        eventually(lambda: all(_warnings(cluster, name) for name in names), "the jobs tell")
        before = {name: cluster.job(name)["metadata"]["resourceVersion"] for name in names}
        assert "workerSelector" not in cluster.job("foreign-1")["status"]
        cluster.create("later", specs(Worker=replica(run="3s:0")))  # three windows of counters pass meanwhile
        cluster.wait_for("later", ConditionType.SUCCEEDED)
        assert {name: cluster.job(name)["metadata"]["resourceVersion"] for name in names} == before
        assert [len(_warnings(cluster, name)) for name in names] == [1, 1]
        operator.wait_for("crd_lacks_fields")  # a minute after the start
    lines = [
        json.loads(line) for file in tmp_path.glob("*.log") for line in file.read_text().splitlines() if line[:1] == "{"
    ]
    logged = [line for line in lines if line.get("event") in {"status_fields_pruned", "crd_lacks_fields"}]
    assert sorted(line["event"] for line in logged) == ["crd_lacks_fields", "status_fields_pruned"]
    assert all("finishedIndices" in str(line["fields"]) for line in logged if line["event"] == "crd_lacks_fields")


def _openapi(plane: ControlPlane) -> bytes:
    for path in (OPENAPI_V3, OPENAPI_V2):
        if text := plane.run_kubectl("get", "--raw", path, check=False).stdout:
            return text.encode()
    return b"{}"


def _warnings(cluster: Cluster, name: str) -> list[str]:
    return [message for _, reason, message in cluster.events(name) if reason == "StatusFieldsPruned"]
