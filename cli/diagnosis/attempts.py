"""Failure policies: what ended a job, what its next attempt waits for, and which nodes it avoids. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Final

from tfjob_operator.api.v1.constants import (
    CONTAINER_NAME,
    LABEL_ATTEMPT,
    WORKER,
    ConditionReason,
    ConditionType,
    EventReason,
    RuleAction,
    attempt_in,
    exit_of,
)
from tfjob_operator.api.v1.restart_requests import why_ignored
from tfjob_operator.api.v1.types import IndexRestarts, TFJobSpec
from tfjob_operator.cli.diagnosis.advice import AGAIN, DESCRIBE_JOB, DESCRIBE_NODE, DESCRIBE_POD, LOGS, RESTART
from tfjob_operator.cli.diagnosis.causes import Finding, ManifestChange, Severity, error, info, warning
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.fallback import terminating
from tfjob_operator.cli.diagnosis.rows import OnJob, of_event, of_job, of_pod, on_job
from tfjob_operator.cli.diagnosis.rules import shorten, value
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.failures import failure_of, has_read_logs
from tfjob_operator.cli.model.objects import PodDetails
from tfjob_operator.cli.model.pods import is_up
from tfjob_operator.cli.model.words import (
    ago,
    ended_by,
    failed_line,
    format_restarts,
    quote,
    safe_name,
    seconds_between,
)

_TIMELINE: Final = "See how the replicas failed: kubectl tfjob timeline {job} -n {namespace}"
START_DEADLINE: Final = error(
    "start-deadline-exceeded",
    "StartDeadlineExceeded: not all replicas were running within startDeadlineSeconds of {start} {last}",
    "Not all replicas ran at the same time within runPolicy.startDeadlineSeconds",
    DESCRIBE_JOB,
    ManifestChange("correct what kept the named replica from running, or raise spec.runPolicy.startDeadlineSeconds"),
    rank=221,
)
MAX_RESTARTS: Final = error(
    "max-restarts-exceeded",
    "MaxRestartsExceeded: the whole job was restarted as often as maxRestarts allows {last}",
    "A rule restarts the whole job, which runPolicy.failurePolicy.maxRestarts does not allow again",
    DESCRIBE_JOB,
    ManifestChange("fix what made the replicas fail, and raise spec.runPolicy.failurePolicy.maxRestarts if needed"),
    rank=746,
)
BY_RULE: Final = error(
    "failed-by-rule",
    "Failed by rule {rule} of the failure policy: {words}",
    "A rule of the failure policy with the action FailJob matches a failure",
    DESCRIBE_JOB,
    ManifestChange("fix what made the replica fail, or correct rule {rule} in spec.runPolicy.failurePolicy.rules"),
    rank=761,
)
EARLIER_PODS: Final = warning(
    "attempt-waits-for-pods",
    "Attempt {attempt} waits for {who} of an earlier attempt to end ({why})",
    "The whole job is being restarted, and pods of an earlier attempt still exist",
    DESCRIBE_POD,
    "The whole job is being restarted: no pod is created while one of an earlier attempt exists",
    rank=808,
)
DELAYED: Final = warning(
    "restart-delayed",
    "Next restart in {left}, delayed after repeated failures",
    "A replica, or the whole job, failed again soon after a restart: status.nextRestartTime",
    _TIMELINE,
    "The delay is 10s at first, doubles with each failure up to 5m, and starts anew after 10m of running",
    rank=809,
)
ESCALATION: Final = warning(
    "escalation-near",
    "Rule {rule} {action} in {left}: {who} not running again yet",
    "A replica that a rule restarted is not running again, and the rule has an escalation",
    DESCRIBE_JOB,
    ManifestChange("raise afterSeconds of rule {rule} in spec.runPolicy.failurePolicy.rules", recreate=False),
    rank=807,
)
NODE_LOST: Final = warning(
    "node-lost",
    "Node {node} is lost, and pods of the job with it",
    "A node was not ready for runPolicy.nodeLostTimeoutSeconds: its pods were failed",
    DESCRIBE_NODE,
    "Make sure that the node is shut down: containers may still run there, and write the same checkpoints as those "
    "that replace them",
    AGAIN,
)
NO_RIGHT: Final = warning(
    "nodes-unavailable",
    "The operator lacked permissions for nodes {ago}: {words}",
    "The job has onNodes rules or nodeLostTimeoutSeconds, and the addon `nodes` is missing",
    "Ask your cluster administrator to run: kubectl apply -k manifests/addons/nodes",
    "If the addon was applied after this event, nothing is left to do: the operator records the event only once",
)
NOT_AVOIDED: Final = info(
    "nodes-not-avoided",
    "Nodes are not avoided: {words}",
    "No other healthy node suits the pods, or a gang scheduler or Kueue's topology assignment decides about their nodes",
    "If another component places the pods, or more nodes exist, ask your cluster administrator to cordon a sick node, by its "
    "NAME: kubectl cordon NAME",
)
STALLED: Final = warning(
    "stalled",
    "The job is stalled: {words}",
    "All replicas run, and none has written a log line for runPolicy.progressDeadlineSeconds",
    LOGS,
    "If the last lines show an evaluation, a checkpoint or a compilation, wait; else a replica hangs, such as in a collective "
    f"operation: {RESTART}",
    ManifestChange(
        "raise spec.runPolicy.progressDeadlineSeconds above the longest silence of a healthy run, or add a rule with "
        "onFailureReasons: [ProgressDeadlineExceeded] that restarts the job by itself",
        recreate=False,
    ),
)
NO_LOGS: Final = warning(
    "logs-unavailable",
    "The operator lacked the permission to read logs {ago}: {words}",
    "The job has progressDeadlineSeconds, and the addon `logs` is missing",
    "Ask your cluster administrator to run: kubectl apply -k manifests/addons/logs",
    "If the addon was applied after this event, nothing is left to do: the operator records the event only once",
    rank=912,
)
REQUEST_IGNORED: Final = warning(
    "restart-request-ignored",
    "A restart of the whole job was not requested: {words}",
    "The annotation training.kubeflow.org/restart-requested-at is too long, or its time is that of an earlier request",
    f"If the job should restart: {RESTART}",
)

_ON_NODE: Final = re.compile(r"its node (\S{1,253}) has not been ready")
"""In the event NodeLost: controller/tfjob/nodes.py."""
_SILENT: Final = re.compile(r"no new log line for \d+s in ([a-z0-9-]{1,63})")
"""In the condition Stalled: controller/tfjob/plan/progress.py."""
_ESCALATIONS: Final = {
    RuleAction.FAIL_JOB: "fails the job",
    RuleAction.RESTART_ALL: "restarts the whole job",
    RuleAction.RESTART_ALL_UNCOUNTED: "restarts the whole job",
}


def find(facts: Facts) -> Iterator[Finding]:
    """Yield the actions of rules, and what a restart waits for."""
    failed = facts.condition(ConditionType.FAILED)
    failure = failure_of(facts.job.status, failed) if failed is not None else None
    if failed is not None and failed.reason == ConditionReason.BY_RULE:
        rule = failure.rule if failure is not None else ""
        words = failed.message.partition(f" rule {rule}: ")[2] or failed.message
        values = {"rule": value(rule), "words": shorten(value(words)) or "no reason given"}
        yield Finding(BY_RULE, facts.name, (failed_line(failed), *history(facts)), values)
    if failed is not None and failure is not None and failure.reason == EventReason.NODE_LOST:
        node = value(failure.node_name)
        lost = replace(NODE_LOST, severity=Severity.ERROR)
        yield Finding(lost, facts.name, (failed_line(failed),), {"node": node}, node)
    if not (facts.finished or facts.suspended):
        yield from _earlier_pods(facts)
        yield from _ignored_request(facts)
        yield from _delayed(facts)
        yield from _escalations(facts)
        yield from _nodes(facts)
        yield from _progress(facts)


def _progress(facts: Facts) -> Iterator[Finding]:
    stalled = facts.condition(ConditionType.STALLED)
    if stalled is not None:
        match = _SILENT.search(stalled.message)
        pod = match[1] if match is not None else facts.shape.child(facts.name, WORKER, 0)
        values = {"words": shorten(value(stalled.message.partition(" is stalled: ")[2] or stalled.message)), "pod": pod}
        values |= {"container": CONTAINER_NAME, "previous": "false"}
        yield of_job(facts, STALLED, f"condition Stalled: {quote(stalled.message)}", **values)
    for event in latest(facts.job_events(EventReason.LOGS_UNAVAILABLE)):
        status = facts.job.status
        if event.at is None or not has_read_logs(status.conditions, status.attempt_history, event.at):
            yield of_event(facts, NO_LOGS, event, ago=ago(facts.now, event.at) or "once")


def _ignored_request(facts: Facts) -> Iterator[Finding]:
    annotations = facts.job.metadata.annotations
    request = annotations.restart_requested_at if annotations is not None else ""
    observed = facts.job.status.observed_restart_request
    if why := request and why_ignored(request, observed, facts.now):
        seen = f"status.observedRestartRequest: {quote(observed)}"
        yield of_job(facts, REQUEST_IGNORED, seen, words=shorten(value(why.partition(": ")[2])))


def _nodes(facts: Facts) -> Iterator[Finding]:
    for event in facts.job_events(EventReason.NODE_LOST):
        node = match[1] if (match := _ON_NODE.search(event.message)) is not None else ""
        yield of_event(facts, NODE_LOST, event, key=node, node=node)
    for event in latest(facts.job_events(EventReason.NODES_UNAVAILABLE)):
        if not _acted_on_nodes_since(facts, event.at):
            yield of_event(facts, NO_RIGHT, event, ago=ago(facts.now, event.at) or "once")
    yield from on_job(facts, [OnJob(NOT_AVOIDED, (EventReason.NODES_NOT_AVOIDED,))])


def _acted_on_nodes_since(facts: Facts, since: datetime | None) -> bool:
    """Return True if the operator has acted on a node's state after `since`: this shows that it has the permission.

    The age of the NodesUnavailable event does not show this: the operator records it only once.
    """
    history = facts.job.status.attempt_history
    times = [event.at for event in facts.job_events(EventReason.NODE_SICK, EventReason.NODE_LOST)]
    times += [attempt.end_time for attempt in history if attempt.reason == EventReason.NODE_SICK]
    return since is not None and any(moment is not None and seconds_between(since, moment) > 0 for moment in times)


def history(facts: Facts) -> list[str]:
    """Return the finished attempts as lines of evidence, newest first."""
    return [
        f"job: attempt {attempt.number} ended {ago(facts.now, attempt.end_time) or 'some time ago'}: {ended_by(attempt)}"
        for attempt in reversed(facts.job.status.attempt_history)
    ]


def attempt_of(pod: PodDetails, current: int) -> int:
    """Return the attempt of a pod of a job whose attempt is `current`, as the operator reads it."""
    return attempt_in((pod.metadata.labels or {}).get(LABEL_ATTEMPT, ""), current)


def _earlier_pods(facts: Facts) -> Iterator[Finding]:
    attempt = facts.job.status.attempt
    for pod in facts.pods:
        if attempt_of(pod, attempt) >= attempt or facts.shape.replica_of(pod) not in facts.wanted:
            continue
        age, why = terminating(facts, pod) if pod.metadata.deletion_timestamp is not None else ("", "")
        how = f"Terminating for {age}, {why}" if age else "not deleted yet"
        yield of_pod(EARLIER_PODS, pod, f"attempt {attempt_of(pod, attempt)}, {how}", attempt=str(attempt), why=how)


def _delayed(facts: Facts) -> Iterator[Finding]:
    at = facts.job.status.next_restart_time
    left_s = -(facts.age_s(at) or 0.0)
    if at is not None and left_s > 0:
        waits = [
            f"{safe_name(restart.type).lower()}-{restart.index}, {_restarts(facts, restart)}: next pod in {duration(over_s)}"
            for restart in facts.job.status.restarts
            if (over_s := -(facts.age_s(restart.next_time) or 0.0)) > 0
        ]
        seen = (f"job: status.nextRestartTime is {at:%H:%M:%S} UTC", *waits, *history(facts)[:1])
        yield Finding(DELAYED, facts.name, seen, {"left": duration(left_s)})


def _restarts(facts: Facts, record: IndexRestarts) -> str:
    """Return how often a replica was restarted. Failures that a rule ignores are not counted: events on the job show them."""
    if record.total:
        return format_restarts(record.total)
    name = facts.shape.child(facts.name, record.type, record.index)
    events = facts.job_events(EventReason.EXITED_WITH_CODE)
    times = sum(event.times for event in events if (end := exit_of(event.message)) is not None and end.pod == name)
    count = f"{times} " if times else ""
    return f"{count}failure{'s' * (times != 1)} that a rule ignores"


def _escalations(facts: Facts) -> Iterator[Finding]:
    """Yield replicas for which an escalation is due, as in controller/tfjob/plan/attempts.py.

    The operator also waits until the previous pod is gone, which it alone has seen: it may act later.
    """
    policy = facts.spec.failure_policy if isinstance(facts.spec, TFJobSpec) else None
    rules = {rule.name: rule for rule in (policy.rules if policy is not None else ()) if rule.escalation is not None}
    pods = {pod.metadata.name: pod for pod in facts.pods}
    for record in facts.job.status.restarts:
        name = facts.shape.child(facts.name, record.type, record.index)
        rule, pod = rules.get(record.rule), pods.get(name)
        if rule is None or rule.escalation is None or record.failed_at is None or name not in facts.wanted:
            continue
        if pod is not None and (pod.metadata.uid == record.pod or is_up(pod)):
            continue
        times = (record.failed_at, record.next_time, pod.metadata.creation_timestamp if pod is not None else None)
        ages = [age_s for moment in times if (age_s := facts.age_s(moment)) is not None]
        left_s = rule.escalation.after_s - min(ages)
        action = _ESCALATIONS.get(rule.escalation.action, f"takes the action {rule.escalation.action}")
        values = {"rule": value(rule.name), "action": action, "left": duration(max(left_s, 0.0))}
        seen = f"job: {safe_name(name)} failed {ago(facts.now, record.failed_at)}, rule {safe_name(rule.name)}"
        seen = f"{seen}: escalation after {duration(rule.escalation.after_s)}"
        yield Finding(ESCALATION, name, (seen,), values, rule.name)
