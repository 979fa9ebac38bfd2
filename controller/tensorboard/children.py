"""The Deployment and the Service of a TensorBoard, as they are cached, with their label, selector and annotation. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import field

from tfjob_operator.api.core import DEPLOYMENTS, SERVICES, Condition
from tfjob_operator.api.meta import Meta, Struct
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME

OPERATOR: Final = "tensorboard-controller"
"""The value of the label by which controllers know their children. It differs from that of replicas, so that no TensorBoard is
ever counted, adopted or cleaned up as a replica."""
SELECTOR: Final = f"{LABEL_OPERATOR_NAME}={OPERATOR}"
HASH_ANNOTATION: Final = "training.kubeflow.org/tensorboard-hash"
"""The hash of the specification that a Deployment was last given: the API server stores some of it in another form."""


class _Annotations(Struct, frozen=True):
    hash: str = field(default="", name=HASH_ANNOTATION)


class BoardMeta(Meta, frozen=True):
    """Metadata of a child of a TensorBoard."""

    labels: dict[str, str] | None = None
    annotations: _Annotations | None = None

    def label_map(self) -> Mapping[str, str]:
        """All labels."""
        return self.labels or {}


class LabelSelector(Struct, frozen=True):
    """Which pods a Deployment has."""

    match_labels: dict[str, str] | None = None


class Container(Struct, frozen=True):
    """What a container runs."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] | None = None


class PodSpec(Struct, frozen=True):
    """The containers of a pod."""

    containers: tuple[Container, ...] = ()


class PodTemplate(Struct, frozen=True):
    """The pod of a Deployment."""

    spec: PodSpec = PodSpec()


class DeploymentSpec(Struct, frozen=True):
    """What a Deployment runs, as far as people edit it."""

    replicas: int = 1
    selector: LabelSelector = LabelSelector()
    template: PodTemplate = PodTemplate()


class DeploymentStatus(Struct, frozen=True):
    """What a Deployment reports."""

    conditions: tuple[Condition, ...] | None = None


class Deployment(Struct, frozen=True, tag_field="kind", tag=DEPLOYMENTS.kind):
    """The Deployment of a TensorBoard."""

    metadata: BoardMeta
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class ServicePort(Struct, frozen=True):
    """A port of a Service, and that of the pods behind it."""

    name: str = ""
    port: int = 0
    target_port: int | str = 0


class ServiceSpec(Struct, frozen=True):
    """How a Service is reached, and what it leads to."""

    type: str = ""
    selector: dict[str, str] | None = None
    ports: tuple[ServicePort, ...] = ()


class Service(Struct, frozen=True, tag_field="kind", tag=SERVICES.kind):
    """The Service of a TensorBoard."""

    metadata: BoardMeta
    spec: ServiceSpec = ServiceSpec()


@dataclass(frozen=True, slots=True)
class Found:
    """What a job controls of the kinds that a TensorBoard is made of."""

    deployments: Sequence[Deployment] = ()
    services: Sequence[Service] = ()
