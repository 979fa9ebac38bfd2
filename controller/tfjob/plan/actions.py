"""The values of a plan, which `plan` returns and `apply` executes, and the actions for PodGroups and ConfigMaps. Pure.

With gang scheduling, the pods of a job are scheduled all together or not at all. A job has one PodGroup, with the job's name.
It is created before any pod, specifies the minimum useful number of pods, and is deleted when the job ends or is suspended. In
an existing group, the operator updates only `minMember` and the resources computed from it. Another component may have changed
the group's queue.

The ConfigMap of a large cluster spec is immutable and named by a hash of its content and the job's UID. So a scaled job gets a
new one, and a new job of the same name cannot conflict with the old one. Pods carry the hash in a label. A kubelet reads the
ConfigMap whenever it starts a container, including in-place restarts; so it is kept, or recreated, until no pod needs it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, NamedTuple

from tfjob_operator.api.core import POD_GROUP_PENDING, EventType
from tfjob_operator.api.meta import Meta
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.conditions import is_over
from tfjob_operator.api.v1.constants import RETRYABLE_EXIT_CODES, EventReason
from tfjob_operator.api.v1.tf_config import ClusterSpec, needs_no_config_map
from tfjob_operator.api.v1.types import InvalidSpec, JobStatus, TFJob, TFJobSpec
from tfjob_operator.controller.jobs.children import (
    LINGER_LIMIT_S,
    NO_LABELS,
    NONE_BLOCKED,
    Blocked,
    ConfigMap,
    Pod,
    PodGroup,
    ReplicaKey,
    Service,
)
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.pods import StartProblem, has_ended, problem_of_job
from tfjob_operator.controller.tfjob.build.children import GangScheduler, config_map_name
from tfjob_operator.controller.tfjob.plan.clocks import Fact, FirstSeen, Observer
from tfjob_operator.controller.tfjob.plan.placement import Nodes
from tfjob_operator.controller.tfjob.plan.replicas import Drift, Replica
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


NOTHING: Final = Plan()


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


POD_GROUPS_FIRST_RETRY_S: Final = 0.5
"""How long a job waits if PodGroups have not been listed yet and listing has not failed: the operator has just started."""
POD_GROUPS_RETRY_S: Final = 5.0
"""How long it waits after listing has failed. The retry only reads the cache, which lists again about every 30 s."""


def with_gang(
    plan: Plan,
    job: TFJob,
    spec: TFJobSpec | InvalidSpec,
    replicas: Iterable[Replica],
    gang: Gang | None,
    *,
    observer: Observer,
) -> Plan:
    """Return the plan with the actions for the PodGroup; `gang` is None if gang scheduling is disabled.

    `replicas` are the replicas in the spec that have a pod. The group of a job on hold is not changed, nor that of a job whose
    end is decided but not written.
    """
    if gang is None or conditions.is_ending(job.status):
        return plan
    if spec.suspend or conditions.is_finished(job.status):
        return without_pod_group(plan, gang)
    return plan if isinstance(spec, InvalidSpec) else with_pod_group(plan, job, spec, replicas, gang, observer=observer)


def without_pod_group(plan: Plan, gang: Gang) -> Plan:
    """Return the plan for a job that needs no PodGroup: it deletes an existing one that is not yet terminating."""
    if gang.group is None or plan.delete_job or _is_terminating(gang.group):
        return plan
    return replace(plan, delete_pod_group=gang.group)


def with_pod_group(
    plan: Plan, job: TFJob, spec: TFJobSpec, replicas: Iterable[Replica], gang: Gang, *, observer: Observer
) -> Plan:
    """Return the plan of a job that should run; `replicas` are those in its spec that have a pod."""
    group = gang.group
    plan = replace(
        plan, events=plan.events + _first_events(job, spec, gang.scheduler) + _ignored_edit_events(job, spec, gang)
    )
    if not gang.known:
        return _wait_for_pod_groups(plan, gang) if plan.create_pods else plan
    if group is not None and group.metadata.deletion_timestamp is not None:
        return _wait_for_deletion(plan, group.metadata, observer)
    # A succeeded replica whose pod is gone is not recreated: a group that counted it would wait forever.
    able = len({replica.key for replica in replicas}) + len(plan.create_pods) + plan.create_later
    min_member = _min_member(spec, able)
    if min_member == 0:
        return plan
    if group is None:
        plan = replace(plan, create_pod_group=min_member)
    elif group.spec.min_member != min_member:
        plan = replace(plan, resize_pod_group=PodGroupResize(group, min_member))
    return plan if _admitted(gang) else _without_pods(plan)


def _min_member(spec: TFJobSpec, able: int) -> int:
    """Return the number of pods that the job can have, or its `minAvailable` if less.

    At least 1, unless the job can have no pods.
    """
    asked = spec.scheduling.min_available
    return able if asked is None else min(max(asked, 1), able)


def blocks_pods(gang: Gang) -> bool:
    """Return True if the job's PodGroup does not permit creating pods yet."""
    return not gang.known or not _admitted(gang) or (gang.group is not None and _is_terminating(gang.group))


def _admitted(gang: Gang) -> bool:
    if not gang.scheduler.admits:
        return True
    return gang.group is not None and gang.group.status.phase not in {"", POD_GROUP_PENDING}


def _without_pods(plan: Plan) -> Plan:
    """Return the plan without new pods and their services: a queued job uses no cluster resources."""
    waiting = {key.name for key in plan.create_pods}
    services = tuple(key for key in plan.create_services if key.name not in waiting)
    return replace(plan, create_pods=(), create_services=services)


