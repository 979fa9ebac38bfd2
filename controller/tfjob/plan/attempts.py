"""Failure policies: which rule applies to a failure, and how a whole job is restarted. Pure.

An attempt is one run of the whole job. Its number is in the status and in a label of its pods; pods without the label belong to
attempt 0. Restarting the whole job is a single status write that increments the attempt. From then on, pods of earlier attempts
are surplus: they are deleted, their outcomes are ignored, and no pod is created while one of them exists. So nothing is counted
twice, no matter where the operator is killed, and pods deleted by the restart itself match no rule. Before the first pod of an
attempt is created, the API server is asked for pods of earlier attempts, since the cache may be stale (`Plan.begins_attempt`).

Rules are evaluated in order. Each is evaluated against all failures that no earlier rule matched, the earliest failure first. A
matching action on the whole job ends the evaluation; actions on single replicas do not. Failures that no rule matches are
handled by the replica's restart policy.

A pod that is being deleted because of a disruption counts as failed immediately: its outcome may be lost with its node, and
other replicas wait for it. Only actions on the whole job apply to it, since it is replaced anyway.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from tfjob_operator.api.core import ContainerStateTerminated, EventType
from tfjob_operator.api.text import tail_of
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import (
    CONTAINER_NAME,
    AttemptReason,
    ConditionReason,
    ConditionType,
    EventReason,
    FailureReason,
    RuleAction,
)
from tfjob_operator.api.v1.restart_requests import MAX_LENGTH, why_ignored
from tfjob_operator.api.v1.types import FailurePolicy, IndexRestarts, JobAttempt, Rule, TFJob, TFJobSpec
from tfjob_operator.controller.jobs.children import Pod, ReplicaKey
from tfjob_operator.controller.jobs.pods import DEADLINE_EXCEEDED, DISRUPTION_TARGET, pending_state
from tfjob_operator.controller.tfjob.plan.clocks import Fact
from tfjob_operator.controller.tfjob.plan.ending import (
    Ending,
    cause_of,
    container_not_created,
    describe_last_failure,
    ended_containers,
    failure_at,
    failure_order,
    last_exit,
)
from tfjob_operator.controller.tfjob.plan.nodes import NO_NODE_MATCHES, NodeMatches, count_failures, stranded_types
from tfjob_operator.controller.tfjob.plan.placement import Nodes
from tfjob_operator.controller.tfjob.plan.replicas import Observed, Outcome, Replica, problems_of
from tfjob_operator.controller.tfjob.plan.silence import Stall
from tfjob_operator.controller.tfjob.plan.status import StatusDraft, next_delay, reset_for_new_attempt

MAX_HISTORY: Final = 5
"""Number of attempts kept in the status."""
MAX_MESSAGE: Final = 2048
"""Maximum length of a failure message in the history, in bytes."""
JOB_ACTIONS: Final = frozenset({RuleAction.FAIL_JOB, RuleAction.RESTART_ALL, RuleAction.RESTART_ALL_UNCOUNTED})
"""Actions on the whole job."""
_EVICTED: Final = frozenset({"Evicted", "EvictionByEvictionAPI"})
_LOST: Final = frozenset({"NodeLost", "DeletionByPodGC"})
_REASONS: Final = {FailureReason.EVICTED: _EVICTED, FailureReason.NODE_LOST: _LOST}


class LateReplica(NamedTuple):
    """A replica that did not start running in time, and its pod, if any."""

    key: ReplicaKey
    replica: Replica | None


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of evaluating the rules against the failures of a job."""

    action: RuleAction | None = None
    """The action on the whole job."""
    rule: Rule | None = None
    """The rule that matched."""
    key: ReplicaKey | None = None
    """The replica that caused the decision."""
    failure: Replica | None = None
    """Its pod, if it has one."""
    handled: Mapping[str, Rule] = field(default_factory=dict)
    """The rules with actions on single replicas, by UID of their pods."""
    late: Sequence[LateReplica] = ()
    """Replicas that did not start in time and that no rule matches."""
    not_running: int = 0
    """The number of replicas that are not running, including those whose time is not over."""
    next_in_s: float | None = None
    """The time until the next escalation or match of a node."""
    cause: str = ""
    """Why pods must be deleted although none has failed."""
    reason: str = ""
    """The same in one word."""
    node_matches: NodeMatches = NO_NODE_MATCHES
    """All pods on unhealthy nodes."""


NO_DECISION: Final = Decision()


