"""Jobs suspended by a user, or by Kueue, in which case the Workload has the reason. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from tfjob_operator.api.v1.constants import LABEL_QUEUE
from tfjob_operator.cli.diagnosis import fallback
from tfjob_operator.cli.diagnosis.causes import Finding, ManifestChange, Problem, error, info
from tfjob_operator.cli.diagnosis.facts import Facts
from tfjob_operator.cli.diagnosis.rows import of_pod
from tfjob_operator.cli.diagnosis.rules import value
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.objects import Workload
from tfjob_operator.cli.model.pods import condition_of, is_up
from tfjob_operator.cli.model.queues import LONGEST, UNRESERVED, Wait, deactivated_by_kueue, is_true, waits_for
from tfjob_operator.cli.model.words import ago, quote, safe_name

_LOOK: Final = "kubectl -n {namespace} describe workloads.kueue.x-k8s.io {workload}"
_QUEUE: Final = "kubectl -n {namespace} describe localqueue {queue}"
_CHECK: Final = "kubectl describe admissioncheck {check}"
_QUEUE_AGAIN: Final = (
    "To queue the job again, delete the Workload, which Kueue creates anew; setting spec.active has no effect: "
    "kubectl -n {namespace} delete workloads.kueue.x-k8s.io {workload}"
)
_LESS: Final = ManifestChange("request less, use fewer replicas, or choose another queue", recreate=False)


BY_USER: Final = info(
    "suspended",
    "Suspended {by}",
    "spec.runPolicy.suspend is true, and no queue has set it",
    "kubectl tfjob resume {job} -n {namespace}",
)
_MISSPELLED: Final = (
    "The label {label} is unknown to Kueue, which finds the queue by {queue}; the job is suspended {by}"
)
_OTHER_LABEL: Final = (
    ManifestChange("rename the label {label} to {queue}", recreate=False),
    "Without a queue: kubectl tfjob resume {job} -n {namespace}",
)
_LIKE_QUEUE: Final = re.compile(r"(?:kueue\.x-k8s\.io|kueue\.k8s\.io|kueue)/\w*queue(?:[-_]?name)?", re.IGNORECASE)
_STOPS_S: Final = 60.0
"""By then a pod with Kubernetes' usual grace period has ended."""
_STILL_RUNS: Final = "{who} still runs, Terminating for {age} ({why})"
_LONG_GRACE: Final = (
    "It holds its resources until its program ends, or the grace period",
    "Let the program end soon after SIGTERM, or lower terminationGracePeriodSeconds of the template for later pods",
)
NO_WORKLOAD: Final = error(
    "kueue-absent",
    "Waiting for Kueue, which has created no Workload for the job",
    "The job has a queue label and is suspended, but has no Workload",
    "kubectl -n kueue-system get pods",
    "Ask your cluster administrator whether Kueue is running with the integration kubeflow.org/tfjob",
    "Or run the job without a queue; a Kueue that manages it suspends it again: kubectl tfjob resume {job} -n {namespace}",
)
_PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
_NO_CLASS: Final = (
    "Kueue creates no Workload if the priority class of the label does not exist: "
    "kubectl get workloadpriorityclass {class}"
)
DEACTIVATED: Final = error(
    "kueue-deactivated",
    "Workload deactivated: spec.active is false",
    "A user has set the Workload's spec.active to false",
    _LOOK,
    "kubectl -n {namespace} patch workloads.kueue.x-k8s.io {workload} --type=merge "
    '--patch=\'{{"spec":{{"active":true}}}}\'',
)
DEACTIVATED_BY_KUEUE: Final = error(
    "kueue-gave-up",
    "Deactivated by Kueue for {why}",
    "Kueue has deactivated the Workload, for example after too many requeues, or at its maximum execution time",
    _LOOK,
    _QUEUE_AGAIN,
)
CHECK_REJECTED: Final = error(
    "kueue-check-rejected",
    'Rejected by admission check "{check}" of Kueue',
    "An AdmissionCheck is Rejected, so Kueue deactivates the Workload",
    _LOOK,
    _CHECK,
    _QUEUE_AGAIN,
)
NO_QUEUE: Final = error(
    "kueue-queue-missing",
    '{kind} "{queue}" not found',
    "The LocalQueue, or its ClusterQueue, does not exist",
    "kubectl -n {namespace} get localqueues",
    "Set QUEUE to one of them: kubectl -n {namespace} label tfjob {job} --overwrite kueue.x-k8s.io/queue-name=QUEUE",
    "Or ask your cluster administrator to create it",
)
QUEUE_STOPPED: Final = error(
    "kueue-queue-stopped",
    '{kind} "{queue}" is stopped or inactive',
    "LocalQueue or ClusterQueue is stopped or inactive",
    "spec.stopPolicy and the condition Active have the reason: kubectl -n {namespace} describe {kinds} {queue}",
    "Ask your cluster administrator if it lasts",
)
NAMESPACE_MISMATCH: Final = error(
    "kueue-namespace",
    'The ClusterQueue does not admit jobs of namespace "{namespace}"',
    "The namespace does not match the ClusterQueue's selector",
    "Compare spec.namespaceSelector with the labels of the namespace: kubectl get clusterqueue -o yaml",
    "kubectl get namespace {namespace} --show-labels",
    "Ask your cluster administrator to admit the namespace",
)
TOO_LARGE: Final = error(
    "kueue-too-large",
    'Never fits in queue "{queue}": {shortage}',
    "More than the capacity of the ClusterQueue, a resource without quota, limits below requests: waiting does not help",
    _LOOK,
    "kubectl describe clusterqueue",
    _LESS,
)
PREEMPTED: Final = error(
    "kueue-preempted",
    "Preempted by Kueue; the job is queued again",
    "The Workload was evicted to make room for another",
    _LOOK,
    "The job resumes when its queue has quota again",
)
PODS_READY: Final = error(
    "kueue-pods-ready-timeout",
    "Evicted by Kueue: not all pods were ready in time",
    "The Workload was evicted by the timeout for ready pods",
    _LOOK,
    "Look at the pods while it is tried again: "
    "kubectl -n {namespace} describe pods --selector=training.kubeflow.org/job-name={job}",
)
WAITS_FOR_QUOTA: Final = error(
    "kueue-quota",
    'Waiting for quota in queue "{queue}": {shortage}',
    "The ClusterQueue's quota is used by other jobs",
    _QUEUE,
    "The job starts when other jobs have finished",
    _LESS,
)
WAITS_FOR_CHECK: Final = error(
    "kueue-check",
    'Waiting for admission check "{check}" of Kueue',
    "An AdmissionCheck, for example of node provisioning, is Pending or to be retried",
    _LOOK,
    _CHECK,
)
WAITS: Final = error(
    "kueue-waits",
    'Waiting in queue "{queue}" of Kueue',
    "The Workload has no quota yet, for a reason unknown here",
    _LOOK,
    _QUEUE,
)
ONE_BY_ONE: Final = error(
    "kueue-one-by-one",
    "Kueue queues the replicas of the job one by one, so some may run while others wait ({who})",
    "A pod has Kueue's scheduling gate, or Kueue suspended a Job of the alpha dialect: Kueue does not know the job",
    "kubectl -n {namespace} get workloads.kueue.x-k8s.io",
    "Ask your cluster administrator to enable Kueue's integration kubeflow.org/tfjob, and recreate the job with a queue",
)

