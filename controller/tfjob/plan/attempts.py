"""Failure policies: which rule decides about a failure, and how a whole job is restarted. Pure.

An attempt is one run of the whole job. Its number is part of the status, and a label of its pods; pods without the label are of
attempt 0. A restart of the whole job is one status write, in which the attempt rises by one. From then on pods of earlier
attempts are surplus: they are deleted, whatever they end with is not looked at, and while one of them exists no pod is created.
So nothing is counted twice whatever call the operator is killed after, and a pod that the restart itself deletes matches no
rule. Before the first pod of an attempt is created, the API server is asked whether a pod of an earlier one is left, since a
cache may lag behind it (`Plan.begins_attempt`).

Rules are tried in their order, each on all failures that no rule before it has decided about, the earliest first. An action on
the whole job ends that; actions on replicas do not. A failure that no rule matches follows the replica's restart policy.

A pod that is being deleted because the cluster takes it away counts as failed at once: its node may go with it, and with it
what it ended with, while the other replicas wait for it. Only actions on the whole job apply to it: it is replaced anyway.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from tfjob_operator.api.core import EventType
from tfjob_operator.api.text import last_words
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import (
    ConditionReason,
    ConditionType,
    EventReason,
    FailureReason,
    RuleAction,
)
from tfjob_operator.api.v1.types import FailurePolicy, IndexRestarts, JobAttempt, Rule, TFJobSpec
from tfjob_operator.controller.jobs.children import Pod, ReplicaKey
from tfjob_operator.controller.jobs.pods import DEADLINE_EXCEEDED, DISRUPTION_TARGET
from tfjob_operator.controller.tfjob.plan.ending import (
    Ending,
    cause_of,
    ended_containers,
    failure_at,
    pod_ended_at,
)
from tfjob_operator.controller.tfjob.plan.nodes import NO_HITS, Hits, count_failures
from tfjob_operator.controller.tfjob.plan.replicas import Observed, Outcome, Replica, problems_of
from tfjob_operator.controller.tfjob.plan.status import StatusDraft, next_delay, of_a_new_attempt

MAX_BY_LABEL: Final = 10**6
"""A larger number on a pod was written by a user. The number of an attempt must stay one that `attempt_of` reads."""
MAX_HISTORY: Final = 5
"""Attempts that the status remembers."""
MAX_MESSAGE: Final = 2048
"""Bytes of the message of a failure in that history."""
OF_THE_JOB: Final = frozenset({RuleAction.FAIL_JOB, RuleAction.RESTART_ALL, RuleAction.RESTART_ALL_UNCOUNTED})
"""Actions on the whole job."""
_EVICTED: Final = frozenset({"Evicted", "EvictionByEvictionAPI"})
_LOST: Final = frozenset({"NodeLost", "DeletionByPodGC"})
_REASONS: Final = {FailureReason.EVICTED: _EVICTED, FailureReason.NODE_LOST: _LOST}


class Late(NamedTuple):
    """A replica that did not run in time, and its pod if it has one."""

    key: ReplicaKey
    replica: Replica | None


@dataclass(frozen=True, slots=True)
class Decision:
    """What the rules say about the failures of a job.

    `action` is one on the whole job, None if there is none; `rule` has decided about it, because of the replica `key`, and
    `failure` is its pod if it has one. `handled` are the rules that decided about single replicas, by the UID of the pod.
    `late` are replicas that did not run in time, and that no rule is about. `next_in_s` is when the next escalation or
    hit is due. `cause` is why the pod of `failure` is to go if it has not failed; `hits` are all pods on sick nodes.
    """

    action: RuleAction | None = None
    rule: Rule | None = None
    key: ReplicaKey | None = None
    failure: Replica | None = None
    handled: Mapping[str, Rule] = field(default_factory=dict)
    late: Sequence[Late] = ()
    next_in_s: float | None = None
    cause: str = ""
    hits: Hits = NO_HITS


NO_DECISION: Final = Decision()


def decide(
    spec: TFJobSpec,
    replicas: Iterable[Replica],
    finished: Mapping[str, Collection[int]],
    draft: StatusDraft,
    start: Decision,
    *,
    hits: Hits = NO_HITS,
) -> Decision:
    """Apply the rules to the failures of the present attempt. `start` is what `past_start_deadline` returned.

    `hits` are those of rules about nodes. A pod that is being deleted since a rule decided about it has had its decision,
    whatever takes it away meanwhile. Only a rule about the whole job can be about a late replica without a pod.
    """
    late: Sequence[Late] = start.late
    present = unfinished(replicas, finished)
    decided = {record.pod for record in draft.job.status.restarts if record.rule}
    failures = (each for each in present if has_failed(each) and not (each.terminating and each.uid in decided))
    left = sorted(failures, key=lambda each: (pod_ended_at(each.pod), each.type, each.index))
    handled: dict[str, Rule] = {}
    for rule in spec.failure_policy.rules if spec.failure_policy is not None else ():
        sick = [hit for hit in hits.by_rule.get(rule.name, ()) if hit.replica.pod.metadata.uid not in handled]
        if sick and rule.action in OF_THE_JOB:
            return Decision(rule.action, rule, sick[0].replica.key, sick[0].replica, cause=sick[0].cause, hits=hits)
        matched = [hit.replica for hit in sick] or [replica for replica in left if matches(rule, replica)]
        late_ones = [each for each in late if each.key.type in rule.targets and _is_about_late(rule)]
        if rule.action not in OF_THE_JOB:
            late_ones = [each for each in late_ones if each.replica is not None]
        if (matched or late_ones) and rule.action in OF_THE_JOB:
            first = Late(matched[0].key, matched[0]) if matched else late_ones[0]
            return Decision(rule.action, rule, *first, hits=hits)
        matched += [each.replica for each in late_ones if each.replica is not None]
        handled |= {replica.pod.metadata.uid: rule for replica in matched if not replica.terminating}
        gone, keys = {replica.uid for replica in matched}, {each.key for each in late_ones}
        left = [replica for replica in left if replica.uid not in gone]
        late = [each for each in late if each.key not in keys]
    next_in_s = min((each for each in (start.next_in_s, hits.next_in_s) if each is not None), default=None)
    return _escalation(
        spec, finished, present, draft, replace(start, handled=handled, late=late, next_in_s=next_in_s, hits=hits)
    )


def _is_about_late(rule: Rule) -> bool:
    return rule.matches_all or FailureReason.START_DEADLINE_EXCEEDED in rule.reasons


def past_start_deadline(
    draft: StatusDraft, deadline_s: int, keys: Iterable[ReplicaKey], replicas: Iterable[Replica]
) -> Decision:
    """Return the replicas that did not run in time, and when there may be more of them.

    The time counts from the last of these: the creation or resumption of the job, the beginning of the attempt, the creation of
    the pod, or where it is missing the failure of the one before it and the end of its back-off. A pod that is being deleted is
    not late. The time ends when all replicas have run at the same time. `keys` are the replicas that should have a pod.
    """
    if draft.begun is not None and draft.begun.all_ran:
        return NO_DECISION
    present = {replica.key: replica for replica in replicas}
    waits = [
        key for key in keys if key not in present or present[key].outcome is Outcome.WAITING or present[key].terminating
    ]
    since = _attempt_began(draft)
    records = {(record.type, record.index): record for record in draft.restarts} if waits else {}
    late, left = [], []
    for key in waits:
        replica, record = present.get(key), records.get((key.type, key.index))
        if replica is not None and replica.terminating:
            continue
        times = [replica.pod.metadata.creation_timestamp] if replica is not None else []
        if replica is None and record is not None:
            times += [record.failed_at, record.next_time]
        left_s = deadline_s + 1 - (draft.now - max([since, *(each for each in times if each)])).total_seconds()
        if left_s > 0:
            left.append(left_s)
        else:
            late.append(Late(key, replica))
    if not waits and draft.begun is not None and all(each.outcome is not Outcome.FAILED for each in present.values()):
        draft.begun = msgspec.structs.replace(draft.begun, all_ran=True)
    return Decision(late=late, next_in_s=min(left, default=None))


def _attempt_began(draft: StatusDraft) -> datetime:
    """Return when the job began to wait for its pods: when it was created or resumed, or its attempt began."""
    resumed = conditions.find(draft.conditions, ConditionType.SUSPENDED)
    times = [draft.job.metadata.creation_timestamp, resumed.last_transition_time if resumed is not None else None]
    if draft.attempt_history and draft.begun is not None and (ended := draft.attempt_history[-1].end_time) is not None:
        times.append(ended + timedelta(seconds=draft.begun.delay_s))
    return max((each for each in times if each is not None), default=draft.start_time or draft.whole)


def has_failed(replica: Replica) -> bool:
    """Return whether rules are about this pod: it has failed, or the cluster is taking it away.

    A pod that restarts whatever its exit code is (restartPolicy Always) has not failed if that is 0.
    """
    if replica.terminating:
        return replica.disrupted and replica.outcome is not Outcome.SUCCEEDED
    if replica.outcome is not Outcome.FAILED:
        return False
    return replica.disrupted or replica.ended is None or replica.ended.exit_code != 0 or bool(replica.pod.status.reason)


def matches(rule: Rule, replica: Replica) -> bool:
    """Return whether a rule is about this failure of a replica."""
    pod = replica.pod
    if replica.type not in rule.targets or rule.is_about_nodes:
        return False
    if rule.exit_codes is not None:
        return any(rule.exit_codes.matches(name, ended.exit_code) for name, ended in ended_containers(pod))
    if rule.pod_conditions:
        present = {(each.type, each.status) for each in pod.status.conditions or ()}
        return any(each in present for each in rule.pod_conditions)
    return not rule.reasons or not rule.reasons.isdisjoint(reasons_of(pod))


def reasons_of(pod: Pod) -> Iterator[FailureReason]:
    """Yield the reasons for which a pod failed."""
    if any(ended.reason == FailureReason.OOM_KILLED for _, ended in ended_containers(pod)):
        yield FailureReason.OOM_KILLED
    if pod.status.reason == DEADLINE_EXCEEDED:
        yield FailureReason.DEADLINE_EXCEEDED
    found = {pod.status.reason}
    for each in pod.status.conditions or ():
        if each.type == DISRUPTION_TARGET and each.status == conditions.TRUE:
            found.add(each.reason)
    yield from (reason for reason, names in _REASONS.items() if not names.isdisjoint(found))


def _escalation(
    spec: TFJobSpec,
    finished: Mapping[str, Collection[int]],
    present: Iterable[Replica],
    draft: StatusDraft,
    decision: Decision,
) -> Decision:
    """Return the decision with an escalation if a replica that a rule restarted does not run again in time.

    The time counts from when its next pod may be created: the back-off is this operator's own doing.
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
        since = max(record.failed_at, record.next_time or record.failed_at)
        left_s = rule.escalation.after_s - (draft.now - since).total_seconds()
        if left_s <= 0:
            key = ReplicaKey.of(draft.job.metadata.name, record.type, record.index)
            return Decision(rule.escalation.action, rule, key, replica, decision.handled, hits=decision.hits)
        due.append(left_s)
    if decision.next_in_s is not None:
        due.append(decision.next_in_s)
    return replace(decision, next_in_s=min(due, default=None))