def decide(
    spec: TFJobSpec,
    replicas: Iterable[Replica],
    finished: Mapping[str, Collection[int]],
    draft: StatusDraft,
    start: Decision,
    *,
    node_matches: NodeMatches = NO_NODE_MATCHES,
    stall: Stall | None = None,
) -> Decision:
    """Evaluate the rules against the failures of the current attempt. `start` is the result of `past_start_deadline`.

    `stall` is set if the job is stalled, which only rules that name it match. A pod that is being deleted because of a rule is
    not evaluated again, even if something else deletes it meanwhile. A late replica without a pod matches only rules with an
    action on the whole job.
    """
    late: Sequence[LateReplica] = start.late
    present = unfinished(replicas, finished)
    decided = {record.pod for record in draft.job.status.restarts if record.rule}
    failures = (each for each in present if has_failed(each) and not (each.terminating and each.uid in decided))
    left = sorted(failures, key=failure_order)
    handled: dict[str, Rule] = {}
    for rule in spec.failure_policy.rules if spec.failure_policy is not None else ():
        unhealthy = [
            match for match in node_matches.by_rule.get(rule.name, ()) if match.replica.pod.metadata.uid not in handled
        ]
        if unhealthy and rule.action in JOB_ACTIONS:
            replica, cause = unhealthy[0].replica, unhealthy[0].cause
            return Decision(
                rule.action,
                rule,
                replica.key,
                replica,
                cause=cause,
                reason=EventReason.NODE_SICK,
                node_matches=node_matches,
            )
        if stall is not None and stall.key.type in rule.targets and stall.reason in rule.reasons:
            return Decision(
                rule.action, rule, stall.key, cause=stall.cause, reason=stall.reason, node_matches=node_matches
            )
        matched = [match.replica for match in unhealthy] or [replica for replica in left if matches(rule, replica)]
        late_ones = [each for each in late if each.key.type in rule.targets and _is_about_late(rule)]
        if rule.action not in JOB_ACTIONS:
            late_ones = [each for each in late_ones if each.replica is not None]
        if (matched or late_ones) and rule.action in JOB_ACTIONS:
            first = LateReplica(matched[0].key, matched[0]) if matched else late_ones[0]
            return Decision(rule.action, rule, *first, node_matches=node_matches)
        matched += [each.replica for each in late_ones if each.replica is not None]
        handled |= {replica.pod.metadata.uid: rule for replica in matched if not replica.terminating}
        gone, keys = {each.uid for each in matched}, {each.key for each in late_ones}
        left = [replica for replica in left if replica.uid not in gone]
        late = [each for each in late if each.key not in keys]
    next_in_s = min((each for each in (start.next_in_s, node_matches.next_in_s) if each is not None), default=None)
    return _escalation(
        spec,
        finished,
        present,
        draft,
        replace(start, handled=handled, late=late, next_in_s=next_in_s, node_matches=node_matches),
    )


def _is_about_late(rule: Rule) -> bool:
    return rule.matches_all or FailureReason.START_DEADLINE_EXCEEDED in rule.reasons


def past_start_deadline(draft: StatusDraft, deadline_s: int, keys: Iterable[ReplicaKey], seen: Observed) -> Decision:
    """Return the replicas that did not start running in time, and when to check again.

    The deadline counts from the latest of three times: the condition Created or the resumption of the job, the start of the
    attempt, and when this process first saw the pod. For a missing pod, the third time is when the previous pod failed, when
    this process first saw none, or when the back-off ends, whichever is latest. A terminating pod is not late, nor
    is any replica while pods of an earlier attempt exist: its successor has the same name. The deadline no longer applies once
    all replicas have run at the same time. `keys` are the replicas that should have a pod.
    """
    if seen.older or (draft.begun is not None and draft.begun.all_ran):
        return NO_DECISION
    present = {replica.key: replica for replica in seen.replicas}
    waiting_keys = [
        key for key in keys if key not in present or present[key].outcome is Outcome.WAITING or present[key].terminating
    ]
    since = _waiting_since(draft)
    records = {(record.type, record.index): record for record in draft.restarts} if waiting_keys else {}
    late, left = [], []
    for key in waiting_keys:
        replica, record = present.get(key), records.get((key.type, key.index))
        if replica is not None and replica.terminating:
            continue
        times = [since]
        if replica is not None:
            times.append(draft.first_seen(replica.pod))
        else:  # it may have had a pod of which the status knows nothing, such as one that was evicted before it ran
            times.append(draft.observer.first_seen(Fact.ABSENT, key.name))
            times += [] if record is None else _restart_times(draft, record)
        left_s = deadline_s + 1 - (draft.now - max(times)).total_seconds()
        if left_s > 0:
            left.append(left_s)
        else:
            late.append(LateReplica(key, replica))
    if (
        not waiting_keys
        and draft.begun is not None
        and all(each.outcome is not Outcome.FAILED for each in present.values())
    ):
        draft.begun = msgspec.structs.replace(draft.begun, all_ran=True)
    return Decision(late=late, not_running=len(waiting_keys), next_in_s=min(left, default=None))


