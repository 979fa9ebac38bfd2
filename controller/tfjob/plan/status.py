"""The status of a job during planning, and the facts it preserves. Pure.

A draft starts as the job's status. The planning functions modify it in place. At the end it is frozen into the status to write,
or None if nothing changed. It is used for one plan only.

The facts that outlive pods are finished replicas, restarts, and the spec with which the job started. The kubelet's restart
count is deleted with the pod, so our count must be written before that. One record counts the in-place restarts and recreations
of a replica and refers to the UID of its pod, so that a crash of the operator neither loses a restart nor counts it twice. A
record also states that the deletion of a pod was requested, since the pod may no longer show it (`stopped`).

`status.begun` contains a hash of each type's pod template, to detect that an edit does not apply to existing pods.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from tfjob_operator.api.core import EventType, PodRestartPolicy
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ON_HOLD, ConditionReason, ConditionType, EventReason, Network, RestartPolicy
from tfjob_operator.api.v1.indices import format_indices, parse_indices
from tfjob_operator.api.v1.tf_config import ClusterSpec
from tfjob_operator.api.v1.types import (
    AcceleratorPods,
    AvoidedNode,
    IndexRestarts,
    InvalidSpec,
    JobAttempt,
    JobStatus,
    ReplicaStatus,
    StartRecord,
    TFJob,
    TFJobSpec,
    execution_of,
)
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.controller.jobs.children import NO_LABELS, Pod
from tfjob_operator.controller.jobs.draft import Draft
from tfjob_operator.controller.jobs.pods import deletion_grace_exceeds_spec, native_sidecars
from tfjob_operator.controller.tfjob.build.builder import deciding_type
from tfjob_operator.controller.tfjob.plan.clocks import Fact, Observer
from tfjob_operator.controller.tfjob.plan.replicas import Finished, Outcome, Replica, count_pods, is_from_other_operator
from tfjob_operator.controller.tfjob.plan.silence import LogWatch
from tfjob_operator.controller.tfjob.plan.types import PlanInput

_HOLD_MESSAGES: Final = {
    ConditionReason.INVALID: f"{ON_HOLD}; the spec is invalid",
    ConditionReason.REFUSED: f"{ON_HOLD}; the API server rejected it",
    ConditionReason.TOO_LARGE: "keeps its current size: the requested size exceeds a limit",
}


def report_spec(draft: StatusDraft, spec: TFJobSpec | InvalidSpec) -> None:
    """Report changes of the spec. The draft must have its Created condition."""
    if isinstance(spec, InvalidSpec):
        _set_held(draft, spec.reason, spec.text)
        return
    _warn(draft, spec)
    if spec.too_large is not None:
        _set_held(draft, ConditionReason.TOO_LARGE, str(spec.too_large))
    elif conditions.is_true(draft, ConditionType.HELD):
        text = f"TFJob {draft.job.metadata.name} is resumed: the spec is valid again."
        draft.set_held(conditions.FALSE, ConditionReason.MENDED, text)
        draft.emit(EventType.NORMAL, ConditionReason.MENDED, text)


def _set_held(draft: StatusDraft, reason: ConditionReason, mistakes: str) -> None:
    """Report that the job is on hold, once for the same mistakes."""
    if draft.set_held(conditions.TRUE, reason, mistakes):
        draft.emit(EventType.WARNING, reason, f"TFJob {draft.job.metadata.name} {_HOLD_MESSAGES[reason]}: {mistakes}")


def _warn(draft: StatusDraft, spec: TFJobSpec) -> None:
    """Report the spec's warnings when it is first seen, and template warnings when Created is set."""
    job = draft.job
    if job.status.observed_generation != job.metadata.generation:
        for reason, message in spec.warnings:
            draft.emit(EventType.WARNING, reason, message)
    is_new = conditions.find(job.status.conditions, ConditionType.CREATED) is None
    if is_new and any(replica.overrides_template_policy for replica in spec.replicas.values()):
        text = "Restart policy in pod template will be overwritten by restart policy in replica spec"
        draft.emit(EventType.WARNING, EventReason.RESTART_POLICY_OVERWRITTEN, text)


FIRST_DELAY_S: Final = 10
LAST_DELAY_S: Final = 300
RESET_AFTER_S: Final = 600
"""The kubelet's restart back-off: none before the first restart, then 10 s, doubled each time up to 5 min; reset after running
for 10 min (kubernetes: pkg/kubelet/kubelet.go)."""


