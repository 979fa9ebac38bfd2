"""Decides when a job restarts, succeeds or fails, and what is deleted when it finishes. Pure.

Failure messages name the pod, container, exit code, reason and termination message, because the pod and its log may be gone
when the message is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from tfjob_operator.api.core import ContainerStateTerminated, ContainerStatus, EventType, PodRestartPolicy
from tfjob_operator.api.text import last_words, quoted
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.conditions import Conditions
from tfjob_operator.api.v1.constants import (
    LIMITS,
    CleanPodPolicy,
    ConditionReason,
    ConditionType,
    EventReason,
    RestartPolicy,
    SuccessPolicy,
    limit_of,
)
from tfjob_operator.api.v1.types import IndexRestarts, InvalidSpec, ReplicaStatus, TFJob, TFJobSpec, child_name
from tfjob_operator.controller.jobs.children import Pod, ReplicaKey
from tfjob_operator.controller.jobs.pods import DEADLINE_EXCEEDED, DISRUPTION_TARGET
from tfjob_operator.controller.tfjob.build.children import deciding_type
from tfjob_operator.controller.tfjob.plan.actions import Plan, PodDeletion
from tfjob_operator.controller.tfjob.plan.replicas import Observed, Outcome, Replica, count, is_from_other_operator
from tfjob_operator.controller.tfjob.plan.status import StatusDraft

_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_GENERIC_REASONS: Final = frozenset({"", "Error"})
"""Reasons of a container that only mean a nonzero exit code."""
_MAX_POD_MESSAGE: Final = 200
"""Maximum length of a message about the whole pod, such as an eviction, in bytes."""


def cause_of(pod: Pod, training: ContainerStateTerminated | None) -> str:
    """Return why this pod failed. `training` is the terminated state of its training container, if known."""
    causes = []
    if taken := _pod_level_cause(pod):
        causes.append(taken)
    if failed := _failed_container(pod):
        causes.append(_describe_exit(*failed))
    elif training is not None:
        causes.append(f"its training container exited with code {training.exit_code}")
    return "; ".join(causes) or "the kubelet reported no container status"


def most_restarts(job: str, records: Iterable[IndexRestarts], replicas: Iterable[Replica]) -> str:
    """Return a sentence about the replica with the most restarts, and its last failure if its pod still shows that.

    A failed pod that still exists was not replaced: its failure reached the limit and is not a restart.
    """
    pods = {replica.pod.metadata.uid: replica.pod for replica in replicas}
    restarts = [(each.total - (each.replaced and each.pod in pods), -each.index, each) for each in records]
    times, _, record = max(restarts, key=lambda each: each[:2])
    last = _last_exit(pods[record.pod]) if record.pod in pods else ""
    pod = f"Pod {child_name(job, record.type, record.index)}"
    if times == 0:
        return f"{pod}: {last}" if last else f"{pod} failed"
    text = f"{pod} was restarted most often ({'once' if times == 1 else f'{times} times'})"
    return f"{text}; its last failure: {last}" if last else text


def _pod_level_cause(pod: Pod) -> str:
    """Return what terminated the whole pod rather than a container: a deadline, an eviction, a lost node."""
    status = pod.status
    if status.reason:
        return _with_message(quoted(status.reason), status.message)
    for condition in status.conditions or ():
        if condition.type == DISRUPTION_TARGET and condition.status == "True":
            return _with_message(quoted(condition.reason) or DISRUPTION_TARGET, condition.message)
    return ""


def _with_message(reason: str, message: str) -> str:
    detail = last_words(message, _MAX_POD_MESSAGE)
    return f"{reason} ({detail})" if detail else reason


def _statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    return (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))


def ended_containers(pod: Pod) -> Iterator[tuple[str, ContainerStateTerminated]]:
    """Yield the terminated containers of a pod with their state, init containers first."""
    for status in _statuses(pod):
        if status.state.terminated is not None:
            yield status.name, status.state.terminated


def _failed_container(pod: Pod) -> tuple[str, ContainerStateTerminated] | None:
    """Return the container that failed first: later ones may have failed because the pod was being terminated."""
    failed = [each for each in ended_containers(pod) if each[1].exit_code != 0]
    return min(failed, key=lambda each: each[1].finished_at or _NEVER, default=None)


def _last_exit(pod: Pod) -> str:
    """Return the last exit of the container that made the pod fail, else of the one the kubelet restarted most often."""
    if failed := _failed_container(pod):
        return _describe_exit(*failed)
    restarted = [each for each in _statuses(pod) if each.last_state is not None and each.last_state.terminated]
    most = max(restarted, key=lambda each: each.restart_count, default=None)
    if most is None or most.last_state is None or most.last_state.terminated is None:
        return _pod_level_cause(pod)
    return _describe_exit(most.name, most.last_state.terminated)


def _describe_exit(container: str, ended: ContainerStateTerminated) -> str:
    reason = "" if ended.reason in _GENERIC_REASONS else f" ({quoted(ended.reason)})"
    message = last_words(ended.message)
    return f"container {container} exited with code {ended.exit_code}{reason}{': ' if message else ''}{message}"


def pod_ended_at(pod: Pod) -> datetime:
    """Return when the last container of a pod terminated; a time in the far future if unknown."""
    ends = [ended.finished_at for _, ended in ended_containers(pod)]
    return max((end for end in ends if end is not None), default=_NEVER)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ends: its final condition, and the event that reports it."""

    condition: ConditionType
    reason: ConditionReason
    message: str
    event_reason: ConditionReason | EventReason
    event_type: EventType = EventType.NORMAL
    at: datetime | None = None
    """When the deciding container terminated, if one decided."""

    @classmethod
    def succeeded(cls, message: str, at: datetime | None) -> Ending:
        """Return a success."""
        return cls(ConditionType.SUCCEEDED, ConditionReason.SUCCEEDED, message, ConditionReason.SUCCEEDED, at=at)

    @classmethod
    def failed(cls, message: str, at: datetime | None) -> Ending:
        """Return the failure of a replica. Its event is Normal, as in the Go operators."""
        return cls(ConditionType.FAILED, ConditionReason.FAILED, message, ConditionReason.FAILED, at=at)

    @classmethod
    def by_rule(cls, message: str, at: datetime | None) -> Ending:
        """Return a failure caused by a rule of the failure policy."""
        return cls(
            ConditionType.FAILED, ConditionReason.BY_RULE, message, ConditionReason.BY_RULE, EventType.WARNING, at
        )

    @classmethod
    def by_limit(cls, job: str, limit: EventReason, detail: str = "") -> Ending:
        """Return a failure because one of `LIMITS` is reached; `detail` is appended as another sentence."""
        message = f"Job {job} has failed because {LIMITS[limit].words}{detail and '. '}{detail}"
        return cls(ConditionType.FAILED, ConditionReason.LIMIT, message, limit, EventType.WARNING)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of the job derived from its replicas."""

    running: bool = False
    ending: Ending | None = None


def judge(
    job: TFJob,
    spec: TFJobSpec,
    replicas: Sequence[Replica],
    finished: Mapping[str, Collection[int]],
    counts: Mapping[str, ReplicaStatus],
    *,
    restarting: Collection[str],
) -> Verdict:
    """Determine whether the job runs, succeeds or fails. Success takes precedence: a succeeded chief ends the job.

    `finished` are the succeeded indices, including those whose pods are gone. `restarting` are the UIDs of failed pods that are
    replaced; any other failed pod fails the job.
    """
    decider, who = deciding_type(spec.replicas), f"TFJob {job.metadata.namespace}/{job.metadata.name}"
    if _has_succeeded(spec, finished, decider):
        text = f"{who} successfully completed."
        return Verdict(ending=Ending.succeeded(text, _success_at(spec, replicas, decider)))
    for name in spec.replicas:
        failed = [
            replica
            for replica in replicas
            if replica.type == name and replica.index not in finished[name] and _is_final_failure(replica, restarting)
        ]
        if failed:
            # Without times, the pod with the lowest index.
            first = min(failed, key=lambda replica: (pod_ended_at(replica.pod), replica.index))
            pod = f"{'Pod' if len(failed) == 1 else 'The first was pod'} {first.pod.metadata.name}"
            text = f"{who} has failed because {len(failed)} {name} replica(s) failed. {pod}: {cause_of(first.pod, first.ended)}"
            return Verdict(ending=Ending.failed(text, failure_at(first)))
    watched = [decider] if decider is not None else list(spec.replicas)
    return Verdict(running=any(counts[name].active > 0 for name in watched))


def _has_succeeded(spec: TFJobSpec, finished: Mapping[str, Collection[int]], decider: str | None) -> bool:
    if decider is None:
        deciders = [name for name, replica in spec.replicas.items() if replica.replicas > 0]
        return bool(deciders) and all(len(finished[name]) >= spec.replicas[name].replicas for name in deciders)
    if len(finished[decider]) >= spec.replicas[decider].replicas:
        return True
    return decider == c.WORKER and spec.success_policy != SuccessPolicy.ALL_WORKERS and 0 in finished[c.WORKER]


def _success_at(spec: TFJobSpec, replicas: Iterable[Replica], decider: str | None) -> datetime | None:
    """Return when the last deciding replica succeeded; None if any deciding replica's pod no longer shows the time."""
    first_decides = decider == c.WORKER and spec.success_policy != SuccessPolicy.ALL_WORKERS
    names = spec.sizes if decider is None else {decider}
    ends = [
        replica.ended.finished_at if replica.ended is not None else None
        for replica in replicas
        if replica.type in names and replica.outcome is Outcome.SUCCEEDED and not (first_decides and replica.index)
    ]
    known = [end for end in ends if end is not None]
    deciders = 1 if first_decides else sum(spec.sizes[name] for name in names)
    return max(known) if len(known) == deciders else None


