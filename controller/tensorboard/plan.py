"""Plans the TensorBoard of one job, and builds its objects and patches. Pure.

Invariants:

- Only children controlled by the job are changed or deleted, and none while the job itself is being deleted.
- If the field is invalid, nothing is deleted: the existing TensorBoard keeps running.
- From any state, repeated plans converge to the requested Deployment and Service, or to none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tfjob_operator.api.core import DEPLOYMENTS, SERVICES
from tfjob_operator.api.meta import JSON, Meta, Resource, controller_reference
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME, EventReason
from tfjob_operator.api.v1.tensorboard import ServiceType
from tfjob_operator.controller.tensorboard.children import (
    HASH_ANNOTATION,
    OPERATOR,
    BoardChildren,
    BoardDeployment,
    BoardService,
    ServicePort,
)
from tfjob_operator.controller.tensorboard.request import TensorBoardRequest, Unmanaged

CONTAINER: Final = "tensorboard"
PORT: Final = 6006
"""TensorBoard's default port."""
SERVICE_PORT: Final = 80
PORT_NAME: Final = "tb-port"
SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What a server that reads files needs. Most images run as root, and without DAC_OVERRIDE root could not read files that a
training wrote as another user and only that user may read. For other users, the capability has no effect."""


def build_deployment(owner: JSON, request: TensorBoardRequest, default_image: str) -> dict[str, Any]:
    """Return the requested Deployment. `owner` is its controller reference."""
    labels = _labels(request)
    spec = {
        "replicas": 1,
        "revisionHistoryLimit": 0,  # the job defines the template, so rollbacks are meaningless
        # The old pod is deleted first: it may use a volume that only one node can mount.
        "strategy": {"type": "Recreate", "rollingUpdate": None},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _pod(request, default_image)},
    }
    body = _body(DEPLOYMENTS, owner, request, spec)
    body["metadata"]["annotations"] = {HASH_ANNOTATION: _hash(spec)}
    return body


def build_service(owner: JSON, request: TensorBoardRequest, service_type: ServiceType) -> dict[str, Any]:
    """Return the requested Service."""
    spec = {
        "type": service_type.value,
        "selector": _labels(request),
        "ports": [{"name": PORT_NAME, "port": SERVICE_PORT, "protocol": "TCP", "targetPort": PORT}],
    }
    return _body(SERVICES, owner, request, spec)


def _body(resource: Resource, owner: JSON, request: TensorBoardRequest, spec: JSON) -> dict[str, Any]:
    meta = {"name": request.name, "labels": _labels(request), "ownerReferences": [owner]}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}


def _labels(request: TensorBoardRequest) -> dict[str, str]:
    return {**request.labels, LABEL_OPERATOR_NAME: OPERATOR}


def _pod(request: TensorBoardRequest, default_image: str) -> dict[str, Any]:
    board = request.board
    container = {
        "name": CONTAINER,
        "image": board.image or default_image,
        "command": ["tensorboard", f"--logdir={board.log_dir}", "--host=0.0.0.0", f"--port={PORT}"],
        "ports": [{"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}],
        # It loads all summaries before showing them, but responds immediately.
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "timeoutSeconds": 5},
        "securityContext": SECURITY,
        "volumeMounts": list(board.volume_mounts),
    }
    return {
        "automountServiceAccountToken": False,  # it does not use the API server
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": list(board.volumes),
    }


def _hash(spec: JSON) -> str:
    return hashlib.sha256(msgspec.json.encode(spec, order="sorted")).hexdigest()[:16]


def must_recreate(child: BoardDeployment | BoardService, body: Any) -> bool:
    """Return True if a child must be deleted and recreated: a Deployment's selector is immutable."""
    return (
        isinstance(child, BoardDeployment)
        and (child.spec.selector.match_labels or {}) != body["spec"]["selector"]["matchLabels"]
    )


def patch_of(child: BoardDeployment | BoardService, body: Any) -> dict[str, Any] | None:
    """Return the merge patch that turns this child into `body`, None if they match.

    The patch specifies the UID and version that were evaluated. The patch replaces lists and merges objects. So fields that
    only others set are preserved, such as a load balancer's annotations and finalizers, or a toleration.
    """
    spec = _of_service(child, body) if isinstance(child, BoardService) else _of_deployment(child, body)
    if not spec and _has_labels(child, body):
        return None
    meta = {key: value for key, value in body["metadata"].items() if key in {"labels", "annotations"}}
    identity = {"uid": child.metadata.uid, "resourceVersion": child.metadata.resource_version}
    return {"metadata": meta | identity, "spec": spec}


def _has_labels(child: BoardDeployment | BoardService, body: Any) -> bool:
    wanted: JSON = body["metadata"]["labels"]
    return wanted.items() <= child.metadata.label_map().items()