def next_delay(last_s: int, ran_s: float) -> int:
    """Return the delay of a restart after the first, in seconds, given the delay of the previous restart."""
    return 0 if ran_s >= RESET_AFTER_S else min(max(FIRST_DELAY_S, 2 * last_s), LAST_DELAY_S)


@dataclass(frozen=True, slots=True)
class Replacing:
    """The failed pods that are about to be replaced, by UID.

    Pods in `counted` failed by themselves. Pods in `ignored` did too, but a rule ignores them. `rules` are the rules that
    matched a pod. `delays`: restarts are delayed. Pods in `on_nodes` are counted in `avoided_nodes`.
    """

    counted: Collection[str] = ()
    ignored: Collection[str] = ()
    rules: Mapping[str, str] = field(default_factory=dict)
    delays: bool = False
    on_nodes: Collection[str] = ()


NOT_REPLACING: Final = Replacing()


def count_restarts(
    records: Iterable[IndexRestarts], replicas: Iterable[Replica], replacing: Replacing, now: datetime
) -> tuple[IndexRestarts, ...]:
    """Update the records from the existing pods.

    Idempotent: the same pods change nothing the second time, and counts never decrease. A record is moved to another pod only
    if that pod has something to count; the move must be confirmed, since that pod may be the older one (see `moved_records`).
    """
    found = {(record.type, record.index): record for record in records}
    counts, rules, on_nodes = replacing.counted, replacing.rules, replacing.on_nodes
    for replica in replicas:
        uid = replica.pod.metadata.uid
        place = (replica.type, replica.index)
        before = found.get(place) if found else None
        if before is not None and before.rule and before.pod != uid and replica.outcome is Outcome.ACTIVE:
            found[place] = msgspec.structs.replace(before, rule="")  # it is running again, in time
        in_place, fails = in_place_restarts(replica.pod), uid in counts
        stopped, rule = deletion_grace_exceeds_spec(replica.pod), rules.get(uid, "") if rules else ""
        on_node = uid in on_nodes
        if not (in_place or fails or stopped or rule or on_node):
            continue
        record = found.get(place, IndexRestarts(type=replica.type, index=replica.index, pod=uid))
        ignored = uid in replacing.ignored
        is_new = before is None or before.pod != uid
        if record.pod != uid:
            record = IndexRestarts(
                type=record.type,
                index=record.index,
                pod=uid,
                carried=record.total,
                failed_at=record.failed_at,
                next_time=record.next_time,
                rule=record.rule,
            )
        decided = not is_new and (record.replaced or record.rule)  # an edited rule does not let the pod fail again
        if (fails and not record.replaced) or (rule and record.rule != rule and not decided) or (ignored and is_new):
            repeated = bool(record.total) if fails else ignored and record.failed_at is not None
            record = _failing(record, replica, now, delays=replacing.delays and repeated)
        found[place] = msgspec.structs.replace(
            record,
            in_place=max(record.in_place, in_place),
            replaced=record.replaced or fails,
            stopped=record.stopped or stopped,
            rule=rule or record.rule,
            on_node=record.on_node or on_node,
        )
    return tuple(found[place] for place in sorted(found))


def _failing(record: IndexRestarts, replica: Replica, now: datetime, *, delays: bool) -> IndexRestarts:
    """Return the record of a replica whose pod has just failed, with the time of its next pod."""
    delay_s = 0
    if delays:
        before = record.next_time and record.failed_at and (record.next_time - record.failed_at).total_seconds()
        delay_s = next_delay(int(before or 0), replica.ran_s)
    return msgspec.structs.replace(
        record, failed_at=now, next_time=now + timedelta(seconds=delay_s) if delay_s else None
    )


def moved_records(before: Iterable[IndexRestarts], after: Iterable[IndexRestarts]) -> list[IndexRestarts]:
    """Return the records that were moved to another pod.

    A stale cache may show an older pod, whose restarts are already counted. So the API server must confirm that the pod exists.
    """
    pods = {(record.type, record.index): record.pod for record in before}
    return [record for record in after if pods.get((record.type, record.index), record.pod) != record.pod]


def reset_for_new_attempt(records: Iterable[IndexRestarts]) -> tuple[IndexRestarts, ...]:
    """Return the records without delays and escalations, which apply only to pods of the earlier attempt."""
    return tuple(msgspec.structs.replace(record, next_time=None, rule="") for record in records)


