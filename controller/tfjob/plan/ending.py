"""Decides when a replica restarts, and when and how a job ends. Pure.

Failure messages name the pod, container, exit code, reason and termination message, because the pod and its log may be gone
when the message is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tfjob_operator.api.core import (
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    EventType,
    PodRestartPolicy,
)
from tfjob_operator.api.text import quoted, tail_of
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import (
    LIMITS,
    ConditionReason,
    ConditionType,
    EventReason,
    RestartPolicy,
    SuccessPolicy,
)
from tfjob_operator.api.v1.types import IndexRestarts, ReplicaStatus, Rule, TFJob, TFJobSpec, child_name
from tfjob_operator.controller.jobs.children import Pod, ReplicaKey
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.pods import (
    DEADLINE_EXCEEDED,
    DISRUPTION_TARGET,
    WAITING_REASONS,
    has_ended,
    is_not_restarted,
)
from tfjob_operator.controller.tfjob.build.builder import deciding_type
from tfjob_operator.controller.tfjob.plan.replicas import Outcome, Replica
from tfjob_operator.controller.tfjob.plan.status import StatusDraft, restarts_by_container

_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_GENERIC_REASONS: Final = frozenset({"", "Error"})
"""Reasons of a container that only mean a nonzero exit code."""
_MAX_POD_MESSAGE: Final = 200
"""Maximum length of a message about the whole pod, such as an eviction, in bytes."""
_MAX_CONTAINERS: Final = 4
"""The most containers of a pod whose restarts are listed."""


def cause_of(pod: Pod, training: ContainerStateTerminated | None) -> str:
    """Return why this pod failed. `training` is the terminated state of its training container, if known."""
    causes = []
    if taken := _pod_level_cause(pod):
        causes.append(taken)
    if failed := _failed_container(pod):
        causes.append(_describe_exit(*failed))
    elif training is not None:
        causes.append(f"its training container exited with code {training.exit_code}")
    elif not causes and (stuck := container_not_created(pod)):
        name, waiting = stuck
        causes.append(_with_words(f"container {name} did not start: {quoted(waiting.reason)}", waiting.message))
    return "; ".join(causes) or "the kubelet reported no container status"


def exit_event(pod: Pod, ended: ContainerStateTerminated | None, rule: Rule | None = None) -> JobEvent | None:
    """Return the event that reports how a pod's training ended, to be written before the pod is deleted; None if unknown."""
    if ended is None:
        return None
    meta, status = pod.metadata, pod.status
    # The pod's log is deleted with it, so the event keeps what the pod reports about its end.
    parts = [ended.reason if ended.reason not in {"", "Error"} else "", ended.message.strip()]
    if status.reason:  # what ended the whole pod, such as an eviction
        parts = [status.reason, status.message.strip()]
    detail = "".join(f": {part}" for part in parts if part)
    if rule is not None:
        detail += f" (rule {rule.name}: {rule.action.value})"
    return JobEvent(
        EventType.NORMAL,
        EventReason.EXITED_WITH_CODE,
        f"{c.EXITED.format(namespace=meta.namespace, pod=meta.name, code=ended.exit_code)}{detail}",
    )


def most_restarts(
    job: str, records: Iterable[IndexRestarts], replicas: Iterable[Replica]
) -> tuple[str, Replica | None]:
    """Return a sentence about the replica with the most restarts, and the replica if its pod still shows its last failure.

    Of several, it is the one that failed first.
    A failed pod that still exists was not replaced: its failure reached the limit and is not a restart.
    """
    pods = {replica.pod.metadata.uid: replica for replica in replicas}
    restarts = [(each.total - (each.replaced and each.pod in pods), each) for each in records]
    times = max(times for times, _ in restarts)
    most = [each for number, each in restarts if number == times]
    record = min(
        most,
        key=lambda each: (
            failure_order(pods[each.pod]) if each.pod in pods else (_NEVER, each.type != c.PS, each.type, each.index)
        ),
    )
    replica = pods.get(record.pod)
    last = describe_last_failure(replica.pod) if replica is not None else ""
    pod = f"Pod {child_name(job, record.type, record.index)}"
    if times == 0:
        text = f"{pod}: {last}" if last else f"{pod} failed"
    else:
        several = _several_containers(replica.pod) if replica is not None else ""
        text = f"{pod} was restarted most often ({'once' if times == 1 else f'{times} times'}{several})"
        text = f"{text}; its last failure: {last}" if last else text
    return text, replica if last else None


