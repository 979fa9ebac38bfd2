"""Pod as a kubelet reads and writes it: the relevant part of the spec, and the whole status.

Unlike the structs of `api.core`, these have annotations (the script of a pod). They also have every status field that `kubectl
describe pod` prints, because the hollow node writes these fields.
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
    """Metadata with additional fields that a kubelet reads."""

    annotations: dict[str, str] | None = None
    deletion_grace_period_seconds: int | None = None


class ExitCodes(Struct, frozen=True):
    """The exit codes of a rule: those `In` the values, or those `NotIn` them."""

    operator: str = ""
    values: tuple[int, ...] = ()


class RestartRule(Struct, frozen=True):
    """The action of a rule: `Restart` of the container, or `RestartAllContainers`."""

    action: str = ""
    exit_codes: ExitCodes = ExitCodes()


class ContainerSpec(Struct, frozen=True):
    """A container's name, image, requests, and its own restart policy and rules."""

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
    """A toleration."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(Struct, frozen=True):
    """A requirement on a label or field of a node."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeTerm(Struct, frozen=True):
    """Requirements that a node must meet, all of them."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeTerms(Struct, frozen=True):
    """Terms, one of which a node must meet."""

    node_selector_terms: tuple[NodeTerm, ...] = ()


class NodeAffinity(Struct, frozen=True):
    """The nodes on which a pod may run."""

    required: NodeTerms | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Struct, frozen=True):
    """A pod's node affinity."""

    node_affinity: NodeAffinity = NodeAffinity()


class HollowSpec(Struct, frozen=True):
    """The part of a pod's spec that affects scheduling and its life cycle."""

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
    """How a run ended; the times are missing if the kubelet does not know them."""

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
    """One container: its state, the end of its previous run, and its number of restarts in place."""

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
    """A pod's status, which is also the node's only memory of the pod."""

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
    """Whether a node is cordoned, and its taints."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class HollowNodeStatus(Struct, frozen=True):
    """The resources of a node."""

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