def merged(records: Iterable[IndexRestarts], others: Iterable[IndexRestarts]) -> tuple[IndexRestarts, ...]:
    """Merge two lists of records of the same replicas, either of which may be newer. No restart is counted twice or lost.

    For records of the same pod, the larger counts apply. For different pods, the record with the higher total is the later one,
    since each new pod carries the earlier counts. At equal totals, the record in `others` is the later one if its pod was
    stopped or is counted on its node: only that explains a new pod with the same total.
    """
    found = {(record.type, record.index): record for record in records}
    for other in others:
        place = (other.type, other.index)
        record = found.get(place, other)
        if record.pod == other.pod:
            found[place] = msgspec.structs.replace(
                record,
                carried=max(record.carried, other.carried),
                in_place=max(record.in_place, other.in_place),
                replaced=record.replaced or other.replaced,
                stopped=record.stopped or other.stopped,
                failed_at=record.failed_at or other.failed_at,
                next_time=record.next_time or other.next_time,
                rule=record.rule or other.rule,
                on_node=record.on_node or other.on_node,
            )
        elif other.total > record.total or ((other.stopped or other.on_node) and other.total == record.total):
            found[place] = other
    return tuple(found[place] for place in sorted(found))


def _merged_nodes(nodes: tuple[AvoidedNode, ...], others: tuple[AvoidedNode, ...]) -> tuple[AvoidedNode, ...]:
    """Merge two lists of avoided nodes: the larger counts and the later times apply."""
    if nodes == others:
        return nodes
    found = {node.name: node for node in nodes}
    for other in others:
        each = found.get(other.name, other)
        times = [time for time in (each.expiration_time, other.expiration_time) if time is not None]
        found[other.name] = AvoidedNode(other.name, max(each.failures, other.failures), max(times, default=None))
    return tuple(found.values())


def in_place_restarts(pod: Pod) -> int:
    """Return how often the kubelet restarted containers of this pod, including init containers.

    Native sidecars count too, except in pods with the policy Never: the kubelet restarts them even there.
    """
    return sum(restarts_by_container(pod).values())


