"""When a job restarts, succeeds or fails, how it ends, and what is deleted then. Pure.

The message of a failure names the pod, container, exit code, reason and termination message: the pod may be gone when the
message is read, and its log with it.
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
from tfjob_operator.controller.tfjob.plan.replicas import Observed, Outcome, Replica, count, is_of_predecessor
from tfjob_operator.controller.tfjob.plan.status import StatusDraft

_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_SAYS_NOTHING: Final = frozenset({"", "Error"})
"""Reasons of a container by which a kubelet says no more than that its exit code is not 0."""
_WORDS_OF_THE_CLUSTER: Final = 200
"""Bytes of a message about the pod as a whole, such as an eviction's."""


def cause_of(pod: Pod, training: ContainerStateTerminated | None) -> str:
    """Return why this pod failed. `training` is how its training container ended, where the pod says so."""
    words = []
    if taken := _as_a_whole(pod):
        words.append(taken)
    if failed := _failed_container(pod):
        words.append(_exit_of(*failed))
    elif training is not None:
        words.append(f"its training container exited with code {training.exit_code}")
    return "; ".join(words) or "the kubelet reported no container status"


def most_restarts(job: str, records: Iterable[IndexRestarts], replicas: Iterable[Replica]) -> str:
    """Return a sentence about the replica that was restarted most, and how it ended last, if its pod still shows it.

    A failed pod that still exists was not replaced: its failure reached the limit, and is no restart.
    """
    pods = {replica.pod.metadata.uid: replica.pod for replica in replicas}
    restarts = [(each.total - (each.replaced and each.pod in pods), -each.index, each) for each in records]
    times, _, record = max(restarts, key=lambda each: each[:2])
    last = _last_exit(pods[record.pod]) if record.pod in pods else ""
    pod = f"Pod {child_name(job, record.type, record.index)}"
    if times == 0:
        return f"{pod}: {last}" if last else f"{pod} failed"
    told = f"{pod} was restarted most often ({'once' if times == 1 else f'{times} times'})"
    return f"{told}; its last failure: {last}" if last else told


def _as_a_whole(pod: Pod) -> str:
    """Return what ended the pod and not one of its containers: its deadline, an eviction, a lost node."""
    status = pod.status
    if status.reason:
        return _with_words(quoted(status.reason), status.message)
    for condition in status.conditions or ():
        if condition.type == DISRUPTION_TARGET and condition.status == "True":
            return _with_words(quoted(condition.reason) or DISRUPTION_TARGET, condition.message)
    return ""


def _with_words(reason: str, message: str) -> str:
    words = last_words(message, _WORDS_OF_THE_CLUSTER)
    return f"{reason} ({words})" if words else reason


def _statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    return (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))


def ended_containers(pod: Pod) -> Iterator[tuple[str, ContainerStateTerminated]]:
    """Yield the containers of a pod that have terminated, init containers first, and how."""
    for status in _statuses(pod):
        if status.state.terminated is not None:
            yield status.name, status.state.terminated


def _failed_container(pod: Pod) -> tuple[str, ContainerStateTerminated] | None:
    """Return the container that failed first: later ones may have failed because the pod was being terminated."""
    failed = [each for each in ended_containers(pod) if each[1].exit_code != 0]
    return min(failed, key=lambda each: each[1].finished_at or _NEVER, default=None)


def _last_exit(pod: Pod) -> str:
    """Return how the container ended that its kubelet restarted most, or that made the pod fail."""
    if failed := _failed_container(pod):
        return _exit_of(*failed)
    restarted = [each for each in _statuses(pod) if each.last_state is not None and each.last_state.terminated]
    most = max(restarted, key=lambda each: each.restart_count, default=None)
    if most is None or most.last_state is None or most.last_state.terminated is None:
        return _as_a_whole(pod)
    return _exit_of(most.name, most.last_state.terminated)


def _exit_of(container: str, ended: ContainerStateTerminated) -> str:
    reason = "" if ended.reason in _SAYS_NOTHING else f" ({quoted(ended.reason)})"
    words = last_words(ended.message)
    return f"container {container} exited with code {ended.exit_code}{reason}{': ' if words else ''}{words}"


