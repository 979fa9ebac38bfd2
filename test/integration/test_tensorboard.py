"""TensorBoards on a real API server: the effects of bodies and patches, and the events for users."""

import functools
import re
import time
from contextlib import suppress
from typing import Any

import pytest

from hack.control_plane import ControlPlaneError
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


def in_template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": spec}}}


ANOTHER_STRATEGY = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
PROBE = {"httpGet": None, "tcpSocket": {"port": 6006}}
CONTAINER = {"name": "tensorboard", "image": "other:1", "readinessProbe": PROBE}
ANOTHER_PROBE = in_template(containers=[CONTAINER])
ANOTHER_CONTAINER = in_template(containers=[{"name": "shell", "image": "shell:1"}])


def edit(cluster: Cluster, board: Any) -> None:
    """Set the field of the job; None removes it."""
    cluster.patch("tfjobs", "mnist", {"spec": {"tensorBoard": board}})


def child(cluster: Cluster, kind: str, name: str = NAME) -> dict[str, Any]:
    """The Deployment or the Service; nothing when it is not there."""
    return cluster.find(f"{kind}s", name) or {}


def command(cluster: Cluster) -> list[str]:
    found: list[str] = child(cluster, "deployment")["spec"]["template"]["spec"]["containers"][0]["command"]
    return found


def wait_for_board(cluster: Cluster, name: str = NAME) -> None:
    eventually(lambda: child(cluster, "deployment", name) and child(cluster, "service", name), f"{name} is there")


def wait_for_no_board(cluster: Cluster) -> None:
    eventually(lambda: not (child(cluster, "deployment") or child(cluster, "service")), "the TensorBoard is gone")


def versions(cluster: Cluster) -> list[str]:
    return [child(cluster, kind)["metadata"]["resourceVersion"] for kind in ("deployment", "service")]


def test_a_tensorboard_lives_as_long_as_its_job_and_follows_its_field(served: Cluster) -> None:
    """TB-01, TB-06, TB-08: it goes on when the job ends; after that nothing is written until something changes."""
    served.create("mnist", specs(Worker=replica()) | {"tensorBoard": BOARD})
    served.wait_for("mnist", ConditionType.SUCCEEDED)
    service = child(served, "service")["spec"]
    assert service["type"] == "ClusterIP"
    assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [(80, 6006)]
    at_rest = versions(served)
    time.sleep(QUIET_S)
    assert versions(served) == at_rest
    edit(served, BOARD | {"logDir": "/logs/other"})
    eventually(lambda: "--logdir=/logs/other" in command(served), "the Deployment follows")
    edit(served, None)
    wait_for_no_board(served)
    edit(served, BOARD)
    wait_for_board(served)
    served.kubectl("delete", "tfjob", "mnist")
    wait_for_no_board(served)
    assert served.warnings("mnist") == []


def test_the_service_changes_its_type_and_keeps_what_it_has(cluster: Cluster) -> None:
    """TB-07: the cluster IP, the node port and what a cloud provider has set stay as long as the type needs them."""
    with cluster.operator():
        cluster.create("mnist", specs(Worker=replica()) | {"tensorBoard": BOARD | {"serviceType": "NodePort"}})
        wait_for_board(cluster)
        address = child(cluster, "service")["spec"]["clusterIP"]
        port = child(cluster, "service")["spec"]["ports"][0]["nodePort"]
        cluster.patch("services", NAME, {"metadata": {"annotations": {"cloud.example/internal": "true"}}})
        for wanted in ("LoadBalancer", "NodePort", "ClusterIP", "LoadBalancer"):
            edit(cluster, BOARD | {"serviceType": wanted})
            eventually(lambda wanted=wanted: child(cluster, "service")["spec"]["type"] == wanted, f"it is {wanted}")  # type: ignore[misc]
            found = child(cluster, "service")
            assert found["spec"]["clusterIP"] == address
            assert found["metadata"]["annotations"] == {"cloud.example/internal": "true"}
            if wanted == "NodePort":
                assert found["spec"]["ports"][0]["nodePort"] == port
            assert ("nodePort" in found["spec"]["ports"][0]) == (wanted != "ClusterIP")
        assert cluster.warnings("mnist") == []


def test_what_somebody_edits_is_set_back(cluster: Cluster) -> None:
    """TB-07: it was edited with kubectl, as users do."""
    with cluster.operator():
        cluster.create("mnist", specs(Worker=replica()) | {"tensorBoard": BOARD})
        wait_for_board(cluster)
        before = child(cluster, "deployment")["spec"]
        cluster.kubectl("scale", "deployment", NAME, "--replicas=0")
        cluster.kubectl("set", "image", f"deployment/{NAME}", "tensorboard=other:1")
        cluster.kubectl("patch", "service", NAME, "--type=merge", '--patch={"spec":{"selector":{"app":"other"}}}')
        eventually(lambda: child(cluster, "deployment")["spec"] == before, "the Deployment is what it was")
        for change in (ANOTHER_STRATEGY, ANOTHER_PROBE, ANOTHER_CONTAINER):
            cluster.patch("deployments", NAME, change)
            eventually(lambda: child(cluster, "deployment")["spec"] == before, "the Deployment is what it was")
        cluster.patch("services", NAME, {"spec": {"ports": [{"name": "tb-port", "port": 8080, "targetPort": 6006}]}})
        eventually(
            lambda: [each["port"] for each in child(cluster, "service")["spec"]["ports"]] == [80], "the port is back"
        )
        selector = before["selector"]["matchLabels"]
        eventually(lambda: child(cluster, "service")["spec"]["selector"] == selector, "the Service selects its pods")
        cluster.api("DELETE", "deployments", NAME)
        wait_for_board(cluster)
        assert cluster.warnings("mnist") == []