def restarts_by_container(pod: Pod) -> dict[str, int]:
    """Return how often the kubelet restarted each container that counts and was restarted, see `in_place_restarts`."""
    spared = native_sidecars(pod.spec) if pod.spec.restart_policy == PodRestartPolicy.NEVER else frozenset()
    statuses = (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
    return {
        status.name: status.restart_count for status in statuses if status.restart_count and status.name not in spared
    }


SCHEME: Final = "1-"
"""The prefix of each hash. Increase it whenever pods hash differently than in the previous release: hashes of different schemes
are not comparable and would report a change that does not exist."""


def template_hashes(job: TFJob, spec: TFJobSpec) -> dict[str, str]:
    """Return a hash of the pods and services of each type, excluding their number."""
    cluster = ClusterSpec(job.metadata, spec)
    return {
        kind: f"{SCHEME}{zlib.crc32(ascii(_template_parts(cluster, spec, kind)).encode()):08x}"
        for kind in spec.replicas
    }


def has_current_scheme(noted: Mapping[str, str]) -> bool:
    """Return True if these hashes exist and use the current scheme; another release may have used a different one."""
    return bool(noted) and all(each.startswith(SCHEME) for each in noted.values())


def outdated_pods_warning(job: TFJob, spec: TFJobSpec, replicas: Iterable[Replica]) -> str:
    """Return a warning about pods that were created before an edit and do not match it; "" if none.

    `replicas` are those still running. Returns "" if no hashes were recorded, or only hashes of another scheme.
    """
    noted = job.status.begun.made_of if job.status.begun is not None else {}
    if not has_current_scheme(noted) or job.status.observed_generation == job.metadata.generation:
        return ""
    current, present = template_hashes(job, spec), {replica.type for replica in replicas}
    outdated = [kind for kind, each in current.items() if kind in present and noted.get(kind, each) != each]
    if not outdated:
        return ""
    keep = "existing pods keep their old template, restart policy and TF_CONFIG"
    # Kueue resumes a suspended job at once.
    how = "Run kubectl tfjob restart" if c.LABEL_QUEUE in (job.metadata.labels or {}) else "Suspend and resume the job"
    return f"{', '.join(outdated)}: {keep}. {how} to recreate them."


def _template_parts(cluster: ClusterSpec, spec: TFJobSpec, kind: str) -> tuple[object, ...]:
    replica = spec.replicas[kind]
    policy = str(replica.restart_policy)
    if policy in {RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE} and spec.has_rules_for(kind):
        policy = f"{policy}, by the operator"  # editing rules does not change the policy of existing pods
    return replica.digest, policy, deciding_type(spec.replicas) == kind, _tf_config_inputs(cluster, spec, kind)


def _tf_config_inputs(cluster: ClusterSpec, spec: TFJobSpec, kind: str) -> tuple[object, ...]:
    """Return the inputs of a type's TF_CONFIG. A TF_CONFIG that the template itself sets is part of the template."""
    if cluster.is_alone or c.TF_CONFIG in spec.replicas[kind].template.sets:
        return ()
    named = spec.replicas if cluster.gets_whole_cluster(kind) else {c.PS} if kind == c.WORKER else ()
    sizes = [
        (each, spec.replicas[each].replicas, spec.replicas[each].template.port)
        for each in sorted(named)
        if each in spec.replicas
    ]
    return (cluster.gets_whole_cluster(kind), *sizes)


def finished_indices(status: JobStatus, sizes: Mapping[str, int], replicas: Sequence[Replica]) -> Finished:
    """Return the replicas that have succeeded, according to the status or to their pods."""
    found = {name: parse_indices(status.finished_indices.get(name, ""), size) for name, size in sizes.items()}
    for replica in replicas:
        if replica.outcome is Outcome.SUCCEEDED:
            found[replica.type].add(replica.index)
    if is_from_other_operator(status):
        for name, size in sizes.items():
            found[name].update(
                _finished_elsewhere(status, name, size, [each for each in replicas if each.type == name])
            )
    return found


def _finished_elsewhere(status: JobStatus, name: str, size: int, replicas: Iterable[Replica]) -> Collection[int]:
    """Return the replicas of a type that succeeded under another operator, and whose pods are gone since.

    Other operators record only how many have succeeded, and recreate a pod that is gone. So if as many pods are missing as
    succeeded ones, they went while no operator ran. If more are missing, it is unknown which of them have succeeded. A pod that
    failed may be one that had succeeded, and was changed by a restarted kubelet.
    """
    recorded = status.replica_statuses.get(name)
    if recorded is None or not recorded.succeeded:
        return ()
    missing = set(range(size))
    ended = 0
    for replica in replicas:
        missing.discard(replica.index)
        ended += replica.outcome in {Outcome.SUCCEEDED, Outcome.FAILED}
    return missing if len(missing) <= recorded.succeeded - ended else ()


def merged_finished_indices(status: JobStatus, finished: Finished) -> dict[str, str]:
    """Return the finished indices to write. Those beyond the current size of a type that was scaled down are kept."""
    written = dict(status.finished_indices)
    for name, indices in finished.items():
        beyond = parse_indices(written.get(name, ""), below=MAX_REPLICAS)
        if indices or beyond:
            written[name] = format_indices(indices | beyond)
    return written


def has_started(status: JobStatus, *, has_children: bool) -> bool:
    """Return True if pods were created for the job, or were about to be. Older operators did not record this.

    `has_children` is true if a pod or service exists now. A pod created before the first status was written may be gone.
    """
    recorded = status.begun is not None or status.finished_indices or status.restarts
    return bool(recorded or has_children or _has_run(status))


def _has_run(status: JobStatus) -> bool:
    """Return True if pods have run, or have failed before: a job can become Restarting before it ever was Running."""
    return any(condition.type in {ConditionType.RUNNING, ConditionType.RESTARTING} for condition in status.conditions)


def start_record(job: TFJob, spec: TFJobSpec, *, has_children: bool, will_create_pods: bool) -> StartRecord | None:
    """Return the value of `status.begun`.

    It is part of the first status, so it needs no extra write. In a burst, it may be written after the first pods are created.
    """
    found = _record_of(job, spec, has_children=has_children, will_create_pods=will_create_pods)
    return found and msgspec.structs.replace(found, made_of=_recorded_hashes(job, spec))


def _record_of(job: TFJob, spec: TFJobSpec, *, has_children: bool, will_create_pods: bool) -> StartRecord | None:
    before = job.status.begun
    if spec.too_large is not None:
        return before  # the size to which it is limited
    if before is not None:
        return msgspec.structs.replace(before, replicas=spec.sizes)
    network = "" if spec.network is Network.PER_REPLICA else spec.network
    if has_started(job.status, has_children=has_children):
        # If a status exists, another operator wrote it, and later edits are unknown. No start deadline applies then.
        generation = 0 if job.status.conditions else job.metadata.generation
        return StartRecord(generation, spec.sizes, network, all_ran=_has_run(job.status))
    return StartRecord(job.metadata.generation, spec.sizes, network) if will_create_pods else None


def _recorded_hashes(job: TFJob, spec: TFJobSpec) -> dict[str, str]:
    """Return the pods' hashes, computed only for a new generation or scheme: computing takes as long as planning."""
    noted = job.status.begun.made_of if job.status.begun is not None else {}
    if has_current_scheme(noted) and job.status.observed_generation == job.metadata.generation:
        return noted
    return template_hashes(job, spec)


def merged_status(status: JobStatus, observed: JobStatus) -> JobStatus:
    """Merge the facts in two statuses (finished replicas, restarts, the start); either may be newer.

    `observed` may be computed from an older version of the job: another operator process may have written since.
    """
    begun = _merged_begun(status, observed)
    # Restarting the whole job may rerun finished replicas, and use all nodes again.
    if status.attempt != observed.attempt:
        older, newer = sorted((status, observed), key=lambda each: each.attempt)
        records = merged(reset_for_new_attempt(older.restarts), newer.restarts)
        status = msgspec.structs.replace(status, **{name: getattr(newer, name) for name in _ATTEMPT_FIELDS})
        finished_indices, avoided_nodes = newer.finished_indices, newer.avoided_nodes
    else:
        finished_indices = _merged_indices(status, observed)
        records = merged(status.restarts, observed.restarts)
        avoided_nodes = _merged_nodes(status.avoided_nodes, observed.avoided_nodes)
    return msgspec.structs.replace(
        status,
        observed_restart_request=status.observed_restart_request or observed.observed_restart_request,
        finished_indices=finished_indices,
        restarts=records,
        begun=begun,
        avoided_nodes=avoided_nodes,
    )


_ATTEMPT_FIELDS: Final = (
    "attempt",
    "counted_restarts",
    "observed_restart_request",
    "next_restart_time",
    "attempt_history",
    "execution_attempt",
)


def _merged_indices(status: JobStatus, observed: JobStatus) -> dict[str, str]:
    finished = {
        name: set().union(
            *(parse_indices(each.finished_indices.get(name, ""), below=MAX_REPLICAS) for each in (status, observed))
        )
        for name in status.finished_indices | observed.finished_indices
    }
    return {name: format_indices(indices) for name, indices in finished.items()}


def _merged_begun(status: JobStatus, observed: JobStatus) -> StartRecord | None:
    """Return the lower generation, the sizes of the later spec, and the state of the later attempt.

    The hashes are those of `status`: the user is warned about outdated pods only when `observed` is written. So is the end: one
    that was decided but not written is decided again, since others may have changed the job.
    """
    if observed.begun is None:
        return status.begun
    if status.begun is None:
        return msgspec.structs.replace(observed.begun, ending=None)
    newer = observed if observed.observed_generation > status.observed_generation else status
    generation = min(status.begun.generation, observed.begun.generation)
    last = observed.begun if observed.attempt > status.attempt else status.begun
    return msgspec.structs.replace(
        newer.begun or status.begun,
        generation=generation,
        made_of=status.begun.made_of,
        ending=status.begun.ending,
        delay_s=last.delay_s,
        all_ran=last.all_ran or (status.attempt == observed.attempt and observed.begun.all_ran),
    )


_DRAFT_FIELDS: Final = {"conditions", "start_time", "completion_time"}
_WRITE_FIELDS: Final = {"last_reconcile_time", "observed_generation", "phase"}
_KEPT: Final = tuple(x for x in JobStatus.__struct_fields__ if x not in _DRAFT_FIELDS | _WRITE_FIELDS)
"""The status fields that a plan preserves unless it changes them."""


class StatusDraft(Draft):
    """A status being computed, and the events for its changes.

    Invariants: the job does not change; an event is emitted together with the change it reports.
    """

    __slots__ = ("expected", "job", "log_watch", "logs", "observer", "failed_creates", "waits", *_KEPT)
    replica_statuses: dict[str, ReplicaStatus]
    finished_indices: dict[str, str]
    restarts: tuple[IndexRestarts, ...]
    begun: StartRecord | None
    worker_selector: str
    attempt: int
    counted_restarts: int
    observed_restart_request: str
    next_restart_time: datetime | None
    attempt_history: tuple[JobAttempt, ...]
    avoided_nodes: tuple[AvoidedNode, ...]
    execution_attempt: int
    accelerator_seconds: dict[str, dict[str, int]]
    accelerator_pods: AcceleratorPods | None

    def __init__(self, inputs: PlanInput, *, waits: bool = False) -> None:
        """Start from the status of the job. `waits`: no pod may be created."""
        job = inputs.job
        status = job.status
        super().__init__(status.conditions, status.start_time, status.completion_time, inputs.now)
        self.events += inputs.unreported
        self.job = job
        self.waits = waits
        self.failed_creates = inputs.blocked.failed
        self.expected = inputs.expected
        self.observer = Observer(inputs.first_seen, inputs.now, inputs.monotonic_s)
        self.logs = inputs.logs
        self.log_watch: LogWatch | None = None
        for name in _KEPT:
            setattr(self, name, getattr(status, name))

    def set_false(self, condition: ConditionType, reason: ConditionReason, message: str) -> None:
        """Set a True condition to False, by the rules of `conditions.set_false`."""
        self.conditions = conditions.set_false(self.conditions, condition, reason, message, self.timestamp)

    def set_stalled(self, status: str, reason: ConditionReason, message: str) -> None:
        """Set Stalled to True or False."""
        kind = ConditionType.STALLED
        self.conditions = conditions.set_aside(self.conditions, kind, status, reason, message, self.timestamp)

    def create(self) -> None:
        """Set Created, and the selector for autoscalers in the scale subresource."""
        name, kind = c.LABEL_PREFIX + c.LABEL_JOB_NAME, c.LABEL_PREFIX + c.LABEL_REPLICA_TYPE
        self.worker_selector = f"{name}={self.job.metadata.name},{kind}={c.WORKER.lower()}"
        self.set_true(ConditionType.CREATED, ConditionReason.CREATED, f"TFJob {self.job.metadata.name} is created.")

    def start(self, pods: Iterable[Pod] = ()) -> None:
        """Set the start time, unless the job is waiting."""
        if not self.waits:
            super().start(pods)

    def begin_execution(self) -> None:
        """Count a new execution of the whole job, in the write that precedes its first pod."""
        self.execution_attempt = execution_of(self.attempt, self.execution_attempt) + 1

    def restore_execution(self, pods: Iterable[Replica]) -> None:
        """Continue with the number in the labels of the pods, if a release that does not know it dropped it from the status."""
        known = execution_of(self.attempt, self.execution_attempt)
        labels = {(pod.pod.metadata.labels or NO_LABELS).execution for pod in pods} - {"", str(known)}
        found = max((c.attempt_in(label, known) for label in labels), default=0)
        if found > known:
            self.execution_attempt = found

    def first_seen(self, pod: Pod) -> datetime:
        """Return when this process first saw the pod."""
        return self.observer.first_seen(Fact.POD, pod.metadata.uid, pod.metadata.creation_timestamp)

    @property
    def has_delays(self) -> bool:
        """True if pods may be missing because a restart is delayed."""
        whole = self.next_restart_time is not None or (self.begun is not None and self.begun.delay_s > 0)
        return whole or (bool(self.restarts) and any(record.next_time is not None for record in self.restarts))

    def record(self, replicas: Sequence[Replica], finished: Finished, replacing: Replacing = NOT_REPLACING) -> None:
        """Record counters, finished replicas and restarts from the pods."""
        self.replica_statuses = count_pods(replicas, finished)
        self.finished_indices = merged_finished_indices(self.job.status, finished)
        self.restarts = count_restarts(self.job.status.restarts, replicas, replacing, self.timestamp)

    def freeze(self) -> JobStatus | None:
        """Return the status to write, or None if nothing changed, so that an idle job costs no request."""
        before = self.job.status
        status = JobStatus(
            conditions=self.conditions,
            start_time=self.start_time,
            completion_time=self.completion_time,
            last_reconcile_time=before.last_reconcile_time,
            observed_generation=self.job.metadata.generation,
            **{name: getattr(self, name) for name in _KEPT},
        )
        return None if status == before else msgspec.structs.replace(status, last_reconcile_time=self.timestamp)