def _waiting_since(draft: StatusDraft) -> datetime:
    """Return when the job started to wait for its pods: when it was first seen or resumed, or at the start of its attempt.

    It was first seen when Created was written. The creation of the job is by the API server's clock.
    """
    created = conditions.find(draft.conditions, ConditionType.CREATED)
    resumed = conditions.find(draft.conditions, ConditionType.SUSPENDED)
    times = [condition.last_transition_time for condition in (created, resumed) if condition is not None]
    begins = [draft.observer.begins(moment) for moment in times if moment is not None]
    attempt = _attempt_start(draft)
    return max(begins if attempt is None else [*begins, attempt], default=draft.timestamp)


def _attempt_start(draft: StatusDraft) -> datetime | None:
    """Return when pods of this attempt could be created: the end of the previous one plus the delay; None for the first."""
    ended = draft.attempt_history[-1].end_time if draft.attempt_history else None
    if ended is None or draft.begun is None:
        return None
    return draft.observer.begins(ended) + timedelta(seconds=draft.begun.delay_s)


def _restart_times(draft: StatusDraft, record: IndexRestarts) -> list[datetime]:
    """Return when the recorded pod failed, and when the delay of its successor ends, if it is delayed."""
    if record.failed_at is None:
        return []
    failed = draft.observer.begins(record.failed_at)
    return [failed] if record.next_time is None else [failed, failed + (record.next_time - record.failed_at)]


def has_failed(replica: Replica) -> bool:
    """Return True if rules apply to this pod: it failed or is being deleted because of a disruption.

    A pod that restarts after any exit code (restartPolicy Always) has not failed if it exited with 0.
    """
    if replica.terminating:
        return replica.disrupted and replica.outcome is not Outcome.SUCCEEDED
    if replica.outcome is not Outcome.FAILED:
        return False
    return replica.disrupted or replica.ended is None or replica.ended.exit_code != 0 or bool(replica.pod.status.reason)


def matches(rule: Rule, replica: Replica) -> bool:
    """Return True if the rule matches this failure of a replica."""
    pod = replica.pod
    if replica.type not in rule.targets or rule.is_about_nodes:
        return False
    if rule.exit_codes is not None:
        return any(rule.exit_codes.matches(name, ended.exit_code) for name, ended in ended_containers(pod))
    if rule.pod_conditions:
        present = {(condition.type, condition.status) for condition in pod.status.conditions or ()}
        return any(condition in present for condition in rule.pod_conditions)
    return not rule.reasons or not rule.reasons.isdisjoint(reasons_of(pod))


def reasons_of(pod: Pod) -> Iterator[FailureReason]:
    """Yield the reasons for which a pod failed."""
    if any(ended.reason == FailureReason.OOM_KILLED for _, ended in ended_containers(pod)):
        yield FailureReason.OOM_KILLED
    if pod.status.reason == DEADLINE_EXCEEDED:
        yield FailureReason.DEADLINE_EXCEEDED
    found = {pod.status.reason}
    for condition in pod.status.conditions or ():
        if condition.type == DISRUPTION_TARGET and condition.status == conditions.TRUE:
            found.add(condition.reason)
    yield from (reason for reason, names in _REASONS.items() if not names.isdisjoint(found))


