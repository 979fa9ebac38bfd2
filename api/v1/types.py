"""kubeflow.org/v1 TFJob: the cached object, its status, its checked specification, and the names of its children.

There are two layers. `TFJob` is what a list or watch decodes to: its `spec` stays undecoded, so an invalid one cannot
break the cache. `api.v1.validation.read_spec` turns it into a `TFJobSpec`, checked and with defaults, or into an
`InvalidSpec` with the errors and all fields that could be read.

Sets of replica indices are written as "0,2-4", which is short even for a job of a thousand workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

import msgspec

from tfjob_operator.api.meta import JSON, ObjectMeta, Struct
from tfjob_operator.api.v1.constants import (
    ANNOTATION_RESTART,
    DEFAULT_PORT,
    PORT_NAME,
    TCP,
    TFJOBS,
    CleanPodPolicy,
    ConditionReason,
    EventReason,
    FailureReason,
    Network,
    RestartPolicy,
    RuleAction,
    SuccessPolicy,
)


class JobCondition(Struct, frozen=True):
    """A condition. The order of conditions is part of the API: clients and the STATE column read the last one."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_update_time: datetime | None = None
    last_transition_time: datetime | None = None


class ReplicaStatus(Struct, frozen=True, omit_defaults=False):
    """The number of active, succeeded and failed pods of one replica type."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0


class IndexRestarts(Struct, frozen=True):
    """The restarts of a replica by the operator and the kubelet. Only replicas that were restarted or stopped have a record.

    `pod` is the UID of a pod. `carried` counts the restarts before this pod, and `in_place` counts those by the kubelet in this
    pod. `replaced`: the pod failed, was counted, and is to be replaced, so it is not counted again. `stopped`: the pod was
    deleted with a longer grace period than its spec has. This is recorded because the pod no longer shows when it was deleted
    after the period has been shortened. `failed_at` is when the operator observed the last failure of the program; the next pod
    is created at `next_time` at the earliest. `rule` is the rule that restarted the replica, if it has an escalation.
    `on_node`: the end of this pod is counted in `avoided_nodes`.
    """

    type: str
    index: int
    pod: str = ""
    carried: int = 0
    in_place: int = 0
    replaced: bool = False
    stopped: bool = False
    failed_at: datetime | None = None
    next_time: datetime | None = None
    rule: str = ""
    on_node: bool = False

    @property
    def total(self) -> int:
        """All restarts of this replica."""
        return self.carried + self.in_place + self.replaced


class JobAttempt(Struct, frozen=True):
    """A finished attempt at running the whole job, and the failure that ended it.

    An attempt that a user ended by requesting a restart has no `action` and no failed replica. `container_name` is the
    container that failed, with its `exit_code` and termination `message`; if a reason of the whole pod ended it, such as an
    eviction, `message` is about that.
    """

    number: int = 0
    start_time: datetime | None = None
    end_time: datetime | None = None
    reason: str = ""
    rule: str = ""
    action: str = ""
    replica_type: str = ""
    replica_index: int | None = None
    pod_name: str = ""
    node_name: str = ""
    container_name: str = ""
    exit_code: int | None = None
    message: str = ""


class AvoidedNode(Struct, frozen=True):
    """A node on which the job failed: how often, and until when it is avoided (None if it is not avoided yet).

    The first failure on a node does not count if the program caused it; such an entry has 0 `failures`.
    """

    name: str = ""
    failures: int = 0
    expiration_time: datetime | None = None


class RunningPods(Struct, frozen=True):
    """Pods of one type with the same extended resources whose seconds are not counted yet.

    `since` maps the times when their kubelets accepted them, in Unix time, to their indices, as "0,2-4".
    """

    type: str
    resources: dict[str, int]
    since: dict[str, str]


class AcceleratorPods(Struct, frozen=True):
    """What prevents that a pod with accelerators is counted twice or not at all (`plan/accelerators.py`).

    `counted` identifies the pods that are counted and still exist, or may appear again.
    """

    running: tuple[RunningPods, ...] = ()
    counted: tuple[str, ...] = ()


def by_outcome(seconds: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, str, int]]:
    """Yield resource, outcome and seconds of `acceleratorSeconds`."""
    for resource, outcomes in seconds.items():
        for outcome, number in outcomes.items():
            yield resource, outcome, number


class EndRecord(Struct, frozen=True):
    """How a job ends. It is written when that is decided, at the latest together with the final condition, and stays.

    `type`, `reason` and `message` are those of the final condition. `event` is the reason of its event: the limit, if the job
    exceeded one. `time` is when the operator decided. `completion_time` and `replica_statuses` are the values of the status at
    the end. `clean_pod_policy` applies if that of the spec becomes unreadable. `failure` is the last attempt with its failure,
    if a replica failed or, at the start deadline, did not run.
    """

    type: str = ""
    reason: str = ""
    message: str = ""
    event: str = ""
    time: datetime | None = None
    completion_time: datetime | None = None
    replica_statuses: dict[str, ReplicaStatus] = msgspec.field(default_factory=dict)
    clean_pod_policy: str = ""
    failure: JobAttempt | None = None


class StartRecord(Struct, frozen=True):
    """Set once a job has started: pods were created for it, or were about to be.

    From then on, an invalid spec does not fail the job. `generation` is the job's generation at that time, or 0 if an older
    operator, which did not record it, started the job. `replicas` are the numbers of replicas by type in the newest valid spec.
    `network` is the network with which the job started, "" for a Service per replica. `made_of` has, for each type, a hash of
    what its pods were created from (`plan/status.py`). `delay_s` is how long the current attempt waited for its pods;
    `all_ran`: all its replicas have run at the same time. `ending` is None until the end of the job is decided. It is a field
    of this record since all CRDs of this operator preserve unknown fields here.
    """

    generation: int = 0
    replicas: dict[str, int] = msgspec.field(default_factory=dict)
    network: str = ""
    made_of: dict[str, str] = msgspec.field(default_factory=dict)
    delay_s: int = msgspec.field(default=0, name="delaySeconds")
    all_ran: bool = False
    ending: EndRecord | None = None


class JobStatus(Struct, frozen=True):
    """The status subresource.

    `finished_indices` are the replicas that have succeeded, by type, as "0,2-4"; they are never run again. `restarts` is what
    `backoffLimit` counts. `worker_selector` selects the pods of the workers, for autoscalers. `begun` is None until the job has
    started. `phase` is written only by the controller of the alpha dialect, which manages all jobs that have a phase.
    `execution_attempt` is not written before it exceeds 0. `accelerator_seconds` are the seconds of ended pods, by extended
    resource and `AcceleratorOutcome`.
    """

    conditions: tuple[JobCondition, ...] = ()
    replica_statuses: dict[str, ReplicaStatus] = msgspec.field(default_factory=dict)
    finished_indices: dict[str, str] = msgspec.field(default_factory=dict)
    restarts: tuple[IndexRestarts, ...] = ()
    begun: StartRecord | None = None
    worker_selector: str = ""
    start_time: datetime | None = None
    completion_time: datetime | None = None
    last_reconcile_time: datetime | None = None
    observed_generation: int = 0
    phase: str = ""
    attempt: int = 0
    counted_restarts: int = 0
    observed_restart_request: str = ""
    next_restart_time: datetime | None = None
    attempt_history: tuple[JobAttempt, ...] = ()
    avoided_nodes: tuple[AvoidedNode, ...] = ()
    execution_attempt: int = 0
    accelerator_seconds: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    accelerator_pods: AcceleratorPods | None = None


def execution_of(attempt: int, execution_attempt: int) -> int:
    """Return the number of the present execution. A release without `executionAttempt` may have counted attempts."""
    return max(attempt, execution_attempt)


class JobAnnotations(Struct, frozen=True):
    """The annotations of a job that the operator reads."""

    restart_requested_at: str = msgspec.field(default="", name=ANNOTATION_RESTART)


_ABSENT: Final = msgspec.Raw()
_annotations: Final = msgspec.json.Decoder(JobAnnotations | None)


class JobMeta(ObjectMeta, frozen=True):
    """Metadata of a job.

    `size` is the number of bytes of its annotations and managedFields, which share the limit of an object with the status. Only
    the size is kept: `kubectl apply` stores the whole spec in an annotation.
    """

    annotations: JobAnnotations | None = msgspec.field(default=None, name="(annotations)")
    size: int = msgspec.field(default=0, name="(size)")
    raw_annotations: msgspec.Raw = msgspec.field(default=_ABSENT, name="annotations")
    managed_fields: msgspec.Raw = _ABSENT

    def __post_init__(self) -> None:
        raw, managed = self.raw_annotations, self.managed_fields
        if not (raw or managed):
            return
        set_ = msgspec.structs.force_setattr
        if raw:
            set_(self, "annotations", _annotations.decode(raw))
            set_(self, "raw_annotations", _ABSENT)
        set_(self, "managed_fields", _ABSENT)
        set_(self, "size", len(raw) + len(managed))


class TFJob(Struct, frozen=True, tag_field="kind", tag=TFJOBS.kind):
    """A TFJob as it is cached."""

    metadata: JobMeta
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: JobStatus = JobStatus()

    def __post_init__(self) -> None:
        # A Raw is a view into its buffer, which may be a whole list page: copy only our bytes.
        msgspec.structs.force_setattr(self, "spec", self.spec.copy())


def tfjob_with_unreadable_status(raw: bytes, _error: Exception) -> TFJob:
    """Return a job whose status cannot be decoded, with the status fields that show the job's progress.

    The status is rewritten. The conditions are kept, so that a finished job never runs again, and the phase, which
    operators of the alpha dialect have written. Only a status written while the CRD had no schema can be unreadable. Raises
    msgspec.ValidationError if the metadata cannot be decoded either, which an API server prevents.
    """
    return with_readable_status(raw, TFJob, "conditions", "phase")


J = TypeVar("J", bound=Struct)


def with_readable_status(raw: bytes, kind: type[J], *fields: str) -> J:
    """Decode a job, keeping those of the given status fields that can be decoded.

    Raises msgspec.ValidationError for errors outside the status.
    """
    parts = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    status = parts.pop("status", msgspec.Raw(b"null"))
    found = msgspec.json.decode(msgspec.json.encode(parts), type=kind)
    readable: dict[str, msgspec.Raw] = {}
    with suppress(msgspec.ValidationError):  # not an object
        given = msgspec.json.decode(status, type=dict[str, msgspec.Raw])
        for field in given.keys() & fields:
            with suppress(msgspec.ValidationError):
                more = readable | {field: given[field]}
                found = msgspec.json.decode(msgspec.json.encode(parts | {"status": more}), type=kind)
                readable = more
    return found


class Port(NamedTuple):
    """A port of the training container."""

    name: str
    number: int
    protocol: str = TCP


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """The facts about a pod template that stay in memory. The defaults apply to a template that sets none of these fields."""

    ports: tuple[Port, ...] = (Port(PORT_NAME, DEFAULT_PORT),)
    sets: frozenset[str] = frozenset()
    scheduler_name: str = ""
    has_topology: bool = False

    @property
    def port(self) -> int:
        """The port on which the replica listens: the one named `tfjob-port`, or 2222."""
        return next(port.number for port in self.ports if port.name == PORT_NAME)


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """An entry of `tfReplicaSpecs` with defaults. The template itself stays undecoded in the job (`templates_of`).

    `overrides_template_policy`: the pod template has a different restart policy, which is ignored. `digest` is a hash
    of the whole template.
    """

    type: str
    replicas: int
    restart_policy: RestartPolicy
    template: TemplateFacts = TemplateFacts()
    overrides_template_policy: bool = False
    digest: int = 0


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """The gang scheduling settings of a job; None and "" mean not set, `min_resources` is as the user wrote it."""

    min_available: int | None = None
    queue: str = ""
    min_resources: JSON | None = None
    priority_class: str = ""
    schedule_timeout_s: int | None = None


class ExitCodes(NamedTuple):
    """Match exit codes of `container` (any container if ""): those in `values`, or if `others`, all but those and 0."""

    values: frozenset[int]
    others: bool = False
    container: str = ""

    def matches(self, container: str, exit_code: int) -> bool:
        """Return True if this exit of a container matches."""
        if exit_code == 0 or self.container not in {"", container}:
            return False
        return (exit_code in self.values) is not self.others


class ConditionPattern(NamedTuple):
    """A condition of a pod or a node, with its status."""

    type: str
    status: str


class TaintPattern(NamedTuple):
    """A taint of a node; an empty value or effect matches any."""

    key: str
    value: str = ""
    effect: str = ""


class Escalation(NamedTuple):
    """The action if a restarted replica does not run again in time."""

    after_s: int
    action: RuleAction


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the failure policy. `targets` are replica types.

    At most one matcher is set; a rule without one matches every failure.
    """

    name: str
    action: RuleAction
    targets: frozenset[str]
    exit_codes: ExitCodes | None = None
    pod_conditions: tuple[ConditionPattern, ...] = ()
    reasons: frozenset[FailureReason] = frozenset()
    node_conditions: tuple[ConditionPattern, ...] = ()
    node_taints: tuple[TaintPattern, ...] = ()
    escalation: Escalation | None = None

    @property
    def is_about_nodes(self) -> bool:
        """True if the rule matches unhealthy nodes, whose pods may still run."""
        return bool(self.node_conditions or self.node_taints)

    @property
    def matches_all(self) -> bool:
        """True if the rule matches every failure of its targets."""
        return not (self.exit_codes or self.pod_conditions or self.reasons or self.is_about_nodes)

    @property
    def matcher(self) -> tuple[object, ...]:
        """The matcher, for comparisons."""
        return self.exit_codes, self.pod_conditions, self.reasons, self.node_conditions, self.node_taints


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """The failure policy of a job. `keeps_finished`: restarting the whole job does not run succeeded replicas again."""

    rules: tuple[Rule, ...]
    max_restarts: int | None = None
    keeps_finished: bool = False

    @property
    def targets(self) -> frozenset[str]:
        """The replica types that any rule applies to."""
        return frozenset().union(*(rule.targets for rule in self.rules))

    def unreachable(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each rule that can never apply, and of the earlier rule that matches all of its failures."""
        for number, rule in enumerate(self.rules):
            for earlier in self.rules[:number]:
                covers = earlier.matcher == rule.matcher or (earlier.matches_all and not rule.is_about_nodes)
                if covers and rule.targets <= earlier.targets:
                    yield rule.name, earlier.name
                    break


class NodeAvoidance(NamedTuple):
    """After how many failures a job avoids a node, and for how long."""

    threshold: int = 1
    expiration_s: int = 3600


class SpecWarning(NamedTuple):
    """A valid but probably unintended setting: the reason and message of a Warning event."""

    reason: EventReason
    message: str


class Mistake(NamedTuple):
    """An error in a specification, and its field.

    `path` is "" if only the API server's message is known.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def format_errors(mistakes: Iterable[Mistake], more: int) -> str:
    """Format errors as one line, with the number of `more` errors that were not kept. Nothing else formats them."""
    rest = [f"and {more} more"] if more else []
    return "; ".join([*map(str, mistakes), *rest])


@dataclass(frozen=True, slots=True)
class TFJobSpec:
    """A checked specification with defaults, its replicas in the order of `REPLICA_TYPES`."""

    replicas: Mapping[str, ReplicaSpec]
    clean_pod_policy: CleanPodPolicy
    success_policy: SuccessPolicy
    managed_by: str
    backoff_limit: int | None = None
    active_deadline_s: int | None = None
    ttl_s: int | None = None
    suspend: bool = False
    dynamic_workers: bool = False
    scheduling: SchedulingPolicy = SchedulingPolicy()
    network: Network = Network.PER_REPLICA
    failure_policy: FailurePolicy | None = None
    node_avoidance: NodeAvoidance | None = None
    node_lost_timeout_s: int | None = None
    start_deadline_s: int | None = None
    progress_deadline_s: int | None = None
    completion_grace_s: int | None = None
    sets_clean_pod_policy: bool = False
    """True if the policy was set explicitly."""
    warnings: tuple[SpecWarning, ...] = ()
    """Reported once per generation: fields that are set twice with different values, unknown fields, no replicas."""
    misspelled_types: tuple[str, ...] = ()
    """The keys of replica types that are not spelled as in `REPLICA_TYPES`."""
    too_large: Mistake | None = None
    """The limit that the requested size exceeds; it is set if the job keeps its previous size."""

    @property
    def has_node_rules(self) -> bool:
        """True if a rule matches unhealthy nodes, which concerns running pods."""
        return self.failure_policy is not None and any(rule.is_about_nodes for rule in self.failure_policy.rules)

    def has_rules_for(self, kind: str) -> bool:
        """Return True if rules apply to a replica type, whose pods are therefore created with the restart policy Never."""
        return self.failure_policy is not None and kind in self.failure_policy.targets

    @property
    def total_replicas(self) -> int:
        """The total number of replicas."""
        return sum(replica.replicas for replica in self.replicas.values())

    @property
    def sizes(self) -> dict[str, int]:
        """The number of replicas by type."""
        return {name: replica.replicas for name, replica in self.replicas.items()}


@dataclass(frozen=True, slots=True)
class InvalidSpec:
    """A specification with at least one error, and the fields that could be read.

    An unreadable field sets no limit: an error must not end a job or delete running pods. `clean_pod_policy` is None if it
    cannot be read. `more` errors were not kept in `mistakes`. `reason` is the reason of the job's condition.
    """

    mistakes: tuple[Mistake, ...]
    more: int = 0
    managed_by: str = ""
    suspend: bool = False
    active_deadline_s: int | None = None
    ttl_s: int | None = None
    clean_pod_policy: CleanPodPolicy | None = None
    reason: ConditionReason = ConditionReason.INVALID

    @property
    def text(self) -> str:
        """All errors in one line."""
        return format_errors(self.mistakes, self.more)

    @classmethod
    def of(
        cls, spec: TFJobSpec | InvalidSpec, mistake: Mistake, reason: ConditionReason = ConditionReason.INVALID
    ) -> InvalidSpec:
        """Return `spec`, which was already read, as an invalid specification with this error."""
        return cls(
            (mistake,),
            reason=reason,
            managed_by=spec.managed_by,
            suspend=spec.suspend,
            active_deadline_s=spec.active_deadline_s,
            ttl_s=spec.ttl_s,
            clean_pod_policy=spec.clean_pod_policy,
        )


def child_name(job: str, replica_type: str, index: int) -> str:
    """Return the name of a replica's pod and Service."""
    return f"{job}-{replica_type.lower()}-{index}"