def failure_at(replica: Replica) -> datetime | None:
    """Return the end time of the container that made this replica fail: the training container, or the first to fail."""
    failed = _failed_container(replica.pod)
    ended = replica.ended or (failed[1] if failed is not None else None)
    return ended.finished_at if ended is not None else None


def _is_final_failure(replica: Replica, restarting: Collection[str]) -> bool:
    return replica.outcome is Outcome.FAILED and not (replica.terminating or replica.pod.metadata.uid in restarting)


def should_restart(replica: Replica, spec: TFJobSpec) -> bool:
    """Return True if a failed pod is to be deleted and recreated under the same name.

    A pod keeps the policy with which it was created; edits apply to later pods (U15). Under Always and OnFailure the kubelet
    restarts containers in place, but not a pod that is itself Failed because of an eviction or a lost node (B38). Under
    ExitCode, the exit code decides, except for disrupted pods: their exit code only reflects the reaction to SIGTERM. If the
    container's own policy forbids a restart, Always and OnFailure recreate only disrupted pods. Even under Never, disrupted
    workers of an elastic job (B50) and any disrupted replica that exited with 0 are recreated.
    """
    policy = replica.restart_policy or _policy_without_label(replica, spec)
    if replica.outcome is not Outcome.FAILED:
        return False
    if policy == RestartPolicy.NEVER:
        return (spec.dynamic_workers and replica.type == c.WORKER and replica.disrupted) or replica.stopped_gracefully
    if policy == RestartPolicy.EXIT_CODE:
        # The exit code of a pod that exceeded its own deadline does not count either: the limit in its spec made it fail.
        if replica.ended is None or replica.pod.status.reason == DEADLINE_EXCEEDED:
            return replica.disrupted
        return replica.disrupted or replica.ended.exit_code in c.RETRYABLE_EXIT_CODES
    return replica.disrupted or not replica.container_policy_forbids_restart