def runs_again(record: IndexRestarts, replica: Replica | None) -> bool:
    """Return whether the replica of a record that a rule restarted runs in another pod."""
    return replica is not None and replica.pod.metadata.uid != record.pod and replica.outcome is Outcome.ACTIVE


def restart_requested(draft: StatusDraft, wanted: str) -> bool:
    """Return whether a user requests a restart of the whole job that it has not had yet, and take note of the request.

    `wanted` is the value of the annotation. A job that has not begun has nothing to restart.
    """
    if not wanted or wanted == draft.observed_restart_request:
        return False
    draft.observed_restart_request = wanted
    return draft.job.status.begun is not None


def ending_of(draft: StatusDraft, policy: FailurePolicy, decision: Decision) -> Ending | None:
    """Return the end of a job by the action FailJob, or since it was restarted as often as it may be; None for any other.

    The last attempt is then part of the history.
    """
    if decision.rule is None:
        return None
    meta, failure = draft.job.metadata, decision.failure
    if decision.action is RuleAction.FAIL_JOB:
        _remember(draft, decision)
        text = f"TFJob {meta.namespace}/{meta.name} has failed by rule {decision.rule.name}: {_cause(decision)}"
        return Ending.by_rule(text, None if failure is None else failure_at(failure))
    if decision.action is RuleAction.RESTART_ALL and draft.counted_restarts >= (policy.max_restarts or 0):
        _remember(draft, decision)
        cause = _cause(decision)
        return Ending.by_limit(meta.name, EventReason.MAX_RESTARTS_EXCEEDED, f"{cause[0].upper()}{cause[1:]}")
    return None


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
) -> Collection[str]:
    """Count failures on their nodes, and return the UIDs of their pods.

    Of programs only `causes` count, by which something is restarted.
    When one replica of a collective training fails, others fail because of it, on nodes that have nothing to do with it.
    """
    disrupted = [each for each in unfinished(seen.replicas, finished) if each.disrupted and has_failed(each)]
    every = (*seen.replicas, *seen.surplus)
    return count_failures(draft, spec.node_avoidance, [*causes, *disrupted], decision.hits, every)