def _escalation(
    spec: TFJobSpec,
    finished: Mapping[str, Collection[int]],
    present: Iterable[Replica],
    draft: StatusDraft,
    decision: Decision,
) -> Decision:
    """Return the decision, escalated if a replica that a rule restarted is not running again in time.

    The time counts from when its next pod may be created: the operator itself delays the pod, and it has the name of the
    previous one. So nothing is escalated while that pod exists. Once the next pod exists, it has the whole time again.
    """
    policy = spec.failure_policy
    rules = {rule.name: rule for rule in (policy.rules if policy is not None else ()) if rule.escalation is not None}
    pods = {(replica.type, replica.index): replica for replica in present}
    due: list[float] = []
    for record in draft.job.status.restarts:
        rule = rules.get(record.rule)
        replica = pods.get((record.type, record.index))
        if rule is None or rule.escalation is None or record.failed_at is None or runs_again(record, replica):
            continue
        if record.index >= spec.sizes.get(record.type, 0) or record.index in finished[record.type]:
            continue
        if replica is not None and replica.uid == record.pod:
            continue
        key = ReplicaKey.of(draft.job.metadata.name, record.type, record.index)
        seen = draft.observer.first_seen(Fact.ABSENT, key.name) if replica is None else draft.first_seen(replica.pod)
        since = max(*_restart_times(draft, record), seen)
        left_s = rule.escalation.after_s - (draft.now - since).total_seconds()
        if left_s <= 0:
            return Decision(
                rule.escalation.action, rule, key, replica, decision.handled, node_matches=decision.node_matches
            )
        due.append(left_s)
    if decision.next_in_s is not None:
        due.append(decision.next_in_s)
    return replace(decision, next_in_s=min(due, default=None))


def runs_again(record: IndexRestarts, replica: Replica | None) -> bool:
    """Return True if the recorded replica is running in a new pod."""
    return replica is not None and replica.pod.metadata.uid != record.pod and replica.outcome is Outcome.ACTIVE


def _annotation(job: TFJob) -> str:
    return "" if job.metadata.annotations is None else job.metadata.annotations.restart_requested_at


def ignored_request(job: TFJob, now: datetime) -> str:
    """Return why the annotation of this job requests no restart although it is set; "" if it does or did."""
    request = _annotation(job)
    return request and why_ignored(request, job.status.observed_restart_request, now)


def restart_requested(draft: StatusDraft, replicas: Iterable[Replica]) -> bool:
    """Return True if a user's request to restart the whole job is still pending; record the request.

    A job that has not started cannot be restarted. If all pods have a higher attempt than the status, an older release has
    dropped the attempt and the observed request from the status: both are restored, and nothing is restarted.
    """
    wanted = "" if ignored_request(draft.job, draft.now) else _annotation(draft.job)
    if len(draft.observed_restart_request) > MAX_LENGTH:  # recorded by an older release
        draft.observed_restart_request = ""
    attempt = min((replica.attempt for replica in replicas), default=0)
    if not draft.observed_restart_request and draft.attempt < attempt:
        draft.attempt = attempt
        draft.observed_restart_request = wanted
    if not wanted or wanted == draft.observed_restart_request:
        return False
    draft.observed_restart_request = wanted
    return draft.job.status.begun is not None


def ending_of(draft: StatusDraft, policy: FailurePolicy, decision: Decision) -> Ending | None:
    """Return the outcome of a job that fails by the action FailJob or exceeds its number of restarts, else None.

    The last attempt is added to the history.
    """
    if decision.rule is None:
        return None
    meta, failure = draft.job.metadata, decision.failure
    if decision.action is RuleAction.FAIL_JOB:
        _add_to_history(draft, decision)
        text = f"TFJob {meta.namespace}/{meta.name} has failed by rule {decision.rule.name}: {_cause(draft, decision)}"
        return Ending.by_rule(text, None if failure is None else failure_at(failure))
    if decision.action is RuleAction.RESTART_ALL and draft.counted_restarts >= (policy.max_restarts or 0):
        _add_to_history(draft, decision)
        cause = _cause(draft, decision)
        return Ending.by_limit(meta.name, EventReason.MAX_RESTARTS_EXCEEDED, f"{cause[0].upper()}{cause[1:]}")
    return None


def attempt_of_end(draft: StatusDraft, ending: Ending) -> JobAttempt | None:
    """Return the last attempt of a failed job; None if no replica decided that.

    At the backoffLimit, the last failure of the replica counts: its containers may be running again. At the start deadline, the
    replica has not failed, but its pod, if it has one, shows what keeps it from running. At the active deadline, either is true
    of a replica that was not running.
    """
    if ending.event_reason in {ConditionReason.BY_RULE, EventReason.MAX_RESTARTS_EXCEEDED}:
        return draft.attempt_history[-1]
    if ending.key is None:
        return None
    if ending.event_reason is EventReason.DEADLINE_EXCEEDED:
        failure = ending.failure
        if failure is not None and describe_last_failure(failure.pod):
            return _attempt(draft, Decision(key=ending.key, failure=failure), at_limit=True)
        attempt = _attempt(draft, Decision(key=ending.key, failure=failure))
        message = tail_of(f"was not running: {ending.why}", MAX_MESSAGE)
        return msgspec.structs.replace(attempt, reason=AttemptReason.NOT_RUNNING, message=message)
    by_restarts = ending.event_reason is not EventReason.START_DEADLINE_EXCEEDED
    return _attempt(draft, Decision(key=ending.key, failure=ending.failure), at_limit=by_restarts)


