"""What is to be done about the TensorBoard of one job, and the bodies and patches that do it. Pure.

Invariants:

- Nothing is changed or deleted that the job does not control, nor while the job itself is being deleted.
- A mistake in the field deletes nothing: what ran before continues.
- From any state, executing plan after plan ends with one Deployment and one Service as the job asks for them, or with none.
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
    Deployment,
    Found,
    Service,
    ServicePort,
)
from tfjob_operator.controller.tensorboard.wish import LeftAlone, Wish

CONTAINER: Final = "tensorboard"
PORT: Final = 6006
"""Where TensorBoard listens by default."""
SERVICE_PORT: Final = 80
PORT_NAME: Final = "tb-port"
SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What a server that reads files needs. Most images run as root, and without DAC_OVERRIDE root could not read what a training
wrote as another user, readable only for that user; for any user but root the added capability has no effect."""


def build_deployment(owner: JSON, wish: Wish, default_image: str) -> dict[str, Any]:
    """Return the Deployment that `wish` asks for, as it is sent to the API server. `owner` is its controller reference."""
    labels = _labels(wish)
    spec = {
        "replicas": 1,
        "revisionHistoryLimit": 0,  # the job says what runs, so there is nothing to roll back to
        # The old pod goes first: it may hold a volume that one node at a time can have.
        "strategy": {"type": "Recreate", "rollingUpdate": None},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _pod(wish, default_image)},
    }
    body = _body(DEPLOYMENTS, owner, wish, spec)
    body["metadata"]["annotations"] = {HASH_ANNOTATION: _hash(spec)}
    return body


def build_service(owner: JSON, wish: Wish, service_type: ServiceType) -> dict[str, Any]:
    """Return the Service that `wish` asks for, as it is sent to the API server."""
    spec = {
        "type": service_type.value,
        "selector": _labels(wish),
        "ports": [{"name": PORT_NAME, "port": SERVICE_PORT, "protocol": "TCP", "targetPort": PORT}],
    }
    return _body(SERVICES, owner, wish, spec)


def _body(resource: Resource, owner: JSON, wish: Wish, spec: JSON) -> dict[str, Any]:
    meta = {"name": wish.name, "labels": _labels(wish), "ownerReferences": [owner]}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}


def _labels(wish: Wish) -> dict[str, str]:
    return {**wish.labels, LABEL_OPERATOR_NAME: OPERATOR}


