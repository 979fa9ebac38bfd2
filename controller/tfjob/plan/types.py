"""The values of a plan: what `plan` takes, and what it returns and `apply` executes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, NamedTuple

from tfjob_operator.api.v1.conditions import is_over
from tfjob_operator.api.v1.constants import RETRYABLE_EXIT_CODES
from tfjob_operator.api.v1.types import InvalidSpec, JobStatus, TFJob, TFJobSpec
from tfjob_operator.controller.jobs.children import (
    NONE_BLOCKED,
    Blocked,
    ConfigMap,
    Pod,
    PodGroup,
    ReplicaKey,
    Service,
)
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.pods import StartProblem
from tfjob_operator.controller.tfjob.build.builder import GangScheduler
from tfjob_operator.controller.tfjob.plan.clocks import FirstSeen
from tfjob_operator.controller.tfjob.plan.placement import Nodes
from tfjob_operator.controller.tfjob.plan.replicas import Drift
from tfjob_operator.controller.tfjob.plan.silence import NO_LOGS, Logs, LogWatch


class Defaults(NamedTuple):
    """The operator's defaults for fields that a job does not set."""

    delays: bool = True
    """Whether restarts of failed programs are delayed."""
    completion_grace_s: int = 30
    """How long workers may continue after the job has succeeded."""
    node_lost_timeout_s: int = 0
    """A node that is not ready for this long is lost; 0 disables this."""
    fallback_to_logs: bool = True
    """Whether a container that fails without a termination message reports the end of its log."""
    backend_variables: bool = True
    """Whether containers get the variables of Keras 3 and JAX."""
    retryable: frozenset[int] = RETRYABLE_EXIT_CODES
    """The exit codes after which the restart policy ExitCode restarts a replica."""

    def node_lost_after_s(self, spec: TFJobSpec) -> int:
        """Return how many seconds a node must be not ready before this job considers it lost; 0 for never."""
        return self.node_lost_timeout_s if spec.node_lost_timeout_s is None else spec.node_lost_timeout_s


DEFAULTS: Final = Defaults()


@dataclass(frozen=True, slots=True)
class PodDeletion:
    """A pod to delete, and the event to record first, since only the pod shows what the event reports.

    `restarts` is true if the pod is replaced. `decision` is the rule that applies to this replica: names of rule, action and
    replica type.
    """

    pod: Pod
    event: JobEvent | None = None
    restarts: bool = False
    decision: tuple[str, str, str] | None = None