def volume(**source: Any) -> dict[str, Any]:
    return BOARD | {"volumes": [{"name": "logs"} | source]}


def test_a_volume_can_become_one_of_another_type(cluster: Cluster) -> None:
    """TB-06: the API server adds defaults to volumes, such as the type of a path, that no apply removes."""
    with cluster.operator():
        cluster.create("mnist", specs(Worker=replica()) | {"tensorBoard": volume(hostPath={"path": "/logs"})})
        wait_for_board(cluster)
        for name, source in (
            ("emptyDir", {"sizeLimit": 1024, "sizelimit": 1}),
            ("configMap", {"name": "c"}),
            ("secret", {"secretName": "s"}),
        ):
            edit(cluster, volume(**{name: source}))

            def found() -> set[str]:
                (only,) = child(cluster, "deployment")["spec"]["template"]["spec"]["volumes"]
                return {*only}

            eventually(lambda name=name, found=found: found() == {"name", name}, f"the volume is of {name}")  # type: ignore[misc]
        assert {reason for reason, _ in cluster.warnings("mnist")} == {"UnknownField"}


def test_what_earlier_releases_wrote_goes_when_the_job_no_longer_has_it(cluster: Cluster) -> None:
    """TB-06: they wrote by create and merge patch. What they wrote now belongs to apply, and what users wrote stays."""
    cluster.create("mnist", specs(Worker=replica()) | {"tensorBoard": BOARD})
    with cluster.operator():
        wait_for_board(cluster)
    manifests = [child(cluster, kind) for kind in ("deployment", "service")]
    for kind in ("deployment", "service"):
        cluster.api("DELETE", f"{kind}s", NAME)
    for item in manifests:
        for name in ("uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"):
            item["metadata"].pop(name, None)
        item["spec"].pop("clusterIP", None)
        item["spec"].pop("clusterIPs", None)
        item["metadata"]["labels"]["old"] = "yes"
        cluster.api("POST", f"{item['kind'].lower()}s", body=item, query="fieldManager=tf-operator")
    toleration = in_template(tolerations=[{"key": "gpu", "operator": "Exists"}])
    cluster.patch("deployments", NAME, toleration)
    cluster.patch("deployments", NAME, in_template(volumes=[*BOARD["volumes"], {"name": "mine", "emptyDir": {}}]))
    with cluster.operator():
        edit(cluster, {"logDir": "/logs", "volumes": None, "volumeMounts": None})

        def left() -> tuple[object, ...]:
            pod = child(cluster, "deployment")["spec"]["template"]["spec"]
            labels = [child(cluster, kind)["metadata"]["labels"].get("old") for kind in ("deployment", "service")]
            return pod["tolerations"], [each["name"] for each in pod["volumes"]], labels

        expected = ([{"key": "gpu", "operator": "Exists"}], ["mine"], [None, None])
        eventually(lambda: left() == expected, "what the job no longer has is gone", yet=left)
    for kind in ("deployment", "service"):
        managers = child(cluster, kind)["metadata"]["managedFields"]
        assert [each["operation"] for each in managers if each["manager"] == "tf-operator"] == ["Apply"]


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
            wait_for_board(cluster, f"{name}-tensorboard")


def test_what_is_wrong_with_a_tensorboard_is_reported_and_the_job_runs(served: Cluster) -> None:
    """TB-03, TB-14, TB-15: a mistake, one that only the API server finds, a name that is taken."""
    served.kubectl("create", "service", "clusterip", "taken-tensorboard", "--tcp=80")
    mounts = [{"name": "logs"}]  # without a path
    boards = {"mistaken": {"serviceType": "ExternalName"}, "refused": BOARD | {"volumeMounts": mounts}, "taken": BOARD}
    for name, board in boards.items():
        served.create(name, specs(Worker=replica()) | {"tensorBoard": board})
    for name in boards:
        served.wait_for(name, ConditionType.SUCCEEDED)
    for name, reason, words in (
        ("mistaken", "InvalidTensorBoard", ("logDir: Required value", "serviceType: Unsupported value")),
        ("refused", "FailedTensorBoard", ("volumeMounts[0].mountPath",)),
        ("taken", "FailedTensorBoard", ("service taken-tensorboard: it already exists and has no owner",)),
    ):
        ((told, message),) = eventually(functools.partial(served.warnings, name), f"{name} is told")
        assert (told, [each for each in words if each not in message]) == (reason, [])
    assert child(served, "deployment", "taken-tensorboard")
    assert child(served, "service", "taken-tensorboard")["spec"]["ports"][0]["name"] == "80"


@pytest.mark.parametrize(
    ("path", "words"),
    [("", "TensorBoard"), (".logDir", "TensorBoard"), (".serviceType", "TensorBoard|Type of the Service")],
)
def test_kubectl_explains_the_field(cluster: Cluster, path: str, words: str) -> None:
    """U6: in the description of `spec`, where kubectl or the server is too old for more."""

    def explained() -> str:
        with suppress(ControlPlaneError):  # the server publishes the schema of a CRD later
            return cluster.kubectl("explain", f"tfjob.spec.tensorBoard{path}")
        return ""

    assert re.search(words, eventually(explained, "kubectl knows TFJobs"))
