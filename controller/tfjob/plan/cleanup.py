"""What happens once the end of a job is decided: the record, the final condition, clean-up, and the TTL. Pure.

The end is recorded before anything acts on it, and nothing reverts it: no edit, rule, restart, suspension or limit. Usually the
record and the final condition are one write, since an end never waits for a pod. A job with a queue label is the exception:
Kueue frees its quota as soon as it has the condition. So only the record is written at first, and the condition once no pod of
the job holds quota. A pod that does not end is given up some time after it was asked to end.

Pods with a terminal phase are not deleted before the condition is written. So an operator without the record, such as an older
release, decides the same from these pods and the finished indices.

A pod whose training has ended while another ordinary container still works, such as a metrics collector or an uploader, is
deleted only after a grace period, at every end and restart. It starts when this operator recorded the end or the failure, so it
cannot begin again, and no other machine's clock affects it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import (
    LIMITS,
    CleanPodPolicy,
    ConditionReason,
    ConditionType,
    EventReason,
    limit_of,
)
from tfjob_operator.api.v1.indices import parse_indices
from tfjob_operator.api.v1.name_ranges import ranges_of
from tfjob_operator.api.v1.types import EndRecord, InvalidSpec, JobAttempt, ReplicaStatus, StartRecord, TFJobSpec
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.tfjob.plan.clocks import Fact
from tfjob_operator.controller.tfjob.plan.ending import Ending, exit_event, failure_between_runs, whole_seconds_left
from tfjob_operator.controller.tfjob.plan.replicas import (
    Observed,
    Outcome,
    Replica,
    count,
    count_unended,
    is_from_other_operator,
)
from tfjob_operator.controller.tfjob.plan.status import StatusDraft
from tfjob_operator.controller.tfjob.plan.types import Defaults, Plan, PodDeletion

GIVE_UP_S: Final = 60
"""How long a deleted pod may take beyond its grace period before the end of the job stops waiting for it. A kubelet needs
seconds, and the pod of a lost node may stay for minutes."""
MAX_NAMED: Final = 16
"""A Warning names up to this many pods."""


def wait_for_workers_s(
    draft: StatusDraft, spec: TFJobSpec, ending: Ending, replicas: Iterable[Replica]
) -> float | None:
    """Return how long to wait for running workers before deciding a success: at most `completionGracePeriodSeconds`.

    The time counts from when this process first saw the success. None if the end is decided now. Until then edits and
    suspension take effect.
    """
    if spec.completion_grace_s is None or ending.condition is not ConditionType.SUCCEEDED or ending.at is None:
        return None
    since = draft.observer.first_seen(Fact.SUCCEEDED, time=ending.at)
    remaining_s = whole_seconds_left(spec.completion_grace_s, since, draft.now)
    return remaining_s if remaining_s > 0 and any(map(_is_working, replicas)) else None


def _is_working(replica: Replica) -> bool:
    return replica.type == c.WORKER and replica.outcome is Outcome.ACTIVE and not replica.terminating


def pods_to_clean_up(policy: str, replicas: Iterable[Replica]) -> list[Replica]:
    """Return the pods to delete after the end: under All every pod, under None no pod, under Running unfinished pods."""
    if policy == CleanPodPolicy.NONE:
        return []
    # Depends on the pod and not on the replica's outcome: a sidecar of a finished replica may still use CPU.
    return [replica for replica in replicas if policy == CleanPodPolicy.ALL or not replica.has_ended]


def sidecar_grace_s(spec: TFJobSpec | InvalidSpec, defaults: Defaults) -> int:
    """Return for how many seconds a pod is kept for its other containers after its training has ended."""
    if isinstance(spec, InvalidSpec) or spec.completion_grace_s is None:
        return defaults.completion_grace_s
    return spec.completion_grace_s


def kept_s(
    draft: StatusDraft, replicas: Iterable[Replica], grace_s: int, decided: datetime | None = None
) -> dict[str, float]:
    """Return which of these pods are kept for their other containers, by UID, and for how many seconds from now.

    `decided` is when the end was decided, if it was. The grace period starts at the earliest of three times that the operator
    recorded: that one, the failure of the replica, and the end of the pod's attempt.
    """
    lingering = [replica for replica in replicas if grace_s and replica.lingers]
    if not lingering:
        return {}
    # A record that was moved to the next pod still has the time of the earlier failure.
    failures = {record.pod: record.failed_at for record in draft.restarts if record.replaced or record.rule}
    attempts = {attempt.number: attempt.end_time for attempt in draft.attempt_history}
    kept: dict[str, float] = {}
    for replica in lingering:
        times = (decided, failures.get(replica.uid), attempts.get(replica.attempt))
        since = min((draft.observer.begins(moment) for moment in times if moment is not None), default=None)
        if since is not None and (remaining_s := whole_seconds_left(grace_s, since, draft.now)) > 0:
            kept[replica.uid] = remaining_s
    return kept


def earlier_kept_s(
    draft: StatusDraft, replicas: Iterable[Replica], grace_s: int, decided: datetime | None = None
) -> dict[str, float]:
    """Return `kept_s` of the pods of earlier attempts. Other surplus pods, as after scaling down, are not kept."""
    older = (replica for replica in replicas if replica.attempt < draft.attempt)
    return kept_s(draft, older, grace_s, decided)


def conclude(
    draft: StatusDraft,
    ending: Ending,
    spec: TFJobSpec | InvalidSpec,
    seen: Observed,
    failure: JobAttempt | None = None,
) -> Plan:
    """Return a plan that only writes the end, or only the decision if pods of a queued job still hold quota.

    Clean-up is left to later plans, once this is written. `failure` is the last attempt, if a replica failed.
    """
    policy = _policy(spec, ending.reason, stopped=ending.event_reason in LIMITS)
    record = EndRecord(
        type=ending.condition,
        reason=ending.reason,
        message=ending.message,
        event=ending.event_reason,
        time=draft.timestamp,
        completion_time=draft.completion(ending.at),
        replica_statuses=_final_counters(draft.replica_statuses, ending, seen.replicas, policy),
        clean_pod_policy=policy,
        failure=failure,
    )
    draft.next_restart_time = None
    is_queued = c.LABEL_QUEUE in (draft.job.metadata.labels or {})
    waits = is_queued and bool(draft.expected or _waited_for(policy, seen))
    if waits or draft.begun is not None:
        draft.begun = msgspec.structs.replace(draft.begun or StartRecord(), ending=record)
    if waits:
        draft.replica_statuses = count_unended(draft.replica_statuses, (*seen.replicas, *seen.surplus), draft.expected)
        return Plan(status=draft.freeze(), events=tuple(draft.events))
    return _write_queued_end(draft, record, policy, seen, given_up=()) if is_queued else _write_end(draft, record)


def _policy(
    spec: TFJobSpec | InvalidSpec, reason: str, *, stopped: bool, otherwise: str = CleanPodPolicy.RUNNING
) -> str:
    """Return the effective clean-up policy: a job `stopped` by a limit leaves nothing running.

    `reason` is that of the final condition. A spec that was never valid has no policy. `otherwise` applies if the policy cannot
    be read.
    """
    policy = spec.clean_pod_policy or otherwise
    never_valid = isinstance(spec, InvalidSpec) and reason == ConditionReason.INVALID
    return CleanPodPolicy.RUNNING if never_valid or (stopped and policy == CleanPodPolicy.NONE) else policy


def _final_counters(
    counts: Mapping[str, ReplicaStatus], ending: Ending, replicas: Sequence[Replica], policy: str
) -> dict[str, ReplicaStatus]:
    """Return the counters at the end. At a success, active replicas count as succeeded, as in training-operator 1.9.

    At a failure, pods being deleted no longer count as active, however long that takes.
    """
    if ending.condition is ConditionType.SUCCEEDED:
        return {
            name: msgspec.structs.replace(status, active=0, succeeded=status.succeeded + status.active)
            for name, status in counts.items()
        }
    return _without_active(counts, replicas, pods_to_clean_up(policy, replicas))


def _without_active(
    counts: Mapping[str, ReplicaStatus], replicas: Sequence[Replica], deleted: Iterable[Replica]
) -> dict[str, ReplicaStatus]:
    """Return the counters without the active pods in `deleted`."""
    gone = {replica.uid for replica in deleted}
    kept = count([replica for replica in replicas if replica.uid not in gone], counts)
    return {name: msgspec.structs.replace(status, active=kept[name].active) for name, status in counts.items()}


def _write_end(draft: StatusDraft, record: EndRecord, may_outlive: frozenset[str] | None = None) -> Plan:
    """Return the plan that writes the final condition, with the values that were recorded."""
    draft.set_true(ConditionType(record.type), record.reason, record.message)
    draft.complete(record.completion_time)
    draft.completion_time = record.completion_time or draft.completion_time  # also if it is ahead of our clock
    draft.replica_statuses = record.replica_statuses
    normal = record.event in {ConditionReason.SUCCEEDED, ConditionReason.FAILED}
    draft.emit(EventType.NORMAL if normal else EventType.WARNING, record.event, record.message)
    return Plan(status=draft.freeze(), events=tuple(draft.events), may_outlive=may_outlive)


def _waited_for(policy: str, seen: Observed) -> list[Replica]:
    """Return the pods that must end before the end of a queued job is written: all that hold quota, unless they are kept."""
    pods = seen.surplus if policy == CleanPodPolicy.NONE else (*seen.replicas, *seen.surplus)
    return [replica for replica in pods if replica.holds_quota]


def _write_queued_end(
    draft: StatusDraft, record: EndRecord, policy: str, seen: Observed, *, given_up: Sequence[Replica]
) -> Plan:
    """Return the plan that writes the final condition of a queued job, with a Warning about pods that continue.

    The API server must confirm that there are no others.
    """
    holding = [replica for replica in (*seen.replicas, *seen.surplus) if replica.holds_quota]
    if given_up:
        why = f"did not end within {GIVE_UP_S}s after the end of their grace period"
        draft.emit(EventType.WARNING, EventReason.PODS_OUTLIVE_JOB, _outlive_message(given_up, why))
    late = {replica.uid for replica in given_up}
    running = [replica for replica in holding if not (replica.has_ended or replica.uid in late)]
    if running and policy == CleanPodPolicy.NONE:
        why = "continue, since cleanPodPolicy is None"
        draft.emit(EventType.WARNING, EventReason.PODS_OUTLIVE_JOB, _outlive_message(running, why))
    return _write_end(draft, record, frozenset(replica.uid for replica in holding))


def _outlive_message(pods: Sequence[Replica], why: str) -> str:
    named = sorted(pods, key=lambda replica: (replica.type, replica.index))[:MAX_NAMED]
    names = ranges_of(replica.pod.metadata.name for replica in named)
    nodes = ", ".join(sorted({replica.pod.node for replica in pods if replica.pod.node})[:MAX_NAMED])
    more = f" and {len(pods) - MAX_NAMED} more" if len(pods) > MAX_NAMED else ""
    where = f" on {nodes}" if nodes else ""
    return f"Pods {names}{more}{where} {why}. The job has ended, so Kueue gives their quota to other jobs"


def finish(
    draft: StatusDraft, record: EndRecord, spec: TFJobSpec | InvalidSpec, seen: Observed, defaults: Defaults
) -> Plan:
    """Plan a job whose end is decided but not written: delete what runs, and write the end when nothing holds quota.

    A suspension, as when Kueue preempts the job, ends all grace periods.
    """
    decided = record.time or draft.timestamp
    policy = _policy_of(draft, record, spec)
    grace_s = 0 if spec.suspend else sidecar_grace_s(spec, defaults)
    kept = _kept_at_the_end(draft, spec, seen, decided, grace_s)
    waiting = _waited_for(policy, seen)
    asked = {
        replica.uid: _until_given_up_s(draft, replica, decided)
        for replica in waiting
        if replica.terminating or replica.has_ended
    }
    given_up = [replica for replica in waiting if replica.uid in asked and asked[replica.uid] <= 0]
    if not draft.expected and len(given_up) == len(waiting):
        return _write_queued_end(draft, record, policy, seen, given_up=given_up)
    left = {replica.uid: kept[replica.uid] for replica in waiting if replica.uid in kept} | asked
    return Plan(
        status=draft.freeze(),
        delete_pods=tuple(_deletion(replica) for replica in waiting if replica.uid not in left),
        requeue_after_s=min((each for each in left.values() if each > 0), default=None),
    )


def _deletion(replica: Replica) -> PodDeletion:
    """Return the deletion of a pod after the end. For a failed or crash-looping pod, an event keeps how it ended."""
    failed = replica.outcome is Outcome.FAILED
    return PodDeletion(
        replica.pod, exit_event(replica.pod, replica.ended if failed else failure_between_runs(replica.pod))
    )


def _until_given_up_s(draft: StatusDraft, replica: Replica, decided: datetime) -> float:
    """Return for how many seconds the end still waits for a pod that was deleted, or that only native sidecars keep.

    The grace period of a deleted pod counts from when this process first saw the deletion, not by the API server's clock. The
    kubelet terminates native sidecars within the pod's own grace period, once its other containers have ended.
    """
    meta, grace_s = replica.pod.metadata, replica.pod.spec.termination_grace_period_seconds
    since = draft.observer.begins(decided)
    if meta.deletion_timestamp is not None:
        grace_s = meta.deletion_grace_period_seconds or 0
        since = draft.observer.first_seen(Fact.DELETED, replica.uid, meta.deletion_timestamp)
    # In seconds: the API accepts grace periods of thousands of years, which no datetime can represent.
    return GIVE_UP_S + grace_s - (draft.now - since).total_seconds()


def _kept_at_the_end(
    draft: StatusDraft, spec: TFJobSpec | InvalidSpec, seen: Observed, decided: datetime, grace_s: int
) -> dict[str, float]:
    """Return the pods that are kept for a while after the end, by UID, and for how many seconds from now.

    In collective training, workers end shortly after the chief or worker 0, and an earlier delete would lose their last output.
    If the job has a completion grace period of its own, its success has already waited for them.
    """
    kept = kept_s(draft, seen.replicas, grace_s, decided) | earlier_kept_s(draft, seen.surplus, grace_s, decided)
    waited = isinstance(spec, TFJobSpec) and spec.completion_grace_s is not None
    if grace_s and not waited and _succeeds(draft):
        remaining_s = whole_seconds_left(grace_s, draft.observer.begins(decided), draft.now)
        kept |= {replica.uid: remaining_s for replica in filter(_is_working, seen.replicas) if remaining_s > 0}
    return kept


def _succeeds(draft: StatusDraft) -> bool:
    record = conditions.end_record(draft)
    if record is not None:
        return record.type == ConditionType.SUCCEEDED
    return conditions.is_true(draft, ConditionType.SUCCEEDED)


def _policy_of(draft: StatusDraft, record: EndRecord | None, spec: TFJobSpec | InvalidSpec) -> str:
    """Return the clean-up policy of a job that is over.

    An edit that makes the policy unreadable deletes no pods of a finished job, since the user may mean to keep them, and cleans
    up as before. Until a job has finished, its end must not wait for what may run forever.
    """
    if record is not None:
        kept = record.clean_pod_policy if conditions.is_finished(draft) else CleanPodPolicy.RUNNING
        return _policy(spec, record.reason, stopped=record.event in LIMITS, otherwise=kept)
    failed = conditions.find(draft.conditions, ConditionType.FAILED)  # an older operator finished the job
    stopped = failed is not None and limit_of(failed.reason, failed.message) is not None
    return _policy(spec, failed.reason if failed is not None else "", stopped=stopped, otherwise=CleanPodPolicy.NONE)


def clean_up(draft: StatusDraft, spec: TFJobSpec | InvalidSpec, seen: Observed, defaults: Defaults) -> Plan:
    """Clean up after the job has finished, update the counters, and delete the job when its TTL expires.

    If another operator finished the job, its status is not changed, and its pods are deleted only if the spec sets a clean-up
    policy: the default has changed over the years, and running pods may have been kept on purpose.
    """
    record = conditions.end_record(draft)
    written = _end_written_at(draft)
    decided = (record.time if record is not None else None) or written or draft.timestamp
    kept = _kept_at_the_end(draft, spec, seen, decided, sidecar_grace_s(spec, defaults))
    remaining_s = None
    if spec.ttl_s is not None and written is not None:
        remaining_s = whole_seconds_left(spec.ttl_s, draft.observer.begins(written), draft.now)
        pods = (*seen.replicas, *seen.surplus)
        lingering = [kept[replica.uid] for replica in pods if replica.lingers and replica.uid in kept]
        if lingering:
            remaining_s = max(remaining_s, *lingering)
        if remaining_s <= 0:
            return Plan(delete_job=True)
    finished_by_other = is_from_other_operator(draft.job.status)
    if finished_by_other and not (isinstance(spec, TFJobSpec) and spec.sets_clean_pod_policy):
        return Plan(requeue_after_s=remaining_s)
    policy = _policy_of(draft, record, spec)
    deleted = pods_to_clean_up(policy, seen.replicas)
    # Surplus pods must not keep running under any policy; terminated ones are handled like all others.
    surplus = pods_to_clean_up(CleanPodPolicy.RUNNING if policy == CleanPodPolicy.NONE else policy, seen.surplus)
    draft.replica_statuses = _recounted(draft, record, seen, deleted)
    waits = [kept[replica.uid] for replica in (*deleted, *surplus) if replica.uid in kept]
    deleted = [replica for replica in deleted if replica.uid not in kept]
    surplus = [replica for replica in surplus if replica.uid not in kept]
    remaining = _without(seen.replicas, deleted)
    keys = {replica.key for replica in remaining}
    if keys:
        keys.add(ReplicaKey.of_all(draft.job.metadata.name))
    plan = Plan(
        status=None if finished_by_other else draft.freeze(),
        delete_pods=tuple(_deletion(replica) for replica in (*deleted, *surplus) if not replica.terminating),
        delete_services=seen.services_except(keys),
        requeue_after_s=remaining_s,
    )
    return plan.requeued_within(min(waits, default=None))


def _without(replicas: Iterable[Replica], deleted: Iterable[Replica]) -> list[Replica]:
    gone = {replica.uid for replica in deleted}
    return [replica for replica in replicas if replica.uid not in gone]


def _recounted(
    draft: StatusDraft, record: EndRecord | None, seen: Observed, deleted: Sequence[Replica]
) -> dict[str, ReplicaStatus]:
    """Return the counters after the end: those of a success are final. Other replicas remain counted when their pods are gone.

    Each replica counts once: a restarted kubelet can turn a Succeeded pod into a Failed one (kubernetes#126341).
    """
    recorded = draft.replica_statuses
    if record is not None and record.type == ConditionType.SUCCEEDED:
        return recorded
    done = {name: parse_indices(text, MAX_REPLICAS) for name, text in draft.finished_indices.items()}
    counted = [
        replica
        for replica in seen.replicas
        if not (replica.outcome is Outcome.FAILED and replica.index in done.get(replica.type, ()))
    ]
    merged = {
        name: msgspec.structs.replace(
            status,
            succeeded=max(status.succeeded, recorded[name].succeeded),
            failed=max(status.failed, recorded[name].failed),
        )
        for name, status in count(counted, recorded).items()
    }
    return _without_active(merged, seen.replicas, deleted)


def _end_written_at(draft: StatusDraft) -> datetime | None:
    """Return when the end was written; the TTL counts from then, even if the job ended while no operator was running."""
    ends = (condition.last_transition_time for condition in draft.conditions if conditions.is_end(condition))
    return next(ends, None) or draft.completion_time