def _several_containers(pod: Pod) -> str:
    """Return how often each container of a pod was restarted in place, most often first; "" if only one was."""
    restarted = sorted(restarts_by_container(pod).items(), key=lambda each: -each[1])
    if len(restarted) < 2:
        return ""
    shown = ", ".join(f"{name} {times}" for name, times in restarted[:_MAX_CONTAINERS])
    more = f" and {len(restarted) - _MAX_CONTAINERS} others" if len(restarted) > _MAX_CONTAINERS else ""
    return f"; containers restarted in place: {shown}{more}"


def container_not_created(pod: Pod) -> tuple[str, ContainerStateWaiting] | None:
    """Return the container of a failed pod that the runtime did not create, with its state; None if one has terminated.

    Kubelets up to 1.20 fail such a pod under Never: they take the unknown container for one that has exited with 0.
    """
    if next(ended_containers(pod), None) is not None:
        return None
    waits = ((status.name, status.state.waiting) for status in _statuses(pod) if status.restart_count == 0)
    return next(((name, why) for name, why in waits if why is not None and why.reason in WAITING_REASONS), None)


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
    detail = tail_of(message, _MAX_POD_MESSAGE)
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
    failed = [container for container in ended_containers(pod) if container[1].exit_code != 0]
    return min(failed, key=lambda each: each[1].finished_at or _NEVER, default=None)


def last_exit(pod: Pod) -> tuple[str, ContainerStateTerminated] | None:
    """Return the last exit of the container that made the pod fail, else of the one the kubelet restarted most often.

    While a sidecar uses up the backoffLimit, another container may be down as well, between two of its own runs.
    """
    failed = _failed_container(pod)
    if failed is not None and (has_ended(pod) or is_not_restarted(pod.spec, failed[0], failed[1].exit_code)):
        return failed
    times = restarts_by_container(pod)
    ends = [(status.name, ended) for status in _statuses(pod) if status.name in times and (ended := _last_end(status))]
    return max(ends, key=lambda each: times[each[0]], default=failed)


def _last_end(status: ContainerStatus) -> ContainerStateTerminated | None:
    """Return how a container last terminated."""
    before = status.last_state.terminated if status.last_state is not None else None
    return status.state.terminated or before


def failure_between_runs(pod: Pod) -> ContainerStateTerminated | None:
    """Return how the training container last failed, if it is down until the kubelet restarts it; else None."""
    training = next((status for status in pod.status.container_statuses or () if status.name == c.CONTAINER_NAME), None)
    if training is None or (training.state.waiting is None and training.state.terminated is None):
        return None
    ended = _last_end(training)
    return ended if ended is not None and ended.exit_code != 0 else None


def describe_last_failure(pod: Pod) -> str:
    """Return how a pod, or the container that the kubelet restarted most often, last failed; "" if neither did."""
    last = last_exit(pod)
    return _pod_level_cause(pod) if last is None else _describe_exit(*last)


def _describe_exit(container: str, ended: ContainerStateTerminated) -> str:
    reason = "" if ended.reason in _GENERIC_REASONS else f" ({quoted(ended.reason)})"
    return _with_words(f"container {container} exited with code {ended.exit_code}{reason}", ended.message)