def unfinished(replicas: Iterable[Replica], finished: Mapping[str, Collection[int]]) -> list[Replica]:
    """Return the replicas that have not succeeded."""
    return [replica for replica in replicas if replica.index not in finished[replica.type]]


def count_on_nodes(
    draft: StatusDraft,
    spec: TFJobSpec,
    decision: Decision,
    seen: Observed,
    *,
    finished: Mapping[str, Collection[int]],
    causes: Iterable[Replica],
    nodes: Nodes | None,
) -> Collection[str]:
    """Count failures on their nodes, and return the UIDs of the pods.

    A program failure counts only if it is one of `causes`, the failures that trigger a restart. When one replica of a
    collective training fails, others fail as a consequence, on healthy nodes.
    """
    disrupted = [
        replica for replica in unfinished(seen.replicas, finished) if replica.disrupted and has_failed(replica)
    ]
    every = (*seen.replicas, *seen.surplus)
    stranded = stranded_types(draft.job, spec, nodes.cluster if nodes is not None else None)
    return count_failures(draft, spec, [*causes, *disrupted], decision.node_matches, every, stranded=stranded)


def delayed_replicas(draft: StatusDraft, missing: Sequence[ReplicaKey]) -> Collection[ReplicaKey]:
    """Return the replicas whose pods are not created yet because of delayed restarts; record the next restart time."""
    due: dict[ReplicaKey, datetime] = {}
    whole = _attempt_start(draft) if draft.begun is not None and draft.begun.delay_s else None
    if missing and (whole is not None or any(record.next_time for record in draft.restarts)):
        times = {(record.type, record.index): _restart_times(draft, record) for record in draft.restarts}
        for key in missing:
            found = [*times.get((key.type, key.index), ()), *([] if whole is None else [whole])]
            if found and max(found) > draft.now:
                due[key] = max(found)
    draft.next_restart_time = min(due.values(), default=None)
    return due.keys()


def drop_delays(draft: StatusDraft) -> None:
    """Forget delays that an operator has recorded which delays restarts, unlike this one."""
    if draft.has_delays:
        draft.restarts = tuple(msgspec.structs.replace(restart, next_time=None) for restart in draft.restarts)
        draft.next_restart_time = None
        draft.begun = draft.begun and msgspec.structs.replace(draft.begun, delay_s=0)


def restart_all(
    draft: StatusDraft, spec: TFJobSpec, decision: Decision, pods: Iterable[Replica], *, delays: bool
) -> None:
    """Start the next attempt. This changes only the status. Afterwards, all `pods` belong to an earlier attempt.

    After a rollback to a release without attempts, pods may have a higher attempt than the status.
    """
    name, failure, rule = draft.job.metadata.name, decision.failure, decision.rule
    why = "a user requested it" if rule is None else f"of rule {rule.name}: {_cause(draft, decision)}"
    delay_s = 0
    if delays and draft.attempt_history and failure is not None and not (failure.disrupted or decision.cause):
        delay_s = next_delay(draft.begun.delay_s if draft.begun is not None else 0, _running_s(draft))
    draft.begin_execution()
    draft.attempt = max([draft.attempt, *(pod.attempt for pod in pods)])
    _add_to_history(draft, decision)
    draft.next_restart_time = draft.timestamp + timedelta(seconds=delay_s) if delay_s else None
    if draft.begun is not None:
        draft.begun = msgspec.structs.replace(draft.begun, delay_s=delay_s, all_ran=False)
    draft.restarts = reset_for_new_attempt(draft.restarts)
    draft.attempt += 1
    draft.counted_restarts += decision.action is RuleAction.RESTART_ALL
    if spec.failure_policy is None or not spec.failure_policy.keeps_finished:
        draft.finished_indices = {}
    message = f"TFJob {name} restarts as attempt {draft.attempt} because {why}"
    draft.set_true(ConditionType.RESTARTING, ConditionReason.RESTARTING, message)
    draft.emit(EventType.WARNING if rule is not None else EventType.NORMAL, EventReason.RESTARTED_ALL, message)