def _policy_without_label(replica: Replica, spec: TFJobSpec) -> str:
    """Return the policy of a pod created by another operator: that of the replica, or Never if the pod itself has Never.

    Earlier operators set Never in the pod if the replica had no policy. This operator also sets Never for ExitCode and for
    replicas with rules; in these cases Never in the pod has no significance.
    """
    policy = spec.replicas[replica.type].restart_policy
    if policy == RestartPolicy.EXIT_CODE or replica.pod.spec.restart_policy != PodRestartPolicy.NEVER:
        return policy
    return policy if spec.has_rules_for(replica.type) else RestartPolicy.NEVER


def wait_for_workers_s(
    draft: StatusDraft, spec: TFJobSpec, ending: Ending, replicas: Iterable[Replica]
) -> float | None:
    """Return how long to wait for running workers before writing a success: at most `completionGracePeriodSeconds`.

    None if the end is written now. The deciding replica stays finished, so neither a failure nor an edit reverts the success.
    """
    if spec.completion_grace_s is None or ending.condition is not ConditionType.SUCCEEDED or ending.at is None:
        return None
    left_s = _left_s(spec.completion_grace_s, ending.at, draft.now)
    return left_s if left_s > 0 and any(map(_is_working, replicas)) else None


def _is_working(replica: Replica) -> bool:
    return replica.type == c.WORKER and replica.outcome is Outcome.ACTIVE and not replica.terminating