def _of_deployment(child: BoardDeployment, body: Any) -> JSON:
    """Return the spec to write to a Deployment; empty if it matches.

    The hash identifies the last written spec. Fields that users change manually (`kubectl scale`, `kubectl set image`) are
    compared as well; volumes are not, since the API server normalizes them.
    """
    given = child.metadata.annotations.hash if child.metadata.annotations is not None else ""
    wanted: JSON = body["spec"]
    containers = [
        (container.name, container.image, list(container.command or ()))
        for container in child.spec.template.spec.containers
    ]
    is_same = (
        given == body["metadata"]["annotations"][HASH_ANNOTATION]
        and child.spec.replicas == wanted["replicas"]
        and containers
        == [(each["name"], each["image"], each["command"]) for each in body["spec"]["template"]["spec"]["containers"]]
    )
    return {} if is_same else wanted


def _of_service(child: BoardService, body: Any) -> JSON:
    """Return only the differences of a Service: writing ports again would change the node port."""
    spec, wanted = child.spec, body["spec"]
    patch: dict[str, Any] = {}
    if spec.type != wanted["type"]:
        patch["type"] = wanted["type"]
    if (spec.selector or {}) != wanted["selector"]:  # an extra label would select nothing
        patch["selector"] = dict.fromkeys(spec.selector or {}) | wanted["selector"]
    if spec.ports != (ServicePort(name=PORT_NAME, port=SERVICE_PORT, target_port=PORT),):
        patch["ports"] = wanted["ports"]
    return patch


@dataclass(frozen=True, slots=True)
class BoardWarning:
    """A Warning for the job, recorded once while it is unchanged."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Creation:
    """A missing child."""

    resource: Resource
    name: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChildUpdate:
    """A child that must be updated, and the merge patch."""

    resource: Resource
    meta: Meta
    patch: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Deletion:
    """A child that is no longer requested."""

    resource: Resource
    meta: Meta


@dataclass(frozen=True, slots=True)
class BoardPlan:
    """The steps, in order, and the warnings."""

    steps: tuple[Creation | ChildUpdate | Deletion, ...] = ()
    warnings: tuple[BoardWarning, ...] = ()


NOTHING: Final = BoardPlan()


def plan(
    owner: Resource,
    job: Meta,
    request: TensorBoardRequest | Unmanaged | None,
    found: BoardChildren,
    default_image: str,
    *,
    service_types: Collection[str],
) -> BoardPlan:
    """Return the plan for a job of the kind `owner` with this `request` and the children `found`.

    A Service type not in `service_types` is replaced by ClusterIP.
    """
    if job.deletion_timestamp is not None:
        return NOTHING  # the garbage collector deletes the children
    if isinstance(request, Unmanaged):
        mistakes = (BoardWarning(EventReason.INVALID_TENSOR_BOARD, request.mistakes),) if request.mistakes else ()
        return BoardPlan(warnings=mistakes)
    if request is None:
        # The Service first, then the Deployment behind it.
        return BoardPlan((*_steps(SERVICES, found.services, None), *_steps(DEPLOYMENTS, found.deployments, None)))
    reference = controller_reference(owner, job)
    wanted = request.board.service_type
    used = wanted if wanted in service_types else ServiceType.CLUSTER_IP
    deployment, service = build_deployment(reference, request, default_image), build_service(reference, request, used)
    steps = (*_steps(DEPLOYMENTS, found.deployments, deployment), *_steps(SERVICES, found.services, service))
    warnings = [BoardWarning(EventReason.UNKNOWN_FIELD, sentence) for sentence in request.board.unknown_fields]
    if used is not wanted:
        text = f"TensorBoard: the operator does not allow serviceType {wanted} (--tensorboard-service-types); {used} is used"
        warnings.append(BoardWarning(EventReason.SERVICE_TYPE_NOT_ALLOWED, text))
    return BoardPlan(steps, (*warnings, *_warnings(request, found.deployments)))


def _steps(
    resource: Resource, children: Sequence[BoardDeployment | BoardService], body: dict[str, Any] | None
) -> Iterator[Creation | ChildUpdate | Deletion]:
    """Yield the steps that turn these children into `body`, or delete them."""
    name = None if body is None else body["metadata"]["name"]
    for child in children:
        if child.metadata.deletion_timestamp is not None:
            continue  # its deletion causes the next sync
        if body is None or child.metadata.name != name or must_recreate(child, body):
            yield Deletion(resource, child.metadata)
        elif (patch := patch_of(child, body)) is not None:
            yield ChildUpdate(resource, child.metadata, patch)
    if body is not None and all(child.metadata.name != name for child in children):
        yield Creation(resource, body["metadata"]["name"], body)


def _warnings(request: TensorBoardRequest, deployments: Sequence[BoardDeployment]) -> Iterator[BoardWarning]:
    """Yield why the pod of a TensorBoard is not created, or does not become ready, from the Deployment's conditions."""
    for deployment in deployments:
        if deployment.metadata.name != request.name:
            continue
        for condition in deployment.status.conditions or ():
            fails = condition.type == "ReplicaFailure" and condition.status == "True"
            if fails or (condition.type == "Progressing" and condition.status == "False"):
                text = f"deployment {request.name} is not progressing: {condition.message or condition.reason}"
                yield BoardWarning(EventReason.FAILED_TENSOR_BOARD, text)
