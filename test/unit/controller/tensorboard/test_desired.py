"""What a job requests, and what apply alone would not restore: pure functions."""

from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import pytest

from tfjob_operator.api.kinds import Deployment, Service
from tfjob_operator.api.v1.constants import CHILD_SELECTOR
from tfjob_operator.api.v1.tensorboard import ServiceType, TensorBoard
from tfjob_operator.controller.tensorboard.desired import (
    UNIONS,
    Body,
    Desired,
    desired,
    extended_fields,
    must_delete,
    progress_warnings,
    replacement,
)
from tfjob_operator.controller.tensorboard.dialects import SELECTOR
from tfjob_operator.controller.tensorboard.request import TensorBoardRequest, Unmanaged, labels_of
from tfjob_operator.informers.listers import parse_labels

IMAGE = "tensorflow/tensorflow:1"
NAME = "mnist-tensorboard"
COMMAND = ["tensorboard", "--logdir=/logs", "--host=0.0.0.0", "--port=6006"]


T = TypeVar("T", Deployment, Service)


def request(**board: Any) -> TensorBoardRequest:
    return TensorBoardRequest(NAME, labels_of("mnist"), replace(TensorBoard("/logs"), **board))


def decide(wanted: TensorBoardRequest | Unmanaged | None, *types: str) -> Desired:
    return desired(wanted, IMAGE, service_types=types or tuple(ServiceType))


def bodies(wanted: TensorBoardRequest | None = None) -> tuple[Body, Body]:
    found = decide(wanted or request()).objects
    assert found is not None
    return found[Deployment], found[Service]


def stored(kind: type[T], status: Any = None, /, **spec: Any) -> T:
    """What the API server has of a wanted object, with these fields of the spec."""
    body = (decide(request()).objects or {})[kind]
    return msgspec.convert(body | {"spec": body["spec"] | spec, "status": status or {}}, kind)


def test_a_mistake_takes_nothing_down() -> None:
    """TB-03, TB-05: what exists stays unchanged, as the TensorBoard of another controller's job does."""
    decided = decide(Unmanaged("spec.tensorBoard.logDir: Required value"))
    assert decided.objects is None
    assert [(each.reason, each.message) for each in decided.warnings] == [
        ("InvalidTensorBoard", "spec.tensorBoard.logDir: Required value")
    ]
    assert decide(Unmanaged()) == Desired(None)
    assert decide(None) == Desired({})


def test_the_way_to_a_tensorboard_comes_after_it() -> None:
    """TB-06: while there is a Service there is a Deployment, by which a later process finds what is left."""
    assert [*(decide(request()).objects or ())] == [Deployment, Service]


def test_the_default_image_of_the_operator_is_for_those_who_have_none_of_their_own() -> None:
    """TB-02."""
    for board, image in (({}, IMAGE), ({"image": "own:1"}, "own:1")):
        assert bodies(request(**board))[0]["spec"]["template"]["spec"]["containers"][0]["image"] == image


@pytest.mark.parametrize("allowed", ["ClusterIP", "NodePort"])
def test_a_service_type_that_the_operator_does_not_allow_becomes_cluster_ip(allowed: str) -> None:
    """A job may not bring its author a load balancer that its author may not create."""
    decided = decide(request(service_type=ServiceType.LOAD_BALANCER), allowed)
    assert decided.objects is not None
    assert decided.objects[Service]["spec"]["type"] == "ClusterIP"
    (warning,) = decided.warnings
    assert warning.reason == "ServiceTypeNotAllowed"
    assert "does not allow serviceType LoadBalancer (--tensorboard-service-types); ClusterIP is used" in warning.message


def test_its_children_look_like_no_replica_and_may_do_no_more_than_read_and_serve() -> None:
    """TB-08, TB-09, TB-10: they have none of the labels by which controllers, SDKs or scripts find a job's pods.

    No token, no privileges, and of root's capabilities only that to read the files of others.
    """
    for body in bodies():
        labels = body["metadata"]["labels"]
        assert parse_labels(SELECTOR).matches(labels)
        assert not parse_labels(CHILD_SELECTOR).matches(labels)
        assert not {"job-name", "tf-job-name", "group-name", "training.kubeflow.org/job-name"} & labels.keys()
    template = bodies()[0]["spec"]["template"]
    assert template["metadata"]["labels"] == bodies()[0]["metadata"]["labels"]
    assert template["spec"]["automountServiceAccountToken"] is False
    (container,) = template["spec"]["containers"]
    assert container["command"] == COMMAND
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_a_child_that_is_not_requested_or_has_another_selector_must_be_deleted() -> None:
    """TB-06: the API server refuses to change the selector of a Deployment; that of a Service may change."""
    body, of_service = bodies()
    other = {"matchLabels": {"app": "other"}}
    assert not must_delete(stored(Deployment), body)
    assert must_delete(stored(Deployment), None)
    assert must_delete(stored(Deployment), body | {"metadata": {"name": "other"}})
    assert must_delete(stored(Deployment, selector=other), body)
    assert not must_delete(stored(Service, selector={"app": "other"}), of_service)


def test_what_others_add_is_replaced_where_it_would_break_the_tensorboard() -> None:
    """TB-07: apply merges these lists and maps, and would keep it."""
    body, of_service = bodies()
    (container,) = body["spec"]["template"]["spec"]["containers"]
    (port,) = of_service["spec"]["ports"]
    for names in ([], ["shell"], ["tensorboard", "shell"]):
        pod = {"containers": [container | {"name": name} for name in names]}
        assert extended_fields(stored(Deployment, template={"spec": pod}), body) == ["/spec/template/spec/containers"]
    edited = {"template": {"spec": {"containers": [container | {"image": "x"}]}}}
    assert extended_fields(stored(Deployment, **edited), body) == []  # apply is enough
    for ports in ([], [port | {"port": 8080}], [port, port | {"port": 8080, "name": "x"}]):
        assert extended_fields(stored(Service, ports=ports), of_service) == ["/spec/ports"]
    labels = of_service["spec"]["selector"]
    assert extended_fields(stored(Service, selector=labels | {"app": "other"}), of_service) == ["/spec/selector"]
    assert extended_fields(stored(Service, ports=[port | {"nodePort": 30000, "targetPort": 1}]), of_service) == []


def test_a_replacement_names_the_version_that_was_evaluated() -> None:
    child = msgspec.structs.replace(
        stored(Deployment), metadata=msgspec.convert({"resourceVersion": "7"}, type(stored(Deployment).metadata))
    )
    version, *changes = replacement(child, bodies()[0], UNIONS)
    assert version == {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}
    assert [each["path"] for each in changes] == [*UNIONS]
    assert changes[0] == {"op": "add", "path": "/spec/strategy", "value": {"type": "Recreate"}}


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ({"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods"}, "exceeded quota: pods"),
        ({"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}, "ProgressDeadlineExceeded"),
        ({"type": "Progressing", "status": "True", "message": "all is well"}, ""),
        ({"type": "Available", "status": "False", "message": "it begins"}, ""),
    ],
)
def test_it_is_reported_why_no_pod_comes_up(condition: dict[str, str], told: str) -> None:
    """TB-11: on the job, where people look, in the Deployment's words."""
    text = f"deployment {NAME} is not progressing: {told}"
    found = [(each.reason, each.message) for each in progress_warnings(stored(Deployment, {"conditions": [condition]}))]
    assert found == ([("FailedTensorBoard", text)] if told else [])