def _worker_grace_s(draft: StatusDraft, spec: TFJobSpec | InvalidSpec, grace_s: int) -> float:
    """Return how long the workers of a succeeded job are kept. 0 if the success has already waited for them."""
    succeeded = conditions.find(draft.conditions, ConditionType.SUCCEEDED)
    if succeeded is None or succeeded.last_transition_time is None or not grace_s:
        return 0.0
    if isinstance(spec, TFJobSpec) and spec.completion_grace_s is not None:
        return 0.0
    return _left_s(grace_s, succeeded.last_transition_time, draft.now)


def clean_up(draft: StatusDraft, spec: TFJobSpec | InvalidSpec, seen: Observed, grace_s: int = 0) -> Plan:
    """Clean up after the job has finished, update the counters, and delete the job when its TTL expires.

    When the job succeeds, workers that still run no longer count as active, but they are deleted only `grace_s` later. In
    collective training they end shortly after the chief or worker 0, and an earlier delete would lose their last output. If
    another operator finished the job, its status is not changed, and its pods are deleted only if the spec sets a clean-up
    policy: the default has changed over the years, and running pods may have been kept on purpose.
    """
    left = None
    ended_at = _ended_at(draft)
    if spec.ttl_s is not None and ended_at is not None:
        left = _left_s(spec.ttl_s, ended_at, draft.now)
        if left <= 0:
            return Plan(delete_job=True)
    finished_by_other = is_from_other_operator(draft.job.status)
    if finished_by_other and not (isinstance(spec, TFJobSpec) and spec.sets_clean_pod_policy):
        return Plan(requeue_after_s=left)
    policy = _policy(draft, spec)
    deleted = pods_to_clean_up(policy, seen.replicas)
    # Surplus pods must not keep running under any policy; terminated ones are handled like all others.
    surplus = pods_to_clean_up(CleanPodPolicy.RUNNING if policy == CleanPodPolicy.NONE else policy, seen.surplus)
    draft.replica_statuses = without_active(_recounted(draft.replica_statuses, seen), seen.replicas, deleted)
    wait_s = _worker_grace_s(draft, spec, grace_s)
    if wait_s > 0 and any(map(_is_working, deleted)):
        deleted = [replica for replica in deleted if not _is_working(replica)]
        left = wait_s if left is None else min(left, wait_s)
    kept = {replica.key for replica in _without(seen.replicas, deleted)}
    if kept:
        kept.add(ReplicaKey.of_all(draft.job.metadata.name))
    return Plan(
        status=None if finished_by_other else draft.freeze(),
        delete_pods=tuple(PodDeletion(replica.pod) for replica in (*deleted, *surplus) if not replica.terminating),
        delete_services=seen.services_except(kept),
        requeue_after_s=left,
    )


