"""The Deployment and the Service that a job requests, as bodies of server-side apply. Pure.

If the field is invalid, nothing is deleted: the existing TensorBoard keeps running.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from tfjob_operator.api.kinds import Deployment, Service
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME, EventReason
from tfjob_operator.api.v1.tensorboard import ServiceType
from tfjob_operator.controller.tensorboard.dialects import OPERATOR
from tfjob_operator.controller.tensorboard.request import TensorBoardRequest, Unmanaged

Body: TypeAlias = dict[str, Any]
Child: TypeAlias = Deployment | Service

HASH_ANNOTATION: Final = "training.kubeflow.org/tensorboard-hash"
"""The hash of a Deployment's spec. Releases up to 0.2 update a Deployment with another hash, so a rollback to them without it
would update all."""
CONTAINER: Final = "tensorboard"
PORT: Final = 6006
"""TensorBoard's default port."""
SERVICE_PORT: Final = 80
PORT_NAME: Final = "tb-port"
PROTOCOL: Final = "TCP"
SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What a server that reads files needs. Most images run as root, and without DAC_OVERRIDE root could not read files that a
training wrote as another user and only that user may read. For other users, the capability has no effect."""

_CONTAINERS: Final = "/spec/template/spec/containers"
UNIONS: Final = ("/spec/strategy", _CONTAINERS, "/spec/template/spec/volumes")
"""The fields of a Deployment in which a member may exclude another one, such as `hostPath` and `emptyDir` of a volume. Apply
removes no member that has a default or another manager, and the API server then rejects the result."""


@dataclass(frozen=True, slots=True)
class BoardWarning:
    """A Warning for the job, recorded once while it is unchanged."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Desired:
    """What a job requests.

    objects: the bodies to apply, in this order; other Deployments and Services of the job are deleted. None: all stay
        unchanged.
    """

    objects: Mapping[type[Child], Body] | None
    warnings: tuple[BoardWarning, ...] = ()


def desired(
    request: TensorBoardRequest | Unmanaged | None, default_image: str, *, service_types: Collection[str]
) -> Desired:
    """Return the objects of a TensorBoard, and the warnings about its field.

    `default_image` is used if the request has no image. A Service type not in `service_types` is replaced by ClusterIP.
    """
    if isinstance(request, Unmanaged):
        return Desired(
            None, _warnings(EventReason.INVALID_TENSOR_BOARD, [request.mistakes] if request.mistakes else [])
        )
    if request is None:
        return Desired({})
    wanted = request.board.service_type
    used = wanted if wanted in service_types else ServiceType.CLUSTER_IP
    warnings = _warnings(EventReason.UNKNOWN_FIELD, request.board.unknown_fields)
    if used is not wanted:
        text = f"TensorBoard: the operator does not allow serviceType {wanted} (--tensorboard-service-types); {used} is used"
        warnings += _warnings(EventReason.SERVICE_TYPE_NOT_ALLOWED, [text])
    return Desired({Deployment: _deployment(request, default_image), Service: _service(request, used)}, warnings)


def _warnings(reason: str, messages: Sequence[str]) -> tuple[BoardWarning, ...]:
    return tuple(BoardWarning(reason, message) for message in messages)


def _deployment(request: TensorBoardRequest, default_image: str) -> Body:
    board, labels = request.board, _labels(request)
    container = {
        "name": CONTAINER,
        "image": board.image or default_image,
        "command": ["tensorboard", f"--logdir={board.log_dir}", "--host=0.0.0.0", f"--port={PORT}"],
        "ports": [{"name": PORT_NAME, "containerPort": PORT, "protocol": PROTOCOL}],
        # It loads all summaries before showing them, but responds immediately.
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "timeoutSeconds": 5},
        "securityContext": SECURITY,
        "volumeMounts": list(board.volume_mounts),
    }
    pod = {
        "automountServiceAccountToken": False,  # it does not use the API server
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": list(board.volumes),
    }
    spec = {
        "replicas": 1,
        "revisionHistoryLimit": 0,  # the job defines the template, so rollbacks are meaningless
        # The old pod is deleted first: it may use a volume that only one node can mount.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    hashed = spec | {"strategy": {"type": "Recreate", "rollingUpdate": None}}  # as in 0.2
    annotations = {HASH_ANNOTATION: hashlib.sha256(msgspec.json.encode(hashed, order="sorted")).hexdigest()[:16]}
    return {"metadata": {"name": request.name, "labels": labels, "annotations": annotations}, "spec": spec}


def _service(request: TensorBoardRequest, service_type: ServiceType) -> Body:
    labels = _labels(request)
    ports = [{"name": PORT_NAME, "port": SERVICE_PORT, "protocol": PROTOCOL, "targetPort": PORT}]
    spec = {"type": service_type.value, "selector": labels, "ports": ports}
    return {"metadata": {"name": request.name, "labels": labels}, "spec": spec}


def _labels(request: TensorBoardRequest) -> dict[str, str]:
    return {**request.labels, LABEL_OPERATOR_NAME: OPERATOR}


def must_delete(child: Child, body: Body | None) -> bool:
    """Return True if a child is not requested, or must be recreated: a Deployment's selector is immutable."""
    if body is None or child.metadata.name != body["metadata"]["name"]:
        return True
    return (
        isinstance(child, Deployment)
        and (child.spec.selector.match_labels or {}) != body["spec"]["selector"]["matchLabels"]
    )


def is_changed(child: Child, written: Child) -> bool:
    """Return True if a write has changed a child, and not only who manages its fields."""
    before, after = child.metadata, written.metadata
    return (before.generation, before.labels, child.spec) != (after.generation, after.labels, written.spec)


def extended_fields(child: Child, body: Body) -> list[str]:
    """Return the fields to which others have added what apply would keep, and with which the TensorBoard would not work.

    Fields are JSON pointers. What others add elsewhere stays, such as a load balancer's annotations, or a toleration.
    """
    if isinstance(child, Deployment):
        return [] if [each.name for each in child.spec.template.spec.containers] == [CONTAINER] else [_CONTAINERS]
    fields = [] if (child.spec.selector or {}) == body["spec"]["selector"] else ["/spec/selector"]
    if [(each.port, each.protocol) for each in child.spec.ports or ()] != [(SERVICE_PORT, PROTOCOL)]:
        fields.append("/spec/ports")
    return fields


def replacement(child: Child, body: Body, fields: Sequence[str]) -> list[Body]:
    """Return the JSON patch that sets these fields of this version of a child to those of `body`."""
    patch: list[Body] = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": child.metadata.resource_version}
    ]
    for field in fields:
        value: Any = body
        for name in field.split("/")[1:]:
            value = value[name]
        patch.append({"op": "add", "path": field, "value": value})
    return patch


def progress_warnings(deployment: Deployment) -> Iterator[BoardWarning]:
    """Yield why the pod of a TensorBoard is not created, or does not become ready, from the Deployment's conditions."""
    for condition in deployment.status.conditions or ():
        fails = condition.type == "ReplicaFailure" and condition.status == "True"
        if fails or (condition.type == "Progressing" and condition.status == "False"):
            why = condition.message or condition.reason
            text = f"deployment {deployment.metadata.name} is not progressing: {why}"
            yield BoardWarning(EventReason.FAILED_TENSOR_BOARD, text)