class LostPod(NamedTuple):
    """A pod on a lost node, and the time, by another machine's clock, when the node became not ready."""

    pod: Pod
    since: datetime | None


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod that holds accelerators: its replica, when its kubelet accepted it in Unix time, and its extended resources."""

    type: str
    index: int
    since: int
    resources: tuple[tuple[str, int], ...]

    @property
    def mark(self) -> str:
        """What identifies a counted pod that is gone, whose UID is not known."""
        return f"{self.type}-{self.index}@{self.since}"


@dataclass(frozen=True, slots=True)
class PodGroupResize:
    """A PodGroup whose `minMember` must be updated."""

    group: PodGroup
    min_member: int


@dataclass(frozen=True, slots=True)
class Gang:
    """The known state of a job's PodGroup.

    `known` is False until PodGroups have been listed. `failure` is why listing failed, for example because the CRD is not
    installed.
    """

    scheduler: GangScheduler
    group: PodGroup | None = None
    known: bool = True
    failure: str = ""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PlanInput:
    """All that a plan depends on."""

    job: TFJob
    """Its status includes observed facts that are not written yet."""
    spec: TFJobSpec | InvalidSpec
    pods: Sequence[Pod]
    """Those that the job controls, as the services and ConfigMaps."""
    services: Sequence[Service]
    now: datetime
    monotonic_s: float = 0.0
    """Now, in the monotonic time of `first_seen` and `nodes`."""
    config_maps: Sequence[ConfigMap] = ()
    gang: Gang | None = None
    """None if gang scheduling is disabled."""
    blocked: Blocked = NONE_BLOCKED
    expected: Collection[ReplicaKey] = ()
    """The pods that were created but are not in `pods` yet."""
    unreported: Sequence[JobEvent] = ()
    """The events of an unwritten status that restarts the job, or that a refused spec replaces. They precede new ones."""
    first_seen: FirstSeen = field(default_factory=dict)
    """That of the previous plan of this process (`clocks`)."""
    nodes: Nodes | None = None
    """None if not needed."""
    logs: Logs = NO_LOGS
    """What is known about the logs that the previous plan asked for."""
    domain: str = ""
    """The cluster's DNS domain if TF_CONFIG needs it."""
    defaults: Defaults = DEFAULTS


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about a job."""

    create_services: tuple[ReplicaKey, ...] = ()
    create_pods: tuple[ReplicaKey, ...] = ()
    status: JobStatus | None = None
    """None if it does not change."""
    events: tuple[JobEvent, ...] = ()
    """Recorded when the status is written; without a status there are none."""
    delete_pods: tuple[PodDeletion, ...] = ()
    delete_services: tuple[Service, ...] = ()
    delete_job: bool = False
    """True if its TTL has expired."""
    label_drift: tuple[Drift, ...] = ()
    """Children whose labels do not match their names."""
    selector_drift: tuple[Drift, ...] = ()
    """Services that do not select their pods."""
    problems: tuple[StartProblem, ...] = ()
    create_pod_group: int | None = None
    """The `minMember` of the group to create, which precedes the pods, as the ConfigMaps do."""
    resize_pod_group: PodGroupResize | None = None
    delete_pod_group: PodGroup | None = None
    create_config_maps: tuple[str, ...] = ()
    """By hash."""
    delete_config_maps: tuple[ConfigMap, ...] = ()
    requeue_after_s: float | None = None
    """The time until another plan may be due even without an event; None for never."""
    begins_attempt: bool = False
    """True if the created pods are the first of an attempt: the API server must have no pod of an earlier one."""
    create_later: int = 0
    """The number of missing pods that are left to a later plan."""
    lost_pods: tuple[LostPod, ...] = ()
    """Pods on lost nodes: those still running are marked as failed, those being deleted are force-deleted."""
    may_outlive: frozenset[str] | None = None
    """Not None if the status ends a queued job: no pods but these, by UID, may hold quota on the API server then."""
    first_seen: FirstSeen = field(default_factory=dict)
    """An input of the next plan (`clocks`)."""
    log_watch: LogWatch | None = None
    """The logs to read for the next plans."""
    vanished: tuple[RunningPod, ...] = ()
    """The pods that the status counts although the view does not show them (`accelerators`)."""

    @property
    def acts(self) -> bool:
        """True if children are created, changed or deleted."""
        return bool(
            self.create_services
            or self.create_pods
            or self.delete_pods
            or self.delete_services
            or self.delete_job
            or self.create_pod_group
            or self.resize_pod_group
            or self.delete_pod_group
            or self.create_config_maps
            or self.delete_config_maps
            or self.lost_pods
        )

    def requeued_within(self, seconds: float | None) -> Plan:
        """Return the plan with a requeue after at most `seconds`; None leaves it unchanged."""
        if seconds is None or (self.requeue_after_s is not None and self.requeue_after_s <= seconds):
            return self
        return replace(self, requeue_after_s=seconds)

    def ends(self, job: TFJob) -> bool:
        """Return True if this plan decides the end of the job: it then changes no children."""
        return self.status is not None and is_over(self.status) and not is_over(job.status)


def without_blocked(plan: Plan, blocked: Blocked) -> Plan:
    """Return the plan without children that are backing off. Replica types of which none has failed come first.

    The first failure ends a batch: in another order, workers would wait for parameter servers that cannot be created. A
    pod that a kubelet rejected is kept until its replacement is due, since it shows the reason.
    """
    if blocked.rejected_by_kubelet:
        kept = [
            pod for pod in plan.delete_pods if pod.restarts and pod.pod.metadata.name in blocked.rejected_by_kubelet
        ]
        if kept:
            deleted = tuple(pod for pod in plan.delete_pods if pod not in kept)
            plan = replace(plan, delete_pods=deleted).requeued_within(blocked.next_due_in_s)
    if not blocked.failed:
        return plan
    planned = (*plan.create_services, *plan.create_pods)
    if any(key.name in blocked.backing_off for key in planned):
        plan = plan.requeued_within(blocked.next_due_in_s)
    if any(not key.type and key.name in blocked.backing_off for key in plan.create_services):
        return replace(plan, create_services=(), create_pods=())  # pods require the shared service
    failed = {key.type for key in planned if key.name in blocked.failed}

    def ready(keys: Iterable[ReplicaKey]) -> tuple[ReplicaKey, ...]:
        left = (key for key in keys if key.name not in blocked.backing_off)
        return tuple(sorted(left, key=lambda key: key.type in failed))

    return replace(plan, create_services=ready(plan.create_services), create_pods=ready(plan.create_pods))