def pods_to_clean_up(policy: str, replicas: Iterable[Replica]) -> list[Replica]:
    """Return the pods to delete after the end: under All every pod, under None no pod, under Running unfinished pods."""
    if policy == CleanPodPolicy.NONE:
        return []
    # Depends on the pod and not on the replica's outcome: a sidecar of a finished replica may still use CPU.
    return [replica for replica in replicas if policy == CleanPodPolicy.ALL or not replica.has_ended]


def policy_after(ended: Conditions, policy: str) -> str:
    """Return the effective clean-up policy: a job stopped by a limit leaves nothing running (B47)."""
    failed = conditions.find(ended, ConditionType.FAILED)
    stopped = failed is not None and limit_of(failed.reason, failed.message) is not None
    return CleanPodPolicy.RUNNING if stopped and policy == CleanPodPolicy.NONE else policy


def without_active(
    counts: dict[str, ReplicaStatus], replicas: Sequence[Replica], deleted: Sequence[Replica]
) -> dict[str, ReplicaStatus]:
    """Return the counters during clean-up: pods being deleted do not count as active, however long that takes."""
    kept = count(_without(replicas, deleted), counts)
    return {name: msgspec.structs.replace(found, active=kept[name].active) for name, found in counts.items()}


def _ended_at(draft: StatusDraft) -> datetime | None:
    """Return when the end was written; the TTL counts from then, even if the job ended while no operator was running."""
    ends = (each.last_transition_time for each in draft.conditions if conditions.is_end(each))
    return next(ends, None) or draft.completion_time


def _policy(draft: StatusDraft, spec: TFJobSpec | InvalidSpec) -> str:
    """Return the current clean-up policy. A spec that was never valid has no policy."""
    failed = conditions.find(draft.conditions, ConditionType.FAILED)
    if isinstance(spec, InvalidSpec) and failed is not None and failed.reason == ConditionReason.INVALID:
        return CleanPodPolicy.RUNNING
    return policy_after(draft.conditions, spec.clean_pod_policy)


def _recounted(recorded: dict[str, ReplicaStatus], seen: Observed) -> dict[str, ReplicaStatus]:
    """Return the counters after the end: succeeded and failed replicas remain counted when their pods are gone."""
    return {
        name: msgspec.structs.replace(
            found,
            succeeded=max(found.succeeded, recorded[name].succeeded),
            failed=max(found.failed, recorded[name].failed),
        )
        for name, found in count(seen.replicas, recorded).items()
    }


def _without(replicas: Iterable[Replica], deleted: Sequence[Replica]) -> list[Replica]:
    gone = {replica.pod.metadata.uid for replica in deleted}
    return [replica for replica in replicas if replica.pod.metadata.uid not in gone]


def until_deadline(draft: StatusDraft, deadline_s: int | None) -> float | None:
    """Return the seconds left until `activeDeadlineSeconds`; None if unset or the job has not started."""
    if deadline_s is None or draft.start_time is None:
        return None
    return _left_s(deadline_s, draft.start_time, draft.now)


def _left_s(limit_s: int, since: datetime, now: datetime) -> float:
    """Return the seconds left, plus one second, since API times have no fraction."""
    return limit_s and limit_s + 1 - (now - since).total_seconds()


def past_deadline(draft: StatusDraft, deadline_s: int | None) -> Ending | None:
    """Return the outcome of a job that exceeds its active deadline, else None."""
    left = until_deadline(draft, deadline_s)
    if left is None or left > 0:
        return None
    return Ending.by_limit(draft.job.metadata.name, EventReason.DEADLINE_EXCEEDED)


def conclude(draft: StatusDraft, ending: Ending, clean_pod_policy: str, replicas: Sequence[Replica]) -> Plan:
    """Return a plan that only writes the end; clean-up is left to later plans, once the end is written."""
    draft.end(ending.condition, ending.reason, ending.message, ending.at)
    draft.next_restart_time = None
    deleted = pods_to_clean_up(policy_after(draft.conditions, clean_pod_policy), replicas)
    draft.replica_statuses = without_active(draft.replica_statuses, replicas, deleted)
    draft.emit(ending.event_type, ending.event_reason, ending.message)
    return Plan(status=draft.freeze(), events=tuple(draft.events))