def _pod(wish: Wish, default_image: str) -> dict[str, Any]:
    board = wish.board
    container = {
        "name": CONTAINER,
        "image": board.image or default_image,
        "command": ["tensorboard", f"--logdir={board.log_dir}", "--host=0.0.0.0", f"--port={PORT}"],
        "ports": [{"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}],
        # It reads all summaries before it shows them, but answers at once.
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "timeoutSeconds": 5},
        "securityContext": SECURITY,
        "volumeMounts": list(board.volume_mounts),
    }
    return {
        "automountServiceAccountToken": False,  # it asks the API server for nothing
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": list(board.volumes),
    }


def _hash(spec: JSON) -> str:
    return hashlib.sha256(msgspec.json.encode(spec, order="sorted")).hexdigest()[:16]


def must_be_anew(child: Deployment | Service, body: Any) -> bool:
    """Return whether a child must be deleted and created again: a Deployment's selector cannot be changed."""
    return (
        isinstance(child, Deployment)
        and (child.spec.selector.match_labels or {}) != body["spec"]["selector"]["matchLabels"]
    )


def patch_of(child: Deployment | Service, body: Any) -> dict[str, Any] | None:
    """Return the merge patch that turns this child into `body`, None if it is that already.

    The patch carries UID and version of what was looked at. Lists are replaced, objects merged: what others have added (the
    annotations and finalizers of a load balancer, a toleration) stays.
    """
    spec = _of_service(child, body) if isinstance(child, Service) else _of_deployment(child, body)
    if not spec and _has_labels(child, body):
        return None
    meta = {key: value for key, value in body["metadata"].items() if key in {"labels", "annotations"}}
    identity = {"uid": child.metadata.uid, "resourceVersion": child.metadata.resource_version}
    return {"metadata": meta | identity, "spec": spec}


def _has_labels(child: Deployment | Service, body: Any) -> bool:
    wanted: JSON = body["metadata"]["labels"]
    return wanted.items() <= child.metadata.label_map().items()


def _of_deployment(child: Deployment, body: Any) -> JSON:
    """Return the specification to write into a Deployment, an empty one if it runs what it should.

    The hash says what was written last. What people change by hand (`kubectl scale`, `kubectl set image`) is compared as
    well; volumes are not, since the API server stores them in another form.
    """
    given = child.metadata.annotations.hash if child.metadata.annotations is not None else ""
    wanted: JSON = body["spec"]
    containers = [(each.name, each.image, list(each.command or ())) for each in child.spec.template.spec.containers]
    is_same = (
        given == body["metadata"]["annotations"][HASH_ANNOTATION]
        and child.spec.replicas == wanted["replicas"]
        and containers
        == [(each["name"], each["image"], each["command"]) for each in body["spec"]["template"]["spec"]["containers"]]
    )
    return {} if is_same else wanted


def _of_service(child: Service, body: Any) -> JSON:
    """Return only what differs in a Service: ports that are sent again would get another node port."""
    spec, wanted = child.spec, body["spec"]
    patch: dict[str, Any] = {}
    if spec.type != wanted["type"]:
        patch["type"] = wanted["type"]
    if (spec.selector or {}) != wanted["selector"]:  # with one label too many it selects nothing
        patch["selector"] = dict.fromkeys(spec.selector or {}) | wanted["selector"]
    if spec.ports != (ServicePort(name=PORT_NAME, port=SERVICE_PORT, target_port=PORT),):
        patch["ports"] = wanted["ports"]
    return patch


@dataclass(frozen=True, slots=True)
class Warned:
    """A Warning for the job: it is recorded once, for as long as it is the same."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Creation:
    """A child that is missing."""

    resource: Resource
    name: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A child that is not what it should be, and the merge patch that makes it so."""

    resource: Resource
    meta: Meta
    patch: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Deletion:
    """A child that nobody asks for any more."""

    resource: Resource
    meta: Meta


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in this order, and what to warn of."""

    steps: tuple[Creation | Change | Deletion, ...] = ()
    warnings: tuple[Warned, ...] = ()


NOTHING: Final = Plan()


def plan(
    owner: Resource,
    job: Meta,
    wish: Wish | LeftAlone | None,
    found: Found,
    default_image: str,
    *,
    service_types: Collection[str],
) -> Plan:
    """Return what to do for a job of the kind `owner` that asks for `wish` and controls what was `found`.

    A Service of a type that is not one of `service_types` becomes a ClusterIP.
    """
    if job.deletion_timestamp is not None:
        return NOTHING  # the garbage collector takes what there is
    if isinstance(wish, LeftAlone):
        mistakes = (Warned(EventReason.INVALID_TENSOR_BOARD, wish.mistakes),) if wish.mistakes else ()
        return Plan(warnings=mistakes)
    if wish is None:
        # The Service first, then the Deployment that it leads to.
        return Plan((*_steps(SERVICES, found.services, None), *_steps(DEPLOYMENTS, found.deployments, None)))
    reference = controller_reference(owner, job)
    wanted = wish.board.service_type
    used = wanted if wanted in service_types else ServiceType.CLUSTER_IP
    deployment, service = build_deployment(reference, wish, default_image), build_service(reference, wish, used)
    steps = (*_steps(DEPLOYMENTS, found.deployments, deployment), *_steps(SERVICES, found.services, service))
    warnings = [Warned(EventReason.UNKNOWN_FIELD, sentence) for sentence in wish.board.unknown_fields]
    if used is not wanted:
        text = f"TensorBoard: the operator does not allow serviceType {wanted} (--tensorboard-service-types); {used} is used"
        warnings.append(Warned(EventReason.SERVICE_TYPE_NOT_ALLOWED, text))
    return Plan(steps, (*warnings, *_troubles(wish, found.deployments)))


def _steps(
    resource: Resource, children: Sequence[Deployment | Service], body: dict[str, Any] | None
) -> Iterator[Creation | Change | Deletion]:
    """Yield the steps that turn these children into the one of `body`, or into none."""
    name = None if body is None else body["metadata"]["name"]
    for child in children:
        if child.metadata.deletion_timestamp is not None:
            continue  # its end brings the next sync
        if body is None or child.metadata.name != name or must_be_anew(child, body):
            yield Deletion(resource, child.metadata)
        elif (patch := patch_of(child, body)) is not None:
            yield Change(resource, child.metadata, patch)
    if body is not None and all(child.metadata.name != name for child in children):
        yield Creation(resource, body["metadata"]["name"], body)


def _troubles(wish: Wish, deployments: Sequence[Deployment]) -> Iterator[Warned]:
    """Yield why the pod of a TensorBoard is not made, or does not become ready, by the conditions of its Deployment."""
    for deployment in deployments:
        if deployment.metadata.name != wish.name:
            continue
        for condition in deployment.status.conditions or ():
            fails = condition.type == "ReplicaFailure" and condition.status == "True"
            if fails or (condition.type == "Progressing" and condition.status == "False"):
                text = f"deployment {wish.name} is not progressing: {condition.message or condition.reason}"
                yield Warned(EventReason.FAILED_TENSOR_BOARD, text)