def _add_to_history(draft: StatusDraft, decision: Decision) -> None:
    """Add the current attempt, which ends now, to the history."""
    draft.attempt_history = (*draft.attempt_history, _attempt(draft, decision))[-MAX_HISTORY:]


def _attempt(draft: StatusDraft, decision: Decision, *, at_limit: bool = False) -> JobAttempt:
    """Return the current attempt, which ends now. Its start is when its pods could be created."""
    failure, key = decision.failure, decision.key
    failed = failure if failure is not None and (at_limit or has_failed(failure)) else None
    container, ended = _exit_of(failed) if failed is not None else ("", None)
    stuck = container_not_created(failed.pod) if failed is not None and ended is None else None
    if key is None:
        message = ""
    elif failed is None or decision.cause:
        message = decision.cause or _describe_late(draft, decision)
    else:
        status, last = failed.pod.status, "" if ended is None else ended.message
        if stuck is not None:
            container, last = stuck[0], stuck[1].message
        message = (status.message or last) if status.reason else (last or status.message)
    starts = [moment for moment in (draft.start_time, _attempt_start(draft)) if moment is not None]
    return JobAttempt(
        number=draft.attempt,
        start_time=max(starts, default=None),
        end_time=draft.timestamp,
        reason=_reason(decision, failed, ended),
        rule="" if decision.rule is None else decision.rule.name,
        action=decision.action or "",
        replica_type="" if key is None else key.type,
        replica_index=None if key is None else key.index,
        pod_name="" if failure is None else failure.pod.metadata.name,
        node_name="" if failure is None else failure.pod.node,
        container_name=container,
        exit_code=None if ended is None else ended.exit_code,
        message=tail_of(message, MAX_MESSAGE),
    )


def _exit_of(replica: Replica) -> tuple[str, ContainerStateTerminated | None]:
    """Return the container that made a pod fail, and how it ended, as in the messages of `cause_of` and `most_restarts`."""
    return last_exit(replica.pod) or ("" if replica.ended is None else CONTAINER_NAME, replica.ended)


def _reason(decision: Decision, failed: Replica | None, ended: ContainerStateTerminated | None) -> str:
    """Return the cause of a decision in one word: a reason known to rules, else that of the pod or its container."""
    if decision.key is None:
        return AttemptReason.RESTART_REQUESTED
    if decision.reason:
        return decision.reason
    if failed is not None:
        exit_reason = "" if ended is None else ended.reason
        stuck = container_not_created(failed.pod)
        exit_reason = stuck[1].reason if stuck is not None else exit_reason
        return next(reasons_of(failed.pod), failed.pod.status.reason or exit_reason or "Error")
    if decision.rule is not None and decision.action is not decision.rule.action:
        return AttemptReason.NOT_RUNNING_AGAIN
    return FailureReason.START_DEADLINE_EXCEEDED


def _cause(draft: StatusDraft, decision: Decision) -> str:
    name = "a replica" if decision.key is None else f"pod {decision.key.name}"
    if decision.cause:
        return f"{name}: {decision.cause}"
    if decision.failure is None or not has_failed(decision.failure):
        return f"{name} {_describe_late(draft, decision)}"
    return f"{name}: {cause_of(decision.failure.pod, decision.failure.ended)}"


def _describe_late(draft: StatusDraft, decision: Decision) -> str:
    """Return a message saying that a replica did not run in time, with the state of its pod."""
    again = " again" if decision.rule is not None and decision.action is not decision.rule.action else ""
    return f"did not run{again} in time: {why_late(draft, decision.failure)}"


def why_late(draft: StatusDraft, replica: Replica | None) -> str:
    """Return what keeps a replica from running: the problem, the last failure or the state of its pod, or why it has none."""
    if replica is None:
        return (
            "its pod waits for the PodGroup of the job" if draft.waits else "it has no pod, see the events of the job"
        )
    problem = next((each.words for each in problems_of([replica]) if each.words), "")
    return problem or describe_last_failure(replica.pod) or pending_state(replica.pod)


def _running_s(draft: StatusDraft) -> float:
    running = conditions.find(draft.job.status.conditions, ConditionType.RUNNING)
    if running is None or running.status != conditions.TRUE or running.last_transition_time is None:
        return 0.0
    return (draft.now - running.last_transition_time).total_seconds()
