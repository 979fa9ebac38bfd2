"""TensorBoards on the real API server: what it does with our bodies and patches, and which events users get."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from integration.cluster import Cluster, replica, specs, with_policy
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionType

NAME = "mnist-tensorboard"
QUIET_S = 3.0  # longer than any retry after a conflict
BOARD = {
    "logDir": "/logs/train",
    # The API server returns this as 1Gi.
    "volumes": [{"name": "logs", "emptyDir": {"sizeLimit": "1024Mi"}}],
    "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
}


def edit(cluster: Cluster, board: Any, name: str = "mnist") -> None:
    """Set the field of a job; None removes it."""
    cluster.kubectl("patch", "tfjob", name, "--type=merge", f"--patch={json.dumps({'spec': {'tensorBoard': board}})}")


def child(cluster: Cluster, kind: str, name: str = NAME) -> dict[str, Any]:
    """The Deployment or the Service; nothing when it is not there."""
    text = cluster.kubectl("get", kind, name, "--ignore-not-found", "--output=json")
    found: dict[str, Any] = json.loads(text) if text else {}
    return found


def command(cluster: Cluster) -> list[str]:
    """What the TensorBoard runs."""
    found: list[str] = child(cluster, "deployment")["spec"]["template"]["spec"]["containers"][0]["command"]
    return found


def is_there(cluster: Cluster, name: str = NAME) -> bool:
    return bool(child(cluster, "deployment", name) and child(cluster, "service", name))


def versions(cluster: Cluster) -> list[str]:
    return [child(cluster, kind)["metadata"]["resourceVersion"] for kind in ("deployment", "service")]


def warnings(cluster: Cluster, name: str = "mnist") -> list[tuple[str, str]]:
    """The Warnings on a job, by reason and message."""
    return [(reason, message) for kind, reason, message in cluster.events(name) if kind == "Warning"]


def test_a_tensorboard_lives_as_long_as_its_job_and_follows_its_field(served: Cluster) -> None:
    """TB-01, TB-06, TB-08: it goes on when the job ends; after that nothing is written until something changes."""
    served.create("mnist", specs(Worker=replica()) | {"tensorBoard": BOARD})
    served.wait_for("mnist", ConditionType.SUCCEEDED)
    assert is_there(served)
    service = child(served, "service")["spec"]
    assert service["type"] == "ClusterIP"
    assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [(80, 6006)]
    at_rest = versions(served)
    time.sleep(QUIET_S)
    assert versions(served) == at_rest
    edit(served, BOARD | {"logDir": "/logs/other"})
    eventually(lambda: "--logdir=/logs/other" in command(served), "the Deployment follows")
    edit(served, None)
    eventually(lambda: not (child(served, "deployment") or child(served, "service")), "it goes with the field")
    edit(served, BOARD)
    eventually(lambda: is_there(served), "it comes with the field")
    uid = child(served, "deployment")["metadata"]["uid"]
    served.kubectl("delete", "tfjob", "mnist")
    eventually(lambda: not (child(served, "deployment") or child(served, "service")), "it goes with the job")
    assert uid
    assert warnings(served) == []


def test_the_service_changes_its_type_and_keeps_what_it_has(cluster: Cluster) -> None:
    """TB-07: the cluster IP, the node port and what a cloud provider has set stay as long as the type needs them."""
    with cluster.operator():
        cluster.create("mnist", specs(Worker=replica()) | {"tensorBoard": BOARD | {"serviceType": "NodePort"}})
        eventually(lambda: is_there(cluster), "the TensorBoard is there")
        address = child(cluster, "service")["spec"]["clusterIP"]
        port = child(cluster, "service")["spec"]["ports"][0]["nodePort"]
        cluster.kubectl("annotate", "service", NAME, "cloud.example/internal=true")
        for wanted in ("LoadBalancer", "NodePort", "ClusterIP", "LoadBalancer"):
            edit(cluster, BOARD | {"serviceType": wanted})
            eventually(lambda wanted=wanted: child(cluster, "service")["spec"]["type"] == wanted, f"it is {wanted}")  # type: ignore[misc]
            found = child(cluster, "service")
            assert found["spec"]["clusterIP"] == address
            assert found["metadata"]["annotations"] == {"cloud.example/internal": "true"}
            if wanted == "NodePort":
                assert found["spec"]["ports"][0]["nodePort"] == port
            assert ("nodePort" in found["spec"]["ports"][0]) == (wanted != "ClusterIP")
        assert warnings(cluster) == []


def test_what_somebody_edits_is_set_back(cluster: Cluster) -> None:
    """TB-07: it was edited with kubectl, as users do."""
    with cluster.operator():
        cluster.create("mnist", specs(Worker=replica()) | {"tensorBoard": BOARD})
        eventually(lambda: is_there(cluster), "the TensorBoard is there")
        before = child(cluster, "deployment")["spec"]
        cluster.kubectl("scale", "deployment", NAME, "--replicas=0")
        cluster.kubectl("set", "image", f"deployment/{NAME}", "tensorboard=other:1")
        cluster.kubectl("patch", "service", NAME, "--type=merge", '--patch={"spec":{"selector":{"app":"other"}}}')
        eventually(lambda: child(cluster, "deployment")["spec"] == before, "the Deployment is what it was")
        selector = before["selector"]["matchLabels"]
        eventually(lambda: child(cluster, "service")["spec"]["selector"] == selector, "the Service selects its pods")
        cluster.kubectl("delete", "deployment", NAME)
        eventually(lambda: is_there(cluster), "a deleted one is made again")


BAD = {
    "too-early": specs(),
    "no-container": specs(Worker=replica() | {"template": {"spec": {"containers": []}}}),
    "asleep": with_policy(specs(Worker=replica()), suspend=True),
}


def test_a_job_that_does_not_run_has_its_tensorboard_all_the_same(cluster: Cluster) -> None:
    """TB-04: one with mistakes, and one that is suspended."""
    with cluster.operator():
        for name, spec in BAD.items():
            cluster.create(name, spec | {"tensorBoard": {"logDir": "/logs"}})
        for name in BAD:
            eventually(lambda name=name: is_there(cluster, f"{name}-tensorboard"), f"the TensorBoard of {name}")  # type: ignore[misc]


def test_what_is_wrong_with_a_tensorboard_is_reported_and_the_job_runs(served: Cluster) -> None:
    """TB-03, TB-14, TB-15: a mistake, one that only the API server finds, a name that is taken."""
    served.kubectl("create", "service", "clusterip", "taken-tensorboard", "--tcp=80")
    mounts = [{"name": "logs"}]  # without a path
    boards = {
        "mistaken": {"serviceType": "ExternalName"},
        "refused": BOARD | {"volumeMounts": mounts},
        "taken": BOARD,
    }
    for name, board in boards.items():
        served.create(name, specs(Worker=replica()) | {"tensorBoard": board})
    for name in boards:
        served.wait_for(name, ConditionType.SUCCEEDED)
    for name in boards:
        eventually(lambda name=name: warnings(served, name), f"{name} is told")  # type: ignore[misc]
    ((reason, message),) = warnings(served, "mistaken")
    assert reason == "InvalidTensorBoard"
    assert "logDir: Required value" in message
    assert "serviceType: Unsupported value" in message
    ((reason, message),) = warnings(served, "refused")
    assert reason == "FailedTensorBoard"
    assert "volumeMounts[0].mountPath" in message
    ((reason, message),) = warnings(served, "taken")
    assert reason == "FailedTensorBoard"
    assert "service taken-tensorboard: it already exists and has no owner" in message
    assert child(served, "deployment", "taken-tensorboard")
    assert child(served, "service", "taken-tensorboard")["spec"]["ports"][0]["name"] == "80"


@pytest.mark.parametrize("path", ["tensorBoard", "tensorBoard.logDir", "tensorBoard.serviceType"])
def test_kubectl_explains_the_field(cluster: Cluster, path: str) -> None:
    """U6: in the description of `spec`, where kubectl or the server is too old for more."""
    assert "TensorBoard" in cluster.kubectl("explain", f"tfjob.spec.{path}")