def waiting(draft: StatusDraft, missing: Sequence[ReplicaKey]) -> Collection[ReplicaKey]:
    """Return the replicas whose pods are not created yet, since restarts are delayed, and note when the first will be."""
    due: dict[ReplicaKey, datetime] = {}
    whole = None
    if draft.attempt_history and draft.begun is not None and draft.begun.delay_s:
        ended = draft.attempt_history[-1].end_time
        whole = ended and ended + timedelta(seconds=draft.begun.delay_s)
    if missing and (whole is not None or any(record.next_time for record in draft.restarts)):
        times = {(record.type, record.index): record.next_time for record in draft.restarts}
        for key in missing:
            found = [each for each in (whole, times.get((key.type, key.index))) if each is not None]
            if found and max(found) > draft.now:
                due[key] = max(found)
    draft.next_restart_time = min(due.values(), default=None)
    return due.keys()


def restart_all(
    draft: StatusDraft, spec: TFJobSpec, decision: Decision, pods: Iterable[Replica], *, delays: bool
) -> None:
    """Begin the next attempt: in the status alone, by which all `pods` become those of an earlier one.

    After a roll-back to a release that does not know attempts, pods may be of a higher one than the status says.
    """
    name, failure, rule = draft.job.metadata.name, decision.failure, decision.rule
    why = "a user requested it" if rule is None else f"of rule {rule.name}: {_cause(decision)}"
    delay_s = 0
    if delays and draft.attempt_history and failure is not None and not (failure.disrupted or decision.cause):
        delay_s = next_delay(draft.begun.delay_s if draft.begun is not None else 0, _running_s(draft))
    _remember(draft, decision)
    draft.next_restart_time = draft.whole + timedelta(seconds=delay_s) if delay_s else None
    if draft.begun is not None:
        draft.begun = msgspec.structs.replace(draft.begun, delay_s=delay_s, all_ran=False)
    draft.restarts = of_a_new_attempt(draft.restarts)
    draft.attempt = max([draft.attempt, *(each.attempt for each in pods if each.attempt < MAX_BY_LABEL)]) + 1
    draft.counted_restarts += decision.action is RuleAction.RESTART_ALL
    if spec.failure_policy is None or not spec.failure_policy.keeps_finished:
        draft.finished_indices = {}
    message = f"TFJob {name} restarts as attempt {draft.attempt} because {why}"
    draft.set_true(ConditionType.RESTARTING, ConditionReason.RESTARTING, message)
    draft.emit(EventType.WARNING if rule is not None else EventType.NORMAL, EventReason.RESTARTED_ALL, message)