def pod_ended_at(pod: Pod) -> datetime:
    """Return when the last container of a pod ended, a time after all others if the pod does not say so."""
    ends = [ended.finished_at for _, ended in ended_containers(pod)]
    return max((end for end in ends if end is not None), default=_NEVER)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ends: its last condition, and the event that reports it."""

    condition: ConditionType
    reason: ConditionReason
    message: str
    event_reason: ConditionReason | EventReason
    event_type: EventType = EventType.NORMAL
    at: datetime | None = None
    """When the deciding container ended, if one decided."""

    @classmethod
    def succeeded(cls, message: str, at: datetime | None) -> Ending:
        """Return a success."""
        return cls(ConditionType.SUCCEEDED, ConditionReason.SUCCEEDED, message, ConditionReason.SUCCEEDED, at=at)

    @classmethod
    def failed(cls, message: str, at: datetime | None) -> Ending:
        """Return the failure of a replica. Its event is Normal, as the Go operators' was."""
        return cls(ConditionType.FAILED, ConditionReason.FAILED, message, ConditionReason.FAILED, at=at)

    @classmethod
    def by_rule(cls, message: str, at: datetime | None) -> Ending:
        """Return the failure of a job by a rule of its failure policy."""
        return cls(
            ConditionType.FAILED, ConditionReason.BY_RULE, message, ConditionReason.BY_RULE, EventType.WARNING, at
        )

    @classmethod
    def by_limit(cls, job: str, limit: EventReason, detail: str = "") -> Ending:
        """Return the failure of a job that has reached one of `LIMITS`; `detail` is another sentence."""
        message = f"Job {job} has failed because {LIMITS[limit].words}{detail and '. '}{detail}"
        return cls(ConditionType.FAILED, ConditionReason.LIMIT, message, limit, EventType.WARNING)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the state of the replicas means for the job, which does not run when it ends."""

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
    """Decide about a job. Success comes first: a chief that has succeeded has ended the job.

    `finished` are the indices that have succeeded, also those whose pods are gone. `restarting` are the
    UIDs of failed pods that are replaced; any other failed pod ends the job.
    """
    decider, who = deciding_type(spec.replicas), f"TFJob {job.metadata.namespace}/{job.metadata.name}"
    if _has_succeeded(spec, finished, decider):
        text = f"{who} successfully completed."
        return Verdict(ending=Ending.succeeded(text, _success_at(spec, replicas, decider)))
    for name in spec.replicas:
        lost = [
            replica
            for replica in replicas
            if replica.type == name and replica.index not in finished[name] and _is_lost(replica, restarting)
        ]
        if lost:
            # Where pods have no times, that with the lowest index.
            first = min(lost, key=lambda replica: (pod_ended_at(replica.pod), replica.index))
            pod = f"{'Pod' if len(lost) == 1 else 'The first was pod'} {first.pod.metadata.name}"
            text = f"{who} has failed because {len(lost)} {name} replica(s) failed. {pod}: {cause_of(first.pod, first.ended)}"
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
    """Return when the last of the replicas that decide succeeded; None if one of their pods does not show it any more."""
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
    """Return when the container ended by which this replica failed: its training, or else the first that failed."""
    failed = _failed_container(replica.pod)
    ended = replica.ended or (failed[1] if failed is not None else None)
    return ended.finished_at if ended is not None else None


def _is_lost(replica: Replica, restarting: Collection[str]) -> bool:
    return replica.outcome is Outcome.FAILED and not (replica.terminating or replica.pod.metadata.uid in restarting)


def should_restart(replica: Replica, spec: TFJobSpec) -> bool:
    """Whether a failed pod is deleted, to be created again under the same name.

    A pod lives by the policy with which it was created: an edit applies to later pods (U15). Under Always and OnFailure the
    kubelet restarts containers in place, but not a pod that is itself Failed, because it was evicted or its node lost
    (B38). ExitCode looks at the exit code, but not at that of a pod which the cluster took away: how its process reacted to
    the SIGTERM says nothing. A failure that the container's own policy makes final is final under every policy of the
    replica. Workers of an elastic job may come and go: one that the cluster took away is created again even under Never
    (B50), and so is any replica that has not failed but was stopped, and exited with 0.
    """
    policy = replica.restart_policy or _policy_without_label(replica, spec)
    if replica.outcome is not Outcome.FAILED:
        return False
    if policy == RestartPolicy.NEVER:
        return (spec.dynamic_workers and replica.type == c.WORKER and replica.disrupted) or replica.was_stopped_in_order
    if policy == RestartPolicy.EXIT_CODE:
        # The exit code after the pod's own deadline says nothing either, but that limit was set by its author.
        if replica.ended is None or replica.pod.status.reason == DEADLINE_EXCEEDED:
            return replica.disrupted
        return replica.disrupted or replica.ended.exit_code in c.RETRYABLE_EXIT_CODES
    return replica.disrupted or not replica.was_left_by_its_own_policy


def _policy_without_label(replica: Replica, spec: TFJobSpec) -> str:
    """Return the policy of a pod that another operator made: the replica's, unless the pod shows that it was another one.

    The operators before this one overruled the template's policy with Never, where the replica had none. This one makes pods
    with Never under ExitCode, and where a rule is about them: then Never shows nothing.
    """
    policy = spec.replicas[replica.type].restart_policy
    is_judged = spec.failure_policy is not None and replica.type in spec.failure_policy.targets
    if is_judged or policy == RestartPolicy.EXIT_CODE or replica.pod.spec.restart_policy != PodRestartPolicy.NEVER:
        return policy
    return RestartPolicy.NEVER


def until_workers_end(draft: StatusDraft, spec: TFJobSpec, ending: Ending, replicas: Iterable[Replica]) -> float | None:
    """Return for how many seconds a success waits for workers that still run: `completionGracePeriodSeconds` at most.

    None for an end that is written now. The replica that decided stays done, so neither a failure nor an edit takes it back.
    """
    if spec.completion_grace_s is None or ending.condition is not ConditionType.SUCCEEDED or ending.at is None:
        return None
    left_s = _left_s(spec.completion_grace_s, ending.at, draft.now)
    return left_s if left_s > 0 and any(map(_is_working, replicas)) else None


def _is_working(replica: Replica) -> bool:
    return replica.type == c.WORKER and replica.outcome is Outcome.ACTIVE and not replica.terminating


def _workers_wait_s(draft: StatusDraft, spec: TFJobSpec | InvalidSpec, grace_s: int) -> float:
    """Return for how many seconds workers of a job that has succeeded are not deleted; a job that has waited waits no more."""
    succeeded = conditions.find(draft.conditions, ConditionType.SUCCEEDED)
    if succeeded is None or succeeded.last_transition_time is None or not grace_s:
        return 0.0
    if isinstance(spec, TFJobSpec) and spec.completion_grace_s is not None:
        return 0.0
    return _left_s(grace_s, succeeded.last_transition_time, draft.now)


def clean_up(draft: StatusDraft, spec: TFJobSpec | InvalidSpec, seen: Observed, grace_s: int = 0) -> Plan:
    """Clean up, keep the counters true, and delete the job itself when its TTL is over.

    Workers that still run when the job has succeeded are deleted `grace_s` later, though they do not count as active any more:
    in a collective training they end a moment after the chief or worker 0, and what they print and write then is not lost.

    The status of a job that another operator has ended is left as it is, and so are its pods unless the job says what is to
    become of them: the default has changed with the years, and what still runs may have been left on purpose.
    """
    left = None
    ended_at = _ended_at(draft)
    if spec.ttl_s is not None and ended_at is not None:
        left = _left_s(spec.ttl_s, ended_at, draft.now)
        if left <= 0:
            return Plan(delete_job=True)
    is_anothers_end = is_of_predecessor(draft.job.status)
    if is_anothers_end and not (isinstance(spec, TFJobSpec) and spec.says_clean_pod_policy):
        return Plan(requeue_after_s=left)
    policy = _policy(draft, spec)
    leaving = to_clean_up(policy, seen.replicas)
    # What is too many may not run on, under no policy; if it has ended it is kept or taken as all others are.
    surplus = to_clean_up(CleanPodPolicy.RUNNING if policy == CleanPodPolicy.NONE else policy, seen.surplus)
    draft.replica_statuses = without_active(_recounted(draft.replica_statuses, seen), seen.replicas, leaving)
    wait_s = _workers_wait_s(draft, spec, grace_s)
    if wait_s > 0 and any(map(_is_working, leaving)):
        leaving = [replica for replica in leaving if not _is_working(replica)]
        left = wait_s if left is None else min(left, wait_s)
    staying = {replica.key for replica in _without(seen.replicas, leaving)}
    if staying:
        staying.add(ReplicaKey.of_all(draft.job.metadata.name))
    return Plan(
        status=None if is_anothers_end else draft.freeze(),
        delete_pods=tuple(PodDeletion(replica.pod) for replica in (*leaving, *surplus) if not replica.terminating),
        delete_services=seen.services_except(staying),
        requeue_after_s=left,
    )


def to_clean_up(policy: str, replicas: Iterable[Replica]) -> list[Replica]:
    """Return the pods that are deleted after the end: all under All, none under None, those not ended under Running."""
    if policy == CleanPodPolicy.NONE:
        return []
    # By the pod, not by its outcome: a replica that is done may still burn CPU in a sidecar.
    return [replica for replica in replicas if policy == CleanPodPolicy.ALL or not replica.has_ended]


def policy_after(ended: Conditions, policy: str) -> str:
    """Return the clean-up policy after such an end: a job that was stopped by a limit leaves nothing running (B47)."""
    failed = conditions.find(ended, ConditionType.FAILED)
    stopped = failed is not None and limit_of(failed.reason, failed.message) is not None
    return CleanPodPolicy.RUNNING if stopped and policy == CleanPodPolicy.NONE else policy


def without_active(
    counts: dict[str, ReplicaStatus], replicas: Sequence[Replica], leaving: Sequence[Replica]
) -> dict[str, ReplicaStatus]:
    """Return the counters when clean-up has begun: pods that are being deleted are not active, though they may take a while."""
    staying = count(_without(replicas, leaving), counts)
    return {name: msgspec.structs.replace(found, active=staying[name].active) for name, found in counts.items()}


def _ended_at(draft: StatusDraft) -> datetime | None:
    """Return when the end was written, from which the TTL counts: also for a job that ended while no operator ran."""
    ends = (each.last_transition_time for each in draft.conditions if conditions.is_end(each))
    return next(ends, None) or draft.completion_time


def _policy(draft: StatusDraft, spec: TFJobSpec | InvalidSpec) -> str:
    """Return the clean-up policy to follow now. A specification that was never valid has none."""
    failed = conditions.find(draft.conditions, ConditionType.FAILED)
    if isinstance(spec, InvalidSpec) and failed is not None and failed.reason == ConditionReason.INVALID:
        return CleanPodPolicy.RUNNING
    return policy_after(draft.conditions, spec.clean_pod_policy)


def _recounted(recorded: dict[str, ReplicaStatus], seen: Observed) -> dict[str, ReplicaStatus]:
    """Return the counters after the end: what has succeeded or failed stays counted when its pod is gone."""
    return {
        name: msgspec.structs.replace(
            found,
            succeeded=max(found.succeeded, recorded[name].succeeded),
            failed=max(found.failed, recorded[name].failed),
        )
        for name, found in count(seen.replicas, recorded).items()
    }


def _without(replicas: Iterable[Replica], leaving: Sequence[Replica]) -> list[Replica]:
    gone = {replica.pod.metadata.uid for replica in leaving}
    return [replica for replica in replicas if replica.pod.metadata.uid not in gone]


def until_deadline(draft: StatusDraft, deadline_s: int | None) -> float | None:
    """Return the seconds that are left of `activeDeadlineSeconds`; None where there is none, or the job has not started."""
    if deadline_s is None or draft.start_time is None:
        return None
    return _left_s(deadline_s, draft.start_time, draft.now)


def _left_s(limit_s: int, since: datetime, now: datetime) -> float:
    """Return the seconds that are left of a limit: up to a second too many, since a time of the API has lost its fraction."""
    return limit_s and limit_s + 1 - (now - since).total_seconds()


def past_deadline(draft: StatusDraft, deadline_s: int | None) -> Ending | None:
    """Return the end of a job that has been active for longer than it may, None for any other."""
    left = until_deadline(draft, deadline_s)
    if left is None or left > 0:
        return None
    return Ending.by_limit(draft.job.metadata.name, EventReason.DEADLINE_EXCEEDED)


def conclude(draft: StatusDraft, ending: Ending, clean_pod_policy: str, replicas: Sequence[Replica]) -> Plan:
    """Return a plan that writes the end and does nothing else: clean-up is for later plans, once the end is written."""
    draft.end(ending.condition, ending.reason, ending.message, ending.at)
    draft.next_restart_time = None
    leaving = to_clean_up(policy_after(draft.conditions, clean_pod_policy), replicas)
    draft.replica_statuses = without_active(draft.replica_statuses, replicas, leaving)
    draft.emit(ending.event_type, ending.event_reason, ending.message)
    return Plan(status=draft.freeze(), events=tuple(draft.events))