def _wait_for_deletion(plan: Plan, group: Meta, observer: Observer) -> Plan:
    """Create no pods: a new group can be created once this one is gone. If it persists, a user must act."""
    if not plan.create_pods:
        return plan
    deleted = observer.first_seen(Fact.DELETED, group.uid, group.deletion_timestamp)
    left_s = LINGER_LIMIT_S - (observer.now - deleted).total_seconds()
    if left_s > 0:
        return _without_pods(plan.requeued_within(left_s))
    text = f"Error creating: PodGroup {group.name} already exists: it is being deleted (UID {group.uid})"
    reason = EventReason.FAILED_CREATE_POD_GROUP
    problem = StartProblem((group.uid, "", reason), JobEvent(EventType.WARNING, reason, text))
    return _without_pods(replace(plan, problems=(*plan.problems, problem)))


def _wait_for_pod_groups(plan: Plan, gang: Gang) -> Plan:
    """Create nothing, and requeue the job, since no event will queue it."""
    plan = _without_pods(plan.requeued_within(POD_GROUPS_RETRY_S if gang.failure else POD_GROUPS_FIRST_RETRY_S))
    if not gang.failure:
        return plan
    text = f"Waiting for PodGroups of {gang.scheduler.name} before creating pods: {gang.failure}"
    return replace(plan, problems=(*plan.problems, problem_of_job(EventReason.POD_GROUPS_UNKNOWN, text)))


def _first_events(job: TFJob, spec: TFJobSpec, scheduler: GangScheduler) -> tuple[JobEvent, ...]:
    """Return the events recorded once, with the first status."""
    if job.status.conditions:
        return ()
    if not {replica.template.scheduler_name for replica in spec.replicas.values()} - {"", scheduler.name}:
        return ()
    text = "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"
    return (JobEvent(EventType.WARNING, EventReason.OTHER_SCHEDULER, text),)


def _ignored_edit_events(job: TFJob, spec: TFJobSpec, gang: Gang) -> tuple[JobEvent, ...]:
    """Return an event, once per edit, if scheduling fields differ from the existing group: the difference is ignored."""
    if gang.group is None or job.status.observed_generation in {None, job.metadata.generation}:
        return ()
    asked, made = spec.scheduling, gang.group.spec
    fields: dict[str, tuple[object, object]] = {"minResources": (asked.min_resources, made.min_resources)}
    if gang.scheduler.admits:
        fields["queue"] = (asked.queue, made.queue)
        fields["priorityClass"] = (asked.priority_class, made.priority_class_name)
    else:
        fields["scheduleTimeoutSeconds"] = (asked.schedule_timeout_s, made.schedule_timeout_seconds)
    ignored = [name for name, (wanted, current) in fields.items() if wanted not in (None, "") and wanted != current]
    if not ignored:
        return ()
    paths = ", ".join(f"spec.runPolicy.schedulingPolicy.{name}" for name in ignored)
    text = f"{paths} cannot change after the PodGroup was created. Suspend and resume the job to recreate the PodGroup."
    return (JobEvent(EventType.WARNING, EventReason.POD_GROUP_NOT_UPDATED, text),)


def _is_terminating(group: PodGroup) -> bool:
    return group.metadata.deletion_timestamp is not None


_DIGEST: Final = re.compile("[0-9a-f]{16}")


def with_config_maps(
    plan: Plan,
    job: TFJob,
    spec: TFJobSpec | InvalidSpec,
    pods: Sequence[Pod],
    owned: Sequence[ConfigMap],
    *,
    domain: str,
) -> Plan:
    """Return the plan with its ConfigMaps; `owned` are those that the job controls, `domain` the cluster's DNS domain.

    A ConfigMap is kept while a pod that uses it may still restart containers. The ConfigMap of the current spec is also kept
    while the job is active. All others are deleted, once the job has finished.
    """
    if isinstance(spec, InvalidSpec) or plan.delete_job or conditions.is_ending(job.status):
        return plan
    readers = [pod for pod in pods if _digest_of(pod) and not has_ended(pod)]
    if not (readers or owned) and (not plan.create_pods or needs_no_config_map(job.metadata, spec, domain)):
        return plan
    deleted_pods = {deletion.pod.metadata.uid for deletion in plan.delete_pods}
    needed = {
        _digest_of(pod)
        for pod in readers
        if pod.metadata.deletion_timestamp is None and pod.metadata.uid not in deleted_pods
    }
    kept = {_digest_of(pod) for pod in readers}
    if not (spec.suspend or conditions.is_finished(job.status)):
        cluster = ClusterSpec(job.metadata, spec, domain)
        kept.add(cluster.digest)
        if any(cluster.is_shared_with(key.type) for key in plan.create_pods):
            needed.add(cluster.digest)
    present = {config_map.metadata.name for config_map in owned}
    names = {config_map_name(job.metadata.name, digest) for digest in kept}
    create = tuple(digest for digest in sorted(needed) if config_map_name(job.metadata.name, digest) not in present)
    delete = tuple(
        config_map
        for config_map in owned
        if config_map.metadata.name not in names and config_map.metadata.deletion_timestamp is None
    )
    return replace(plan, create_config_maps=create, delete_config_maps=delete) if create or delete else plan


def _digest_of(pod: Pod) -> str:
    """Return the hash of the ConfigMap that a pod reads, or "". Users can write any value to a label."""
    digest = (pod.metadata.labels or NO_LABELS).cluster_spec
    return digest if digest and _DIGEST.fullmatch(digest) else ""