_PROBLEMS: Final[Mapping[Wait, Problem]] = {
    Wait.QUEUED: WAITS_FOR_QUOTA,
    Wait.NEVER_FITS: TOO_LARGE,
    Wait.QUEUE_MISSING: NO_QUEUE,
    Wait.QUEUE_STOPPED: QUEUE_STOPPED,
    Wait.NAMESPACE_MISMATCH: NAMESPACE_MISMATCH,
    Wait.CHECK_PENDING: WAITS_FOR_CHECK,
    Wait.CHECK_REJECTED: CHECK_REJECTED,
    Wait.PREEMPTED: PREEMPTED,
    Wait.PODS_READY_TIMEOUT: PODS_READY,
    Wait.DEACTIVATED: DEACTIVATED,
}
_NAMED: Final = (
    re.compile(r'AdmissionChecks? in [^"]{0,40}"(?P<check>[^"]{1,300})"'),
    re.compile(r"deactivated due to (?P<why>[^;]{1,300})"),
)


def find(facts: Facts) -> Iterator[Finding]:
    """Yield why the job is suspended, if it is."""
    if not facts.suspended or facts.finished:
        return
    workload, queue = facts.evidence.workload, (facts.job.metadata.labels or {}).get(LABEL_QUEUE, "")
    values = {"queue": value(queue)}
    if workload is not None:
        yield from _by_kueue(
            facts,
            workload,
            values | {"workload": workload.metadata.name, "queue": value(workload.spec.queue_name or queue)},
        )
    elif queue:
        class_ = (facts.job.metadata.labels or {}).get(_PRIORITY_CLASS, "")
        steps = (_NO_CLASS, *NO_WORKLOAD.to_do) if class_ else NO_WORKLOAD.to_do
        values["class"] = value(class_)
        yield Finding(
            replace(NO_WORKLOAD, to_do=steps),
            facts.name,
            (f"job: suspended, with the label {LABEL_QUEUE}={safe_name(queue)}",),
            values,
        )
    else:
        by = f"by {safe_name(facts.evidence.suspended_by)}" if facts.evidence.suspended_by else ""
        seen = f"job: spec.runPolicy.suspend is true{by and ', set '}{by}"
        labels = {*(facts.job.metadata.labels or ())} - {LABEL_QUEUE}
        other = next(filter(_LIKE_QUEUE.fullmatch, sorted(labels)), "")
        problem = replace(BY_USER, title=_MISSPELLED, to_do=_OTHER_LABEL) if other else BY_USER
        yield Finding(problem, facts.name, (seen,), {"by": by or " ", "label": value(other), "queue": LABEL_QUEUE})
    for pod in facts.pods:
        since_s = facts.age_s(pod.metadata.deletion_timestamp)
        if (
            since_s is not None
            and since_s + (pod.metadata.deletion_grace_period_seconds or 0) > _STOPS_S
            and is_up(pod)
        ):
            age, why = fallback.terminating(facts, pod)
            problem = replace(fallback.TERMINATING, title=_STILL_RUNS, to_do=_LONG_GRACE, unless=())
            yield of_pod(problem, pod, f"Terminating for {age}, {why}", age=age, why=why)


