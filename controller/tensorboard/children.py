"""The cached Deployment and Service of a TensorBoard, with their label, selector and annotation. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import field

from tfjob_operator.api.core import DEPLOYMENTS, SERVICES, Condition
from tfjob_operator.api.meta import Meta, Struct
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME

OPERATOR: Final = "tensorboard-controller"
"""The value of the label that identifies children. It differs from that of replicas, so that a TensorBoard is never counted,
adopted or cleaned up as a replica."""
SELECTOR: Final = f"{LABEL_OPERATOR_NAME}={OPERATOR}"
HASH_ANNOTATION: Final = "training.kubeflow.org/tensorboard-hash"
"""The hash of a Deployment's last written spec, since the API server normalizes parts of the spec."""


class _Annotations(Struct, frozen=True):
    hash: str = field(default="", name=HASH_ANNOTATION)


class BoardMeta(Meta, frozen=True):
    """Metadata of a TensorBoard's child."""

    labels: dict[str, str] | None = None
    annotations: _Annotations | None = None

    def label_map(self) -> Mapping[str, str]:
        """Return all labels."""
        return self.labels or {}


class LabelSelector(Struct, frozen=True):
    """The selector of a Deployment's pods."""

    match_labels: dict[str, str] | None = None


class BoardContainer(Struct, frozen=True):
    """A container, with the fields that users edit."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] | None = None


class BoardPodSpec(Struct, frozen=True):
    """The spec of a pod."""

    containers: tuple[BoardContainer, ...] = ()


class BoardPodTemplate(Struct, frozen=True):
    """The pod template of a Deployment."""

    spec: BoardPodSpec = BoardPodSpec()


class BoardDeploymentSpec(Struct, frozen=True):
    """The spec of a Deployment, with the fields that users edit."""

    replicas: int = 1
    selector: LabelSelector = LabelSelector()
    template: BoardPodTemplate = BoardPodTemplate()


class BoardDeploymentStatus(Struct, frozen=True):
    """The status of a Deployment."""

    conditions: tuple[Condition, ...] | None = None


class BoardDeployment(Struct, frozen=True, tag_field="kind", tag=DEPLOYMENTS.kind):
    """The Deployment of a TensorBoard."""

    metadata: BoardMeta
    spec: BoardDeploymentSpec = BoardDeploymentSpec()
    status: BoardDeploymentStatus = BoardDeploymentStatus()


class ServicePort(Struct, frozen=True):
    """A port of a Service, and the target port of its pods."""

    name: str = ""
    port: int = 0
    target_port: int | str = 0


class BoardServiceSpec(Struct, frozen=True):
    """The spec of a Service."""

    type: str = ""
    selector: dict[str, str] | None = None
    ports: tuple[ServicePort, ...] = ()


class BoardService(Struct, frozen=True, tag_field="kind", tag=SERVICES.kind):
    """The Service of a TensorBoard."""

    metadata: BoardMeta
    spec: BoardServiceSpec = BoardServiceSpec()


@dataclass(frozen=True, slots=True)
class BoardChildren:
    """The Deployments and Services that a job controls."""

    deployments: Sequence[BoardDeployment] = ()
    services: Sequence[BoardService] = ()