def _remember(draft: StatusDraft, decision: Decision) -> None:
    """Add the present attempt to the history, which ends now. It began when its pods could be created."""
    history, failure, key = draft.attempt_history, decision.failure, decision.key
    ended = None if failure is None else failure.ended
    if decision.rule is None:
        words = ""
    elif failure is None or not has_failed(failure):
        words = decision.cause or _late(decision)
    else:
        words = failure.pod.status.message if ended is None else ended.message
    began = draft.start_time
    if history and history[-1].end_time is not None and draft.begun is not None:
        began = max(history[-1].end_time + timedelta(seconds=draft.begun.delay_s), began or history[-1].end_time)
    over = JobAttempt(
        number=draft.attempt,
        start_time=began,
        end_time=draft.whole,
        reason=_reason(decision),
        rule="" if decision.rule is None else decision.rule.name,
        action=decision.action or "",
        replica_type="" if key is None else key.type,
        replica_index=None if key is None else key.index,
        pod_name="" if failure is None else failure.pod.metadata.name,
        node_name="" if failure is None else failure.pod.node,
        exit_code=None if ended is None else ended.exit_code,
        message=last_words(words, MAX_MESSAGE),
    )
    draft.attempt_history = (*history, over)[-MAX_HISTORY:]


def _reason(decision: Decision) -> str:
    """Return the cause of a decision in one word: those of rules, and of pods and containers where they say more."""
    failure = decision.failure
    if decision.rule is None:
        return "RestartRequested"
    if decision.cause:
        return EventReason.NODE_SICK
    if failure is not None and has_failed(failure):
        ended = "" if failure.ended is None else failure.ended.reason
        return next(reasons_of(failure.pod), failure.pod.status.reason or ended or "Error")
    return "NotRunningAgain" if decision.action is not decision.rule.action else FailureReason.START_DEADLINE_EXCEEDED


def _cause(decision: Decision) -> str:
    name = "a replica" if decision.key is None else f"pod {decision.key.name}"
    if decision.cause:
        return f"{name}: {decision.cause}"
    if decision.failure is None or not has_failed(decision.failure):
        return f"{name} {_late(decision)}"
    return f"{name}: {cause_of(decision.failure.pod, decision.failure.ended)}"


def _late(decision: Decision) -> str:
    """Return that a replica did not run in time, and what its pod says about that."""
    problems = problems_of([decision.failure] if decision.failure is not None else [])
    again = " again" if decision.rule is not None and decision.action is not decision.rule.action else ""
    return f"did not run{again} in time" + (f": {problems[0].event.message}" if problems else "")


def _running_s(draft: StatusDraft) -> float:
    running = conditions.find(draft.job.status.conditions, ConditionType.RUNNING)
    if running is None or running.status != conditions.TRUE or running.last_transition_time is None:
        return 0.0
    return (draft.now - running.last_transition_time).total_seconds()
