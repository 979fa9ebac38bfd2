"""Classes of objects that are both a resource and the type of its objects, for controllers written with `App`.

    class KettleSpec(Struct, frozen=True):
        liters: int = 1

    class Kettle(Kind, frozen=True):
        resource = Resource("example.com", "v1", "kettles", "Kettle")
        spec: KettleSpec = KettleSpec()

The ten classes of built-in resources below have the fields that controllers read most often. For other fields, declare a class
of your own over the same resource, with the fields that you read: an informer caches nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from tfjob_operator.api.core import CONFIG_MAPS, DEPLOYMENTS, JOBS, NODES, PODS, SERVICES
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct


class Metadata(ObjectMeta, frozen=True):
    """Metadata with all labels, annotations and finalizers."""

    annotations: Mapping[str, str] | None = None
    finalizers: tuple[str, ...] | None = None


class Kind(Struct, frozen=True):
    """Base class of objects. Subclasses set `resource` and declare the fields that they read."""

    resource: ClassVar[Resource]
    metadata: Metadata


class Condition(Struct, frozen=True):
    """A condition of a status, as metav1.Condition and the conditions of built-in kinds."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: datetime | None = None


def is_true(conditions: tuple[Condition, ...] | None, condition_type: str) -> bool:
    """Return True if the condition of this type has the status True."""
    return any(each.type == condition_type and each.status == "True" for each in conditions or ())


class LabelSelector(Struct, frozen=True):
    """A label selector; all of its requirements must be met."""

    match_labels: Mapping[str, str] | None = None
    match_expressions: tuple[Mapping[str, Any], ...] | None = None


class Container(Struct, frozen=True):
    """A container of a pod."""

    name: str
    image: str = ""


class ContainerStatus(Struct, frozen=True):
    """The state of a container. Of `state`, the key is `waiting`, `running` or `terminated`."""

    name: str
    ready: bool = False
    restart_count: int = 0
    image: str = ""
    state: Mapping[str, Any] | None = None


class PodSpec(Struct, frozen=True):
    """The spec of a pod."""

    node_name: str = ""
    service_account_name: str = ""
    priority_class_name: str = ""
    containers: tuple[Container, ...] = ()


class PodTemplate(Struct, frozen=True):
    """A pod template."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


class PodStatus(Struct, frozen=True):
    """The status of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = ""
    host_ip: str = ""
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(Kind, frozen=True, tag_field="kind", tag="Pod"):
    """A pod."""

    resource = PODS
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ServicePort(Struct, frozen=True):
    """A port of a Service."""

    name: str = ""
    protocol: str = "TCP"
    port: int = 0
    target_port: int | str = 0
    node_port: int = 0


class ServiceSpec(Struct, frozen=True):
    """The spec of a Service."""

    type: str = ""
    cluster_ip: str = ""
    selector: Mapping[str, str] | None = None
    ports: tuple[ServicePort, ...] | None = None


class Service(Kind, frozen=True, tag_field="kind", tag="Service"):
    """A Service."""

    resource = SERVICES
    spec: ServiceSpec = ServiceSpec()


class ConfigMap(Kind, frozen=True, tag_field="kind", tag="ConfigMap"):
    """A ConfigMap; `binary_data` is base64."""

    resource = CONFIG_MAPS
    data: Mapping[str, str] | None = None
    binary_data: Mapping[str, str] | None = None
    immutable: bool = False


class Secret(Kind, frozen=True, tag_field="kind", tag="Secret"):
    """A Secret; the values are base64."""

    resource = Resource("", "v1", "secrets", "Secret")
    type: str = ""
    data: Mapping[str, str] | None = None


class DeploymentSpec(Struct, frozen=True):
    """The spec of a Deployment."""

    replicas: int = 1
    paused: bool = False
    selector: LabelSelector = LabelSelector()
    template: PodTemplate = PodTemplate()


class DeploymentStatus(Struct, frozen=True):
    """The status of a Deployment. It is outdated while `observed_generation` is less than the generation of the metadata."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[Condition, ...] | None = None


class Deployment(Kind, frozen=True, tag_field="kind", tag="Deployment"):
    """A Deployment."""

    resource = DEPLOYMENTS
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class StatefulSetSpec(Struct, frozen=True):
    """The spec of a StatefulSet."""

    replicas: int = 1
    service_name: str = ""
    selector: LabelSelector = LabelSelector()
    template: PodTemplate = PodTemplate()


class StatefulSetStatus(Struct, frozen=True):
    """The status of a StatefulSet."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""


class StatefulSet(Kind, frozen=True, tag_field="kind", tag="StatefulSet"):
    """A StatefulSet."""

    resource = Resource("apps", "v1", "statefulsets", "StatefulSet")
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()


class JobSpec(Struct, frozen=True):
    """The spec of a Job."""

    parallelism: int = 1
    completions: int | None = None
    suspend: bool = False
    template: PodTemplate = PodTemplate()


class JobStatus(Struct, frozen=True):
    """The status of a Job."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = None


class Job(Kind, frozen=True, tag_field="kind", tag="Job"):
    """A Job."""

    resource = JOBS
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class Taint(Struct, frozen=True):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(Struct, frozen=True):
    """The spec of a node."""

    unschedulable: bool = False
    provider_id: str = ""
    pod_cidr: str = ""
    taints: tuple[Taint, ...] | None = None


class NodeStatus(Struct, frozen=True):
    """The status of a node. `capacity` and `allocatable` are quantities such as `500m` and `2Gi`."""

    capacity: Mapping[str, str] | None = None
    allocatable: Mapping[str, str] | None = None
    conditions: tuple[Condition, ...] | None = None


class Node(Kind, frozen=True, tag_field="kind", tag="Node"):
    """A node."""

    resource = NODES
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NamespaceStatus(Struct, frozen=True):
    """The status of a namespace: its phase is Active or Terminating."""

    phase: str = ""


class Namespace(Kind, frozen=True, tag_field="kind", tag="Namespace"):
    """A namespace."""

    resource = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
    status: NamespaceStatus = NamespaceStatus()


class PersistentVolumeClaimSpec(Struct, frozen=True):
    """The spec of a claim. An empty `storage_class_name` asks for no class, None for the default."""

    storage_class_name: str | None = None
    volume_name: str = ""
    access_modes: tuple[str, ...] | None = None


class PersistentVolumeClaimStatus(Struct, frozen=True):
    """The status of a claim: its phase is Pending, Bound or Lost."""

    phase: str = ""
    capacity: Mapping[str, str] | None = None


class PersistentVolumeClaim(Kind, frozen=True, tag_field="kind", tag="PersistentVolumeClaim"):
    """A claim for a volume."""

    resource = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()