def _with_words(text: str, message: str) -> str:
    words = tail_of(message)
    return f"{text}{': ' if words else ''}{words}"


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
    failure: Replica | None = None
    """The replica that decided, if its restart policy, the backoffLimit or the start deadline did, and its pod exists.

    At the active deadline, a replica that was not running then.
    """
    late: ReplicaKey | None = None
    """The replica that decided without a pod, by the start deadline, or that had none at the active deadline."""
    why: str = ""
    """Why the replica was not running at the active deadline."""

    @property
    def key(self) -> ReplicaKey | None:
        """The replica that decided, with or without a pod."""
        return self.late if self.failure is None else self.failure.key

    @classmethod
    def succeeded(cls, message: str, at: datetime | None) -> Ending:
        """Return a success."""
        return cls(ConditionType.SUCCEEDED, ConditionReason.SUCCEEDED, message, ConditionReason.SUCCEEDED, at=at)

    @classmethod
    def failed(cls, message: str, failure: Replica) -> Ending:
        """Return the failure of a replica. Its event is Normal, as in the Go operators."""
        at = failure_at(failure)
        return cls(
            ConditionType.FAILED, ConditionReason.FAILED, message, ConditionReason.FAILED, at=at, failure=failure
        )

    @classmethod
    def by_rule(cls, message: str, at: datetime | None) -> Ending:
        """Return a failure caused by a rule of the failure policy."""
        return cls(
            ConditionType.FAILED, ConditionReason.BY_RULE, message, ConditionReason.BY_RULE, EventType.WARNING, at
        )

    @classmethod
    def invalid(cls, message: str) -> Ending:
        """Return the failure of a job that cannot be run as specified."""
        reason = ConditionReason.INVALID
        return cls(ConditionType.FAILED, reason, message, reason, EventType.WARNING)

    @classmethod
    def by_limit(
        cls,
        job: str,
        limit: EventReason,
        detail: str = "",
        failure: Replica | None = None,
        *,
        late: ReplicaKey | None = None,
    ) -> Ending:
        """Return a failure because one of `LIMITS` is reached; `detail` is appended as another sentence."""
        message = f"Job {job} has failed because {LIMITS[limit].words}{detail and '. '}{detail}"
        kind = EventType.WARNING
        return cls(ConditionType.FAILED, ConditionReason.LIMIT, message, limit, kind, failure=failure, late=late)


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
    failed = [
        replica
        for replica in replicas
        if replica.type in spec.replicas
        and replica.index not in finished[replica.type]
        and _is_final_failure(replica, restarting)
    ]
    if failed:
        first = min(failed, key=failure_order)
        count = sum(replica.type == first.type for replica in failed)
        pod = f"{'Pod' if len(failed) == 1 else 'The first was pod'} {first.pod.metadata.name}"
        text = f"{who} has failed because {count} {first.type} replica(s) failed. {pod}: {cause_of(first.pod, first.ended)}"
        return Verdict(ending=Ending.failed(text, first))
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


def failure_order(replica: Replica) -> tuple[datetime, bool, str, int]:
    """Return the key by which failed replicas are ordered: the first one may have caused the others to fail.

    Times have whole seconds, by the clocks of the nodes, and are in the far future if unknown. In the same second a parameter
    server comes first: the others depend on it, and it depends on none of them.
    """
    return failure_at(replica) or _NEVER, replica.type != c.PS, replica.type, replica.index


def _is_final_failure(replica: Replica, restarting: Collection[str]) -> bool:
    return replica.outcome is Outcome.FAILED and not (replica.terminating or replica.pod.metadata.uid in restarting)


def should_restart(replica: Replica, spec: TFJobSpec, retryable: Collection[int] = c.RETRYABLE_EXIT_CODES) -> bool:
    """Return True if a failed pod is to be deleted and recreated under the same name.

    A pod keeps the policy with which it was created; edits apply to later pods. Under Always and OnFailure the kubelet
    restarts containers in place, but not a pod that is itself Failed because of an eviction or a lost node. Under
    ExitCode, those with a `retryable` exit code are, and all disrupted ones: their exit code only reflects the reaction to
    SIGTERM. If the container's own policy forbids a restart, Always and OnFailure recreate only disrupted pods. Even under
    Never, disrupted workers of an elastic job and any disrupted replica that exited with 0 are recreated.
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
        return replica.disrupted or replica.ended.exit_code in retryable
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


def until_deadline(draft: StatusDraft, deadline_s: int | None) -> float | None:
    """Return the seconds left until `activeDeadlineSeconds`; None if unset or the job has not started."""
    if deadline_s is None or draft.start_time is None:
        return None
    # A start time that a former leader did not write is that of a pod, by the API server's clock. Created is always ours.
    created = conditions.find(draft.conditions, ConditionType.CREATED)
    accepted = created.last_transition_time if created is not None else None
    since = max(draft.observer.begins(moment) for moment in (draft.start_time, accepted) if moment is not None)
    return whole_seconds_left(deadline_s, since, draft.now)


def whole_seconds_left(limit_s: int, since: datetime, now: datetime) -> float:
    """Return the seconds left of a limit, plus one, since times of the API have no fraction; 0 if the limit is 0."""
    return limit_s and limit_s + 1 - (now - since).total_seconds()


def past_deadline(draft: StatusDraft, deadline_s: int | None) -> Ending | None:
    """Return the outcome of a job that exceeds its active deadline, else None. `trouble.py` adds a replica."""
    left = until_deadline(draft, deadline_s)
    if left is None or left > 0:
        return None
    return Ending.by_limit(draft.job.metadata.name, EventReason.DEADLINE_EXCEEDED)
