"""Deadlines, backoff limits, lost nodes, disrupted, restarted and silent replicas, stuck pods, Services. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from tfjob_operator.api.text import in_lines
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import (
    CONTAINER_NAME,
    EVALUATOR,
    LIMITS,
    PS,
    SELECTING_LABELS,
    AttemptReason,
    ConditionReason,
    ConditionType,
    EventReason,
    Network,
    limit_of,
)
from tfjob_operator.api.v1.indices import parse_indices
from tfjob_operator.api.v1.types import EndRecord, TFJobSpec
from tfjob_operator.cli.diagnosis import attempts, deadline, log_lines, reading, refining
from tfjob_operator.cli.diagnosis.advice import DESCRIBE_JOB, DESCRIBE_NODE, LOGS, RESTART, RETRIED
from tfjob_operator.cli.diagnosis.causes import (
    Finding,
    Group,
    ManifestChange,
    Problem,
    WhileRunning,
    error,
    info,
    warning,
)
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.fallback import TAKEN
from tfjob_operator.cli.diagnosis.rows import Condition, OnJob, in_condition, of_event, of_job, of_pod, on_job
from tfjob_operator.cli.diagnosis.rules import shorten, value
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.pods import condition_of, running_since
from tfjob_operator.cli.model.words import ago, failed_line, quote, safe_name

_FORCE: Final = (
    "Only if the node is shut down for good, so that no process of these pods can still be running: "
    "kubectl -n {namespace} delete pod {pods} --force --grace-period=0"
)
DEADLINE: Final = error(
    "deadline-exceeded",
    "DeadlineExceeded: the job was active longer than activeDeadlineSeconds of {limit}",
    "The job was active longer than runPolicy.activeDeadlineSeconds",
    ManifestChange("raise spec.runPolicy.activeDeadlineSeconds; the time until pods are scheduled counts too"),
    rank=220,
)
DEADLINE_DOWN: Final = error(
    "deadline-not-running",
    "DeadlineExceeded: not all replicas were running when activeDeadlineSeconds of {limit} were over {last}",
    "The job was active longer than runPolicy.activeDeadlineSeconds, and a replica failed or did not start then",
    DESCRIBE_JOB,
    ManifestChange("correct what kept the named replica from running, or raise spec.runPolicy.activeDeadlineSeconds"),
    rank=764,
)
BACKOFF_LIMIT: Final = error(
    "backoff-limit",
    "BackoffLimitExceeded: more failures and restarts of replicas than runPolicy.backoffLimit allows {last}",
    "The job reached runPolicy.backoffLimit",
    DESCRIBE_JOB,
    ManifestChange("fix what made the replicas fail, and raise runPolicy.backoffLimit if needed"),
    rank=745,
)
_BY_SIDECAR: Final = (
    DESCRIBE_JOB,
    ManifestChange(
        "correct container {container}: the restarts of all containers count toward backoffLimit; raise "
        "runPolicy.backoffLimit if needed"
    ),
)
"""The advice if another container than the training was restarted most often."""
LIMIT: Final = error(
    "limit-reached",
    "{reason}: {words}",
    "The job reached another limit of its spec",
    DESCRIBE_JOB,
    ManifestChange("raise the limit in {field}"),
    rank=219,
)
NODE_AWAY: Final = error(
    "node-not-ready",
    "Node {node} of {who} is not ready",
    "A pod's node is not ready or unreachable",
    DESCRIBE_NODE,
    "Pods of an unreachable node are deleted after five minutes, and recreated when the node is back or deleted",
    _FORCE,
    rank=560,
)
_LOST_LATER: Final = (
    DESCRIBE_NODE,
    (
        "When the node has not been ready for {timeout} (spec.runPolicy.nodeLostTimeoutSeconds), the operator marks its pods "
        "as failed and deletes them"
    ),
    _FORCE,
)
"""What happens to pods on a node that is not ready, if the job sets a node-lost timeout."""
STUCK: Final = error(
    "stuck-terminating",
    "Still terminating {age} after the grace period ({who})",
    "A pod exists long after its grace period, and its replica waits",
    "Check whether the node is Ready: kubectl get node {node}",
    _FORCE,
    rank=561,
)
_BY_FINALIZERS: Final = (
    (
        "The pod is deleted when its finalizers are removed, by those who set them; a forced deletion does not remove them: "
        "kubectl -n {namespace} get pod {pod} -o jsonpath='{{.metadata.finalizers}}'"
    ),
)
"""The advice if a pod that is stuck has finalizers."""
NO_SERVICE: Final = error(
    "service-missing",
    "Service not found ({who}): other replicas cannot resolve its name",
    "The Service of a replica does not exist, so its name does not resolve",
    "The operator recreates the Service within seconds",
    DESCRIBE_JOB,
    rank=562,
)
WRONG_SELECTOR: Final = error(
    "service-selector-edited",
    "The selector of Service {service} does not match pod {who}",
    "A Service's selector was edited",
    "The operator restores the selector; to see who edits it: "
    "kubectl -n {namespace} get service {service} -o yaml --show-managed-fields",
    rank=563,
)
DISRUPTED: Final = warning(
    "disrupted",
    "Disrupted by the cluster ({who}): {reason}",
    "Eviction API, preemption, taint, shutdown: the condition DisruptionTarget",
    "The pod is recreated (under restartPolicy Never only if it was deleted), and backoffLimit does not count it",
)
RESTARTING: Final = warning(
    "replicas-restarting",
    "Restarting: failed replicas are being recreated",
    "The job's condition Restarting",
    DESCRIBE_JOB,
    unless=("attempt-waits-for-pods", "restart-delayed", "escalation-near", Group.ADMISSION, Group.CRASHING),
)
_EXTEND: Final = (
    "counted from the start of the job: kubectl -n {namespace} patch tfjob {job} --type=merge "
    '--patch=\'{{"spec":{{"runPolicy":{{"activeDeadlineSeconds":{longer}}}}}}}\''
)
DEADLINE_NEAR: Final = warning(
    "deadline-near",
    "Deadline in {left}: activeDeadlineSeconds is {limit}",
    "Less than a tenth of activeDeadlineSeconds is left, or less than ten minutes",
    f"Double it, {_EXTEND}",
    rank=910,
)
DEADLINE_PASSED: Final = error(
    "deadline-passed",
    "Deadline passed {past} ago, and the job was not ended: activeDeadlineSeconds is {limit}",
    "training-operator looks at activeDeadlineSeconds only when the job or one of its pods changes, and fails the job then",
    f"Before any other change of the job, which would fail it, extend it, {_EXTEND}",
    rank=199,  # before all advice that edits the job or deletes its pods; after what is wrong with the operator
)
BACKOFF_NEAR: Final = warning(
    "backoff-limit-near",
    "One more restart fails the job: {times} of backoffLimit {limit} used",
    "The restarts have reached backoffLimit",
    DESCRIBE_JOB,
    ManifestChange("raise spec.runPolicy.backoffLimit", recreate=False),
    rank=910,
)
NOT_ADOPTED: Final = warning(
    "not-adopted",
    "A pod or Service with the job's labels cannot be adopted",
    "FailedAdoptPod, FailedAdoptService",
    "kubectl -n {namespace} get pods,services --selector=training.kubeflow.org/job-name={job}",
    RETRIED,
)
NOT_DELETED: Final = warning(
    "delete-failed",
    "The operator cannot delete a pod or another object of the job",
    "FailedDeletePod and the like: a webhook, or a missing permission",
    RETRIED,
    "Ask your cluster administrator to fix what the message names",
)
OLD_TEMPLATE: Final = info(
    "pod-template-not-applied",
    "Existing pods were created before the last edit and keep their old template ({who})",
    "The template, the restart policy or TF_CONFIG was edited after a running pod was created",
    f"If the edit is for them, recreate them; work since their last checkpoint is lost: {RESTART}",
)
RELABELLED: Final = warning(
    "children-edited",
    "Labels of the job's pods or Services are edited, and restored by the operator",
    "Labels or selectors were restored, or cannot be",
    "To see who edits them: kubectl -n {namespace} get pods --selector=training.kubeflow.org/job-name={job} -o yaml "
    "--show-managed-fields",
)
SILENT: Final = warning(
    "no-log-output",
    "Running, but no log line for {age} ({who})",
    "All replicas that train are running, and none of them has written a log line for --silent-after",
    "kubectl tfjob logs {job} -n {namespace} --tail=20",
    "Look into a container: kubectl tfjob exec {job} -n {namespace}",
    "See whether it uses CPU (needs metrics-server): kubectl -n {namespace} top pod {pod} --containers",
    f"Only if it hangs, restart all replicas; work since their last checkpoint is lost: {RESTART}",
    unless=("stalled", "running-after-exception"),
    rank=911,
)
QUIET: Final = info(
    "replica-without-log-output",
    "No log line for {age} ({who}); other replicas write",
    "A replica has written log lines and stopped, while others write",
    LOGS,
)
JOB_FAILED: Final = error(
    "job-failed",
    "Failed: {words}",
    "The job has failed, for a reason that is none of the others",
    DESCRIBE_JOB,
    ManifestChange("correct the cause that the message names", recreate=False),
    rank=229,
    unless=(
        *(Group.SPEC, Group.BATCH_JOBS, Group.CRASHING, Group.LOGS, Group.IMAGES, Group.STARTING),
        *("node-lost", "startup-failed"),
    ),
)
KEPT: Final = info(
    "finished-and-kept",
    "Finished, and kept with {pods}",
    "A job that finished over a day ago has no TTL, and still has pods",
    "Delete the job with its pods and their logs once you no longer need them: kubectl -n {namespace} delete tfjob {job}",
    rank=970,
)
SERVER_ENDED: Final = warning(
    "parameter-server-completed",
    "Exited with code 0 ({who}): workers run without this parameter server, which is not restarted",
    "A parameter server exited with code 0 while the training continues",
    LOGS,
    ManifestChange(
        "let the program of the PS serve until its pod is deleted, such as with tf.distribute.Server.join()",
        recreate=False,
    ),
    WhileRunning(
        "Restart the job, which also recreates this replica; work since the last checkpoint is lost: "
        "kubectl tfjob restart -n {namespace} {job}"
    ),
)

_NEAR_S: Final = 600.0
_ENDS_S: Final = 5.0
"""This operator ends a job within a second or two of its deadline; clocks may differ a little, too."""
_LATE_S: Final = 60.0
"""How long after its grace period a terminating pod is stuck, and the age by which a pod should have its Service."""
_DAY_S: Final = 86_400.0
"""How long the pods of a finished job are not reported, since users read their logs."""
_LONG_S: Final = 600.0
"""Older events about a repair do not describe the current state."""
_DISRUPTION: Final = Condition(DISRUPTED, "DisruptionTarget")
_DELETIONS: Final = (
    EventReason.FAILED_DELETE_POD,
    EventReason.FAILED_DELETE_SERVICE,
    EventReason.FAILED_DELETE_POD_GROUP,
)
_ON_JOB: Final = (
    OnJob(NOT_ADOPTED, (EventReason.FAILED_ADOPT_POD, EventReason.FAILED_ADOPT_SERVICE), _LONG_S),
    OnJob(NOT_DELETED, _DELETIONS, _LONG_S),
    OnJob(
        RELABELLED,
        tuple(each for each in EventReason if each.name.startswith(("RESTORED_", "FAILED_RESTORE_"))),
        _LONG_S,
    ),
)
_OF_LIMITS: Final[Mapping[EventReason | None, Problem]] = {
    EventReason.DEADLINE_EXCEEDED: DEADLINE,
    EventReason.BACKOFF_LIMIT_EXCEEDED: BACKOFF_LIMIT,
    EventReason.MAX_RESTARTS_EXCEEDED: attempts.MAX_RESTARTS,
    EventReason.START_DEADLINE_EXCEEDED: attempts.START_DEADLINE,
}
"""Limits with specific advice."""


def _last_failure(facts: Facts, record: EndRecord | None) -> str:
    """Return which replica reached the limit, and how, as the operator recorded it."""
    last = record.failure if record is not None else None
    if last is None or not (last.pod_name or last.replica_type):
        return " "
    name = safe_name(last.pod_name or facts.shape.child(facts.name, last.replica_type, last.replica_index or 0))
    log = facts.log(name, last.container_name or CONTAINER_NAME).rstrip()
    said = in_lines(last.message)
    words = reading.read(log_lines.plain(said or log)).line or last.message or log.rpartition("\n")[2]
    words = shorten(value(words))
    if last.reason in {EventReason.START_DEADLINE_EXCEEDED, AttemptReason.NOT_RUNNING}:
        return f"({name} {words})"
    how = safe_name(last.reason) if last.exit_code is None else f"exit code {last.exit_code}"
    how = f"container {safe_name(last.container_name)}: {how}" if last.container_name else how
    return f"({name}, {how}{words and ': '}{words})"


def find(facts: Facts) -> Iterator[Finding]:
    """Yield current and imminent problems of a started job."""
    failed = facts.condition(ConditionType.FAILED)
    if failed is not None and failed.reason != ConditionReason.BY_RULE:
        record, deadline_s = conditions.end_record(facts.job.status), facts.spec.active_deadline_s
        limit = limit_of(failed.reason, failed.message) if record is None else _limit_in(record)
        start_s = facts.spec.start_deadline_s if isinstance(facts.spec, TFJobSpec) else None
        values = {
            "words": shorten(value(failed.message)) or value(failed.reason) or "no reason given",
            "reason": str(limit or failed.reason),
            # None: a limit of a newer operator
            "field": "spec.runPolicy" if limit is None else f"spec.{LIMITS[limit].field}",
            "limit": "its spec" if deadline_s is None else duration(deadline_s),
            "start": "its spec" if start_s is None else duration(start_s),
            "last": _last_failure(facts, record),
        }
        late = record.failure if record is not None and limit is EventReason.START_DEADLINE_EXCEEDED else None
        if late is not None:
            yield from (each for each, _ in deadline.trouble(facts, late, failed_line(failed)) if each is not None)
        problem = _OF_LIMITS.get(limit, LIMIT) if failed.reason == ConditionReason.LIMIT else JOB_FAILED
        container = record.failure.container_name if record is not None and record.failure is not None else ""
        if problem is BACKOFF_LIMIT and container not in {"", CONTAINER_NAME}:
            problem, values["container"] = replace(BACKOFF_LIMIT, to_do=_BY_SIDECAR), value(container)
        if problem is DEADLINE:
            found_then = list(
                deadline.trouble(facts, record.failure if record is not None else None, failed_line(failed))
            )
            yield from (each for each, _ in found_then if each is not None)
            values["last"] = next((words for _, words in found_then if words), values["last"])
            problem = DEADLINE if values["last"] == " " else DEADLINE_DOWN
        before = attempts.history(facts) if problem is attempts.MAX_RESTARTS else ()
        yield Finding(problem, facts.name, (failed_line(failed), *before), values)
    if facts.finished:
        if facts.ending is None:
            yield from _kept(facts)
    else:
        yield from _pods(facts)
        yield from _taken(facts)
        yield from _services(facts)
        yield from _ended_servers(facts)
        yield from _limits(facts)
        yield from _events(facts)
        yield from _silent(facts)
    yield from _stuck(facts)


def _limit_in(record: EndRecord) -> EventReason | None:
    return EventReason(record.event) if record.event in LIMITS else None


def _kept(facts: Facts) -> Iterator[Finding]:
    over_s = facts.age_s(facts.job.status.completion_time)
    if over_s is not None and over_s < _DAY_S:
        return
    if facts.spec.ttl_s is None and facts.pods and not facts.shape.is_alpha:
        count = f"{len(facts.pods)} pod{'s' if len(facts.pods) > 1 else ''}"
        ended = ago(facts.now, facts.job.status.completion_time) or "some time ago"
        yield of_job(facts, KEPT, f"finished {ended}, no ttlSecondsAfterFinished, {count}", pods=count)


def _pods(facts: Facts) -> Iterator[Finding]:
    conditions_of = {
        each.metadata.name: condition_of(each.status.conditions, "Ready") for each in facts.evidence.nodes or ()
    }
    lost_s = facts.spec.node_lost_timeout_s if isinstance(facts.spec, TFJobSpec) else None
    node_away = replace(NODE_AWAY, to_do=_LOST_LATER) if lost_s else NODE_AWAY
    for pod in facts.pods:
        node, seen = pod.spec.node_name, [facts.line(event) for event in latest(facts.pod_events(pod, "NodeNotReady"))]
        ready, of_node = condition_of(pod.status.conditions, "Ready"), conditions_of.get(node)
        if of_node is not None and of_node.status != "True":
            seen.insert(0, f"node {safe_name(node)}: Ready is {safe_name(of_node.status)}: {quote(of_node.message)}")
        elif facts.evidence.nodes or ready is None or ready.status == "True":
            seen = []
        if seen and pod.status.phase not in {"Succeeded", "Failed"}:
            yield of_pod(node_away, pod, key=node, timeout=duration(lost_s or 0)).seen_in(*seen)
        if pod.status.phase != "Succeeded":
            yield from in_condition(pod, _DISRUPTION)


def _taken(facts: Facts) -> Iterator[Finding]:
    """Yield replicas whose pods were taken away within the last minutes, of which only an event tells once they are gone."""
    conditions_of = {pod.metadata.name: pod.status.conditions for pod in facts.pods}
    for name in facts.wanted:
        if condition_of(conditions_of.get(name), _DISRUPTION.type) is not None:
            continue
        for event in latest([each for each in facts.events_of("Pod", name) if each.reason in TAKEN]):
            if (facts.age_s(event.at) or 0.0) < _LONG_S and not event.message.startswith("Cancelling deletion"):
                words = f"{event.reason}: {shorten(value(event.message))}"
                yield Finding(DISRUPTED, name, (facts.line(event),), {"reason": words}, words)


def _silent(facts: Facts) -> Iterator[Finding]:
    """Yield replicas whose last log line is old: a warning if this is true of all logs that were read, else information."""
    limit_s, lines = facts.evidence.silent_after_s, facts.evidence.last_lines
    old = [pod for pod in facts.live_pods if (facts.age_s(running_since(pod)) or 0.0) >= limit_s]
    read = [(pod, lines[pod.metadata.name]) for pod in old if pod.metadata.name in lines]
    ages = [facts.age_s(line.at or running_since(pod)) or 0.0 for pod, line in read]
    problem = SILENT if all(age_s >= limit_s for age_s in ages) else QUIET
    if problem is SILENT and (others := refining.finished_before(facts)):
        problem = replace(SILENT, to_do=(others, *SILENT.to_do[:-1]))
    for (pod, line), age_s in zip(read, ages, strict=True):
        age, seen = duration(age_s), f"log of {safe_name(pod.metadata.name)}: "
        seen += (
            f"no line since the container started {age} ago"
            if line.at is None
            else f"last line {age} ago: {quote(line.text)}"
        )
        if age_s >= limit_s and (line.at is not None or problem.id == SILENT.id):
            yield of_pod(problem, pod, age=age, container=CONTAINER_NAME, previous="false").seen_in(seen)


def _stuck(facts: Facts) -> Iterator[Finding]:
    for pod in facts.pods:
        # deletionTimestamp is the end of the grace period.
        over_s = facts.age_s(pod.metadata.deletion_timestamp)
        if over_s is not None and over_s > _LATE_S:
            finalizers = ", ".join(map(safe_name, (pod.metadata.finalizers or ())[:3]))
            held = f", finalizers {finalizers}" if finalizers else ""
            problem = replace(STUCK, to_do=_BY_FINALIZERS) if finalizers else STUCK
            yield of_pod(
                problem, pod, f"grace period ended {duration(over_s)} ago{held}", age=duration(over_s), key=finalizers
            )


def _services(facts: Facts) -> Iterator[Finding]:
    """Yield replicas that others cannot reach for lack of a Service. A job of one replica does not need its Service."""
    if facts.evidence.services is None or len(facts.wanted) < 2:
        return
    services = {service.metadata.name: service for service in facts.evidence.services}
    begun = facts.job.status.begun
    wants_shared = isinstance(facts.spec, TFJobSpec) and facts.spec.network is Network.SHARED
    may_be_shared = begun is None and (wants_shared or facts.name in services)
    for pod in facts.live_pods:
        name = facts.shape.replica_of(pod)
        # An outdated CRD prunes `begun`. Then the operator, too, tells by the pods what network they have.
        is_shared = pod.spec.subdomain == facts.name if may_be_shared else (begun and begun.network) == Network.SHARED
        of = facts.name if is_shared else name
        service, age_s = services.get(of), facts.age_s(pod.metadata.creation_timestamp)
        if name not in facts.wanted or age_s is None or age_s < _LATE_S:
            continue
        if service is None:
            yield Finding(NO_SERVICE, name, (f"service {safe_name(of)}: not found",))
        elif not _selects(service.spec.selector or {}, pod.metadata.labels or {}):
            seen = f"service {safe_name(of)}: selector does not match the labels of pod {safe_name(pod.metadata.name)}"
            yield Finding(WRONG_SELECTOR, name, (seen,), {"service": of})


def _ended_servers(facts: Facts) -> Iterator[Finding]:
    """Yield the parameter servers that have succeeded while others train."""
    size, pods = facts.sizes.get(PS, 0), {facts.shape.replica_of(pod): pod for pod in facts.pods}
    done = parse_indices(facts.job.status.finished_indices.get(PS, ""), size)
    trains = any(kind not in {PS, EVALUATOR} for kind in facts.wanted.values())
    for index in sorted(done) if trains else ():
        name = facts.shape.child(facts.name, PS, index)
        values = {"container": CONTAINER_NAME, "previous": "false"}
        values |= {"pod": pods[name].metadata.name} if name in pods else {}
        yield Finding(SERVER_ENDED, name, (f"job: status.finishedIndices.{PS} has {index}: exit code 0",), values)


def _selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return bool(selector) and all(
        labels.get(name) == wanted for name, wanted in selector.items() if name in SELECTING_LABELS or name in labels
    )


def _limits(facts: Facts) -> Iterator[Finding]:
    spec, status = facts.spec, facts.job.status
    limit_s, age_s = spec.active_deadline_s, facts.age_s(status.start_time)
    if limit_s is not None and age_s is not None and not facts.suspended:
        left_s = limit_s - age_s
        if left_s < max(min(_NEAR_S, limit_s / 2), limit_s / 10):
            seen = f"started {duration(age_s)} ago, activeDeadlineSeconds is {limit_s}"
            values = {"limit": duration(limit_s), "longer": str(max(2 * limit_s, int(age_s) + limit_s))}
            if left_s > -_ENDS_S:
                yield of_job(facts, DEADLINE_NEAR, seen, left=duration(max(left_s, 0)), **values)
            else:
                yield of_job(facts, DEADLINE_PASSED, seen, past=duration(-left_s), **values)
    times, limit = (
        sum(record.total for record in status.restarts),
        spec.backoff_limit if isinstance(spec, TFJobSpec) else 0,
    )
    if limit and times >= limit:
        seen = f"status.restarts counts {times}, backoffLimit is {limit}"
        yield of_job(facts, BACKOFF_NEAR, seen, times=str(times), limit=str(limit))


def _events(facts: Facts) -> Iterator[Finding]:
    restarting = facts.condition(ConditionType.RESTARTING)
    if restarting is not None and facts.missing:
        exits = map(facts.line, facts.job_events(EventReason.EXITED_WITH_CODE)[-2:])
        yield of_job(facts, RESTARTING, f"condition Restarting: {quote(restarting.message)}").seen_in(*exits)
    for event in latest(facts.job_events(EventReason.POD_TEMPLATE_NOT_APPLIED)):
        edited_s = facts.age_s(event.at) or 0.0
        for pod in facts.live_pods if event.type == "Warning" else ():
            kind = facts.wanted.get(facts.shape.replica_of(pod), "")
            age_s = facts.age_s(pod.metadata.creation_timestamp)
            if kind in event.message.partition(":")[0].split(", ") and age_s is not None and age_s > edited_s:
                yield of_event(facts, OLD_TEMPLATE, event, pod)
    yield from on_job(facts, _ON_JOB)
