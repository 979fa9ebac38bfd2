"""Slices of the core API: what a controller reads of pods, services and events, as frozen structs; and the kinds of PodGroups.

A cached pod costs about 3 KB this way, against 49 KB as the official client's model. Fields that nobody reads are not here.
Code that caches objects declares its own slices from these parts, with the labels that it reads (`controller.jobs.children`).
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import field

from tfjob_operator.api.meta import Meta, ObjectMeta, Resource, Struct

PODS = Resource("", "v1", "pods", "Pod")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS = Resource("", "v1", "events", "Event")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
JOBS = Resource("batch", "v1", "jobs", "Job")
IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
        "ImageVolumeMountFailed",
    }
)
"""Why a container waits that has no image (kubernetes: pkg/kubelet/images/types.go)."""


class PodPhase(StrEnum):
    """The phases of a pod that are told apart here."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


TERMINAL = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})
"""The phases that a pod does not leave."""


class PodRestartPolicy(StrEnum):
    """What a kubelet does with containers that have ended."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


class EventType(StrEnum):
    """The two types of events."""

    NORMAL = "Normal"
    WARNING = "Warning"


class ContainerExitCodes(Struct, frozen=True):
    """Which exit codes a rule is about: those `In` the values, or those `NotIn` them."""

    operator: str = ""
    values: tuple[int, ...] = ()


class ContainerRestartRule(Struct, frozen=True):
    """What the kubelet does after an exit with such a code (Kubernetes 1.35): `Restart` or `RestartAllContainers`."""

    action: str = ""
    exit_codes: ContainerExitCodes | None = None


class Container(Struct, frozen=True):
    """A container; `restart_policy` "" means the pod's, `Always` on an init container a native sidecar (1.29)."""

    name: str
    restart_policy: str = ""
    restart_policy_rules: tuple[ContainerRestartRule, ...] | None = None


class Named(Struct, frozen=True):
    """A part of which only the name is read, such as a scheduling gate: schedulers ignore a pod that has one."""

    name: str = ""


class PodSpec(Struct, frozen=True):
    """What decides when a pod starts and how it ends. The defaults are those that an API server fills in."""

    restart_policy: str = PodRestartPolicy.ALWAYS
    termination_grace_period_seconds: int = 30
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    scheduling_gates: tuple[Named, ...] | None = None


class ContainerStateWaiting(Struct, frozen=True):
    """Why a container has not started."""

    reason: str = ""
    message: str = ""


class ContainerStateTerminated(Struct, frozen=True):
    """How a container ended. An exit code above 128 usually means 128 + the signal's number."""

    exit_code: int
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(Struct, frozen=True):
    """At most one of the two is set. A running container has neither: nothing here needs to know since when it runs."""

    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class LastState(Struct, frozen=True):
    """How a container ended before it was restarted in place."""

    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Struct, frozen=True):
    """One container's state, and how often the kubelet restarted it in place."""

    name: str
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: LastState | None = None


class Condition(Struct, frozen=True):
    """A condition of a pod, a Job or a Deployment, such as PodScheduled or Complete."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(Struct, frozen=True):
    """What the kubelet reports."""

    phase: str = PodPhase.PENDING
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class NodeCondition(Struct, frozen=True):
    """A condition of a node, such as Ready, or one that a node problem detector sets."""

    type: str
    status: str = ""
    last_transition_time: datetime | None = None


class Taint(Struct, frozen=True):
    """A taint of a node. Only those with the effect NoExecute have the time at which they were added."""

    key: str
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class NodeSpec(Struct, frozen=True):
    """Which pods a node repels."""

    taints: tuple[Taint, ...] | None = None


class NodeStatus(Struct, frozen=True):
    """What the kubelet and other agents report about a node."""

    conditions: tuple[NodeCondition, ...] | None = None


class Node(Struct, frozen=True, tag_field="kind", tag=NODES.kind):
    """A node: its health, and nothing else."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ServiceSpec(Struct, frozen=True):
    """Which pods a service selects."""

    selector: dict[str, str] | None = None


class ObjectReference(Struct, frozen=True):
    """The object that an event is about; `field_path` names a part of it, such as `spec.containers{main}`."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


def object_reference(kind: Resource, meta: Meta) -> ObjectReference:
    """Return the reference to an object of this kind, for its events."""
    return ObjectReference(
        api_version=kind.api_version,
        kind=kind.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


class EventSource(Struct, frozen=True):
    """Who reported an event."""

    component: str = ""
    host: str = ""


class EventMeta(Struct, frozen=True):
    """Name and namespace under which an event is written."""

    name: str
    namespace: str


class Event(Struct, frozen=True):
    """A core/v1 event as we write it. `kubectl describe` prints it last."""

    metadata: EventMeta
    involved_object: ObjectReference
    reason: str
    message: str
    type: str
    source: EventSource
    first_timestamp: datetime
    last_timestamp: datetime
    count: int
    reporting_component: str = field(default="", name="reportingComponent")
    reporting_instance: str = ""


VOLCANO_POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
COSCHEDULING_POD_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
"""Those of the coscheduling plugin (sig-scheduling's scheduler-plugins), which runs in a scheduler of any name."""
POD_GROUP_PENDING = "Pending"


LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")


class LeaseSpec(Struct, frozen=True):
    """Who holds a lease, since when and for how long. None is a field that nobody has set."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(Struct, frozen=True):
    """A lease of coordination.k8s.io/v1, by which the replicas of a controller agree on a leader."""

    metadata: ObjectMeta
    spec: LeaseSpec | None = None
