"""Structs for a diagnosis.

They have more fields than the operator's cached ones (`api.core`), because a diagnosis reads a single job, once.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from msgspec import field

from tfjob_operator.api import core
from tfjob_operator.api.core import (
    ContainerStateTerminated,
    ContainerStateWaiting,
    Named,
    ObjectReference,
    ServiceSpec,
)
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct

NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGES: Final = Resource("", "v1", "limitranges", "LimitRange")
STORAGE_CLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
BATCH_JOBS: Final = core.JOBS
WORKLOADS: Final = Resource("kueue.x-k8s.io", "v1beta1", "workloads", "Workload")
CLUSTER_ROLE_BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)


class PodAnnotations(Struct, frozen=True):
    """The annotations of a diagnosis: what the admission plugin LimitRanger has set."""

    limit_ranger: str = field(default="", name="kubernetes.io/limit-ranger")


class LifetimeMeta(ObjectMeta, frozen=True):
    """Metadata with the times of creation and deletion."""

    annotations: PodAnnotations | None = None
    creation_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: tuple[str, ...] | None = None


class ConditionDetails(core.Condition, frozen=True):
    """A condition of any object, with its time."""

    last_transition_time: datetime | None = None


class ObjectStatus(Struct, frozen=True):
    """The status of a node, a Job, a claim, a namespace or a PodGroup, which have some of these fields."""

    phase: str = ""
    start_time: datetime | None = None
    conditions: tuple[ConditionDetails, ...] | None = None


class ObjectDetails(Struct, frozen=True):
    """An object of any kind."""

    metadata: LifetimeMeta = LifetimeMeta()


class Resources(Struct, frozen=True):
    """Requests and limits as written."""

    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None


class Lifecycle(Struct, frozen=True):
    """The hooks of a container."""

    pre_stop: dict[str, Any] | None = None


class VolumeMount(Struct, frozen=True):
    """The mount of a volume."""

    mount_path: str = ""


class ContainerDetails(Struct, frozen=True):
    """A container of a pod."""

    name: str = ""
    image: str = ""
    restart_policy: str = ""
    resources: Resources | None = None
    args: tuple[str, ...] | None = None
    lifecycle: Lifecycle | None = None
    startup_probe: dict[str, Any] | None = None
    readiness_probe: dict[str, Any] | None = None
    env: tuple[Named, ...] | None = None
    volume_mounts: tuple[VolumeMount, ...] | None = None


class ClaimSource(Struct, frozen=True):
    """The claim behind a volume."""

    claim_name: str = ""


class EmptyDir(Struct, frozen=True):
    """A volume that is deleted with its pod; `medium` is `Memory` for one that is not on a disk."""

    medium: str = ""


class Volume(Struct, frozen=True):
    """A volume of a pod; only claims and emptyDirs are read."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    empty_dir: EmptyDir | None = None


class SchedulingGroup(Struct, frozen=True):
    """The PodGroup of scheduling.k8s.io with which the pod is scheduled."""

    pod_group_name: str = ""