def _by_kueue(facts: Facts, workload: Workload, values: dict[str, str]) -> Iterator[Finding]:
    raw: dict[str, Any] = msgspec.to_builtins(workload)
    wait, message = waits_for(raw)
    if wait is Wait.QUEUED and is_true(raw, "QuotaReserved"):
        return  # Kueue is about to resume the job
    patterns = (*_NAMED, *([UNRESERVED[wait]] if wait in UNRESERVED else ()))
    named = [match.groupdict() for pattern in patterns if (match := pattern.search(message[:LONGEST])) is not None]
    more = {name: value(text) for each in named for name, text in each.items() if text}
    problem = _PROBLEMS[wait]
    if wait is Wait.QUEUED and not more:
        problem = WAITS
    elif wait is Wait.DEACTIVATED and deactivated_by_kueue(raw):
        problem = DEACTIVATED_BY_KUEUE
    kind = "" if more.get("kind") == "ClusterQueue" and "queue" not in more else more.get("kind", "")
    kinds = {"kind": kind or "Queue", "kinds": (kind or "LocalQueue").lower()}
    yield Finding(problem, facts.name, _proofs(facts, workload), values | {"why": "an unknown reason"} | more | kinds)


def _proofs(facts: Facts, workload: Workload) -> tuple[str, ...]:
    where = f"workload {safe_name(workload.metadata.name)}"
    reserved = condition_of(workload.status.conditions, "QuotaReserved")
    evicted = condition_of(workload.status.conditions, "Evicted")
    proofs = [
        f"{where}: check {safe_name(check.name)} is {safe_name(check.state)}: {quote(check.message)}"
        for check in workload.status.admission_checks or ()
        if check.state != "Ready"
    ]
    if evicted is not None and evicted.status == "True":
        when = ago(facts.now, evicted.last_transition_time)
        proofs.append(f"{where}: evicted{when and ' '}{when}, {safe_name(evicted.reason)}: {quote(evicted.message)}")
    if reserved is not None and reserved.status != "True" and quote(reserved.message) not in "".join(proofs):
        proofs.insert(0, f"{where}: QuotaReserved is False: {quote(reserved.message)}")
    if (place := facts.evidence.place) is not None:
        times = (workload.metadata.creation_timestamp, evicted.last_transition_time if evicted is not None else None)
        waited = min((age_s for age_s in map(facts.age_s, times) if age_s is not None), default=None)
        here, all_ = place.position_in_local_queue + 1, place.position_in_cluster_queue + 1
        since = "" if waited is None else f", waiting for {duration(waited)}"
        proofs.append(
            f"queue {safe_name(workload.spec.queue_name)}: position {here}, {all_} in its ClusterQueue{since}"
        )
    if not workload.spec.active:
        proofs.append(f"{where}: spec.active is false")
    return tuple(proofs) or (f"{where}: no quota reserved",)
