"""Slices of Pod as a kubelet sees it: what it reads of the spec, and the whole of the status that it writes.

Values only. Unlike the slices of `api.core` these keep annotations (the script of a pod) and every field of a status that
`kubectl describe pod` prints, because this side writes them.
"""

from datetime import datetime
from typing import Any

from msgspec import field

from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import ObjectMeta, Struct

HOST_IP = "127.0.0.1"  # of every node, where the API server asks for logs
ALWAYS = "Always"
ON_FAILURE = "OnFailure"
NEVER = "Never"

PENDING = "Pending"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
TERMINAL = frozenset({SUCCEEDED, FAILED})


class HollowMeta(ObjectMeta, frozen=True):
    """Metadata with what a kubelet reads besides."""

    annotations: dict[str, str] | None = None
    deletion_grace_period_seconds: int | None = None


class ExitCodes(Struct, frozen=True):
    """Which exit codes a rule speaks of: those `In` the values, or those `NotIn` them."""

    operator: str = ""
    values: tuple[int, ...] = ()


class RestartRule(Struct, frozen=True):
    """What follows such an exit: `Restart` of the container, or `RestartAllContainers`."""

    action: str = ""
    exit_codes: ExitCodes = ExitCodes()


class ContainerSpec(Struct, frozen=True):
    """A container's name and image, what it requests, and what it says itself about being started again."""

    name: str
    image: str = ""
    resources: dict[str, Any] | None = None
    restart_policy: str = ""
    restart_policy_rules: tuple[RestartRule, ...] = ()


class Taint(Struct, frozen=True):
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""


class Toleration(Struct, frozen=True):
    """Which taints a pod tolerates."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(Struct, frozen=True):
    """What a label or a field of a node has to be."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeTerm(Struct, frozen=True):
    """Requirements that a node has to meet, all of them."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeTerms(Struct, frozen=True):
    """Terms of which a node has to meet one."""

    node_selector_terms: tuple[NodeTerm, ...] = ()


class NodeAffinity(Struct, frozen=True):
    """The nodes on which a pod may run."""

    required: NodeTerms | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Struct, frozen=True):
    """A pod's affinity, as far as it is to nodes."""

    node_affinity: NodeAffinity = NodeAffinity()


class HollowSpec(Struct, frozen=True):
    """The part of a pod's spec that decides where and how it lives."""

    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[Any, ...] = ()
    overhead: dict[str, Any] | None = None
    scheduler_name: str = "default-scheduler"
    restart_policy: str = ALWAYS
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    host_network: bool = False
    init_containers: list[ContainerSpec] | None = None
    containers: list[ContainerSpec] = field(default_factory=list)


class Waiting(Struct, frozen=True):
    """Why a container does not run yet, or not again."""

    reason: str = ""
    message: str = ""


class Running(Struct, frozen=True):
    """Since when a container runs."""

    started_at: datetime


class Terminated(Struct, frozen=True):
    """How a run ended; the times are missing where the kubelet has lost sight of it."""

    exit_code: int
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str = ""
    message: str = ""
    container_id: str = field(default="", name="containerID")


class ContainerState(Struct, frozen=True):
    """At most one of the three is set."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True):
    """One container: its present state, how its previous run ended, how often it was restarted in place."""

    name: str
    image: str = ""
    image_id: str = field(default="", name="imageID")
    container_id: str = field(default="", name="containerID")
    ready: bool = False
    started: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class Condition(Struct, frozen=True):
    """A condition of a pod; `last_transition_time` is when `status` last changed."""

    type: str
    status: str
    last_transition_time: datetime | None = None
    reason: str = ""
    message: str = ""


class PodIP(Struct, frozen=True):
    """One address of a pod."""

    ip: str


class HollowStatus(Struct, frozen=True):
    """A pod's status: at once what is reported and all that this node remembers of the pod's life."""

    observed_generation: int = 0
    phase: str = PENDING
    reason: str = ""
    message: str = ""
    conditions: list[Condition] | None = None
    host_ip: str = field(default="", name="hostIP")
    pod_ip: str = field(default="", name="podIP")
    pod_ips: list[PodIP] | None = field(default=None, name="podIPs")
    start_time: datetime | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None


class HollowNodeSpec(Struct, frozen=True):
    """What a node refuses."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class HollowNodeStatus(Struct, frozen=True):
    """What a node has."""

    allocatable: dict[str, str] | None = None


class HollowNodeObject(Struct, frozen=True, tag_field="kind", tag="Node"):
    """A Node, as the scheduler sees it."""

    metadata: ObjectMeta
    spec: HollowNodeSpec = HollowNodeSpec()
    status: HollowNodeStatus = HollowNodeStatus()


class HollowPod(Struct, frozen=True, tag_field="kind", tag=PODS.kind):
    """A pod."""

    metadata: HollowMeta
    spec: HollowSpec = HollowSpec()
    status: HollowStatus = HollowStatus()