class PodSpecDetails(Struct, frozen=True):
    """The pod spec of a diagnosis."""

    containers: tuple[ContainerDetails, ...] | None = None
    init_containers: tuple[ContainerDetails, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    resources: Resources | None = None
    scheduling_gates: tuple[Named, ...] | None = None
    scheduler_name: str = ""
    scheduling_group: SchedulingGroup | None = None
    restart_policy: str = ""
    subdomain: str = ""
    termination_grace_period_seconds: int = 30

    @property
    def label_selector(self) -> str:
        """The nodeSelector as a label selector; "" if there is none."""
        return ",".join(sorted(f"{name}={label}" for name, label in (self.node_selector or {}).items()))


class DeploymentTemplate(Struct, frozen=True):
    """The template of a Deployment."""

    spec: PodSpecDetails = PodSpecDetails()


class OperatorDeploymentSpec(Struct, frozen=True):
    """The spec of the operator's Deployment."""

    replicas: int = 1
    template: DeploymentTemplate = DeploymentTemplate()


class OperatorDeploymentStatus(Struct, frozen=True):
    """The numbers of all, ready, and up-to-date pods of a Deployment."""

    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0


class OperatorDeployment(Struct, frozen=True):
    """The operator's Deployment."""

    metadata: ObjectMeta
    spec: OperatorDeploymentSpec = OperatorDeploymentSpec()
    status: OperatorDeploymentStatus = OperatorDeploymentStatus()

    @property
    def served(self) -> str:
        """The namespace that this operator serves; "" for all."""
        for argument in (each for one in self.spec.template.spec.containers or () for each in one.args or ()):
            if argument.startswith("--namespace="):
                name = argument.partition("=")[2]
                return self.metadata.namespace if name.startswith("$") else name
        return ""


class ContainerStateRunning(Struct, frozen=True):
    """The start time of a container."""

    started_at: datetime | None = None


class Terminated(ContainerStateTerminated, frozen=True):
    """How a container terminated, and when it started."""

    started_at: datetime | None = None


class ContainerStateDetails(Struct, frozen=True):
    """At most one of the three is set."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: Terminated | None = None


class ContainerStatusDetails(Struct, frozen=True):
    """A container, currently and before its last restart."""

    name: str = ""
    image: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerStateDetails | None = None
    last_state: ContainerStateDetails | None = None


class PodStatusDetails(Struct, frozen=True):
    """The status reported by scheduler and kubelet."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    pod_ip: str = field(default="", name="podIP")
    start_time: datetime | None = None
    conditions: tuple[ConditionDetails, ...] | None = None
    container_statuses: tuple[ContainerStatusDetails, ...] | None = None
    init_container_statuses: tuple[ContainerStatusDetails, ...] | None = None


class PodDetails(ObjectDetails, frozen=True, tag_field="kind", tag="Pod"):
    """A pod."""

    spec: PodSpecDetails = PodSpecDetails()
    status: PodStatusDetails = PodStatusDetails()


class EventSourceDetails(Struct, frozen=True):
    """The component that reported an event."""

    component: str = ""


class EventSeries(Struct, frozen=True):
    """How often an event occurred, and when last."""

    count: int = 0
    last_observed_time: datetime | None = None


class EventDetails(ObjectDetails, frozen=True, tag_field="kind", tag="Event"):
    """A core/v1 event.

    Events created in events.k8s.io are the same objects; in core/v1 their times are only in `eventTime` and `series`.
    """

    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    source: EventSourceDetails | None = None
    reporting_component: str = field(default="", name="reportingComponent")
    count: int = 0
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: EventSeries | None = None

    @property
    def at(self) -> datetime | None:
        """When the event last occurred; which field is set depends on the client that reported the event."""
        observed = self.series.last_observed_time if self.series is not None else None
        return (
            observed
            or self.last_timestamp
            or self.event_time
            or self.first_timestamp
            or self.metadata.creation_timestamp
        )

    @property
    def times(self) -> int:
        """How often the event occurred."""
        return max(self.series.count if self.series is not None else self.count, 1)


class NodeDetails(ObjectDetails, frozen=True, tag_field="kind", tag="Node"):
    """A node."""

    status: ObjectStatus = ObjectStatus()


class BatchSpec(Struct, frozen=True):
    """Whether a Job is suspended."""

    suspend: bool | None = None


class BatchJobDetails(ObjectDetails, frozen=True, tag_field="kind", tag="Job"):
    """A batch/v1 Job, which in the alpha dialect manages the pods of one replica."""

    spec: BatchSpec = BatchSpec()
    status: ObjectStatus = ObjectStatus()


class QuotaStatus(Struct, frozen=True):
    """The allowed and used amounts of a quota."""

    hard: dict[str, Any] | None = None
    used: dict[str, Any] | None = None


class ResourceQuota(ObjectDetails, frozen=True, tag_field="kind", tag="ResourceQuota"):
    """A ResourceQuota."""

    status: QuotaStatus = QuotaStatus()


class LimitRange(ObjectDetails, frozen=True, tag_field="kind", tag="LimitRange"):
    """A LimitRange, whose name alone is read."""


class StorageClass(ObjectDetails, frozen=True, tag_field="kind", tag="StorageClass"):
    """A StorageClass, whose name alone is read."""


class ClaimSpec(Struct, frozen=True):
    """The StorageClass of a claim; "" for volumes without a class, None for the default class."""

    storage_class_name: str | None = None


class PersistentVolumeClaim(ObjectDetails, frozen=True, tag_field="kind", tag="PersistentVolumeClaim"):
    """A PersistentVolumeClaim."""

    spec: ClaimSpec = ClaimSpec()
    status: ObjectStatus = ObjectStatus()


class ReplicaService(ObjectDetails, frozen=True, tag_field="kind", tag="Service"):
    """The Service of a replica."""

    spec: ServiceSpec = ServiceSpec()


class Namespace(ObjectDetails, frozen=True, tag_field="kind", tag="Namespace"):
    """The job's namespace."""

    status: ObjectStatus = ObjectStatus()


class WorkloadSpec(Struct, frozen=True):
    """The queue of a workload; the workload leaves the queue if `active` is false."""

    queue_name: str = ""
    active: bool = True


class AdmissionCheck(Struct, frozen=True):
    """A check that must be Ready before Kueue admits a workload."""

    name: str = ""
    state: str = ""
    message: str = ""


class WorkloadStatus(Struct, frozen=True):
    """How far Kueue has processed a workload; `cluster_name` is where MultiKueue runs it."""

    cluster_name: str = ""
    conditions: tuple[ConditionDetails, ...] | None = None
    admission_checks: tuple[AdmissionCheck, ...] | None = None


class Workload(ObjectDetails, frozen=True, tag_field="kind", tag="Workload"):
    """Kueue's object for a job."""

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class PendingWorkload(Struct, frozen=True):
    """The place of a workload in its queues, from Kueue's visibility API; the first place is 0."""

    metadata: ObjectMeta = ObjectMeta()
    position_in_local_queue: int = 0
    position_in_cluster_queue: int = 0


class PendingWorkloads(Struct, frozen=True):
    """The workloads that wait in a queue."""

    items: tuple[PendingWorkload, ...] | None = None


class PodGroupSpecDetails(Struct, frozen=True):
    """The number of pods to be scheduled together, and the volcano queue."""

    min_member: int = 0
    queue: str = ""


class PodGroupDetails(ObjectDetails, frozen=True, tag_field="kind", tag="PodGroup"):
    """A PodGroup of volcano or the coscheduling plugin."""

    spec: PodGroupSpecDetails = PodGroupSpecDetails()
    status: ObjectStatus = ObjectStatus()


class CrdSchema(Struct, frozen=True):
    """One level of a schema."""

    properties: dict[str, Any] | None = None


class CrdValidation(Struct, frozen=True):
    """The schema of one version."""

    open_api_v3_schema: CrdSchema | None = field(default=None, name="openAPIV3Schema")


class CrdVersion(Struct, frozen=True):
    """A version of a CRD."""

    name: str = ""
    served: bool = False
    schema: CrdValidation | None = None


class CrdSpec(Struct, frozen=True):
    """The versions of a CRD."""

    versions: tuple[CrdVersion, ...] | None = None


class Crd(ObjectDetails, frozen=True, tag_field="kind", tag="CustomResourceDefinition"):
    """The CRD of TFJobs."""

    spec: CrdSpec = CrdSpec()
