"""Jobs suspended by a user, or by Kueue, in which case the Workload has the reason. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tfjob_operator.api.v1.constants import LABEL_QUEUE
from tfjob_operator.cli.diagnosis.causes import Finding, ManifestChange, error, info, problems_in
from tfjob_operator.cli.diagnosis.facts import Facts
from tfjob_operator.cli.diagnosis.rules import MessageRule, first_match, rule, value
from tfjob_operator.cli.model.objects import Workload
from tfjob_operator.cli.model.pods import condition_of
from tfjob_operator.cli.model.words import ago, quote, safe_name

_LOOK: Final = "kubectl -n {namespace} describe workload {workload}"
_QUEUE: Final = "kubectl -n {namespace} describe localqueue {queue}"
_CHECK: Final = "kubectl describe admissioncheck {check}"
_LESS: Final = ManifestChange("request less, use fewer replicas, or choose another queue", recreate=False)


BY_USER: Final = info(
    "suspended",
    300,
    "Suspended {by}",
    ("kubectl tfjob resume {job} -n {namespace}",),
    "spec.runPolicy.suspend is true, and no queue has set it",
)
NO_WORKLOAD: Final = error(
    "kueue-absent",
    301,
    "Waiting for Kueue, which has created no Workload for the job",
    (
        "kubectl -n kueue-system get pods",
        "Ask your cluster administrator whether Kueue is running with the integration kubeflow.org/tfjob",
    ),
    "The job has a queue label and is suspended, but has no Workload",
)
DEACTIVATED: Final = error(
    "kueue-deactivated",
    302,
    "Workload deactivated: spec.active is false",
    (_LOOK, 'kubectl -n {namespace} patch workload {workload} --type=merge --patch=\'{{"spec":{{"active":true}}}}\''),
    "The Workload's spec.active is false: set by a user, or after too many requeues",
)
CHECK_REJECTED: Final = error(
    "kueue-check-rejected",
    303,
    'Rejected by admission check "{check}" of Kueue',
    (_LOOK, _CHECK),
    "An AdmissionCheck is in the state Rejected or Retry",
)
NO_QUEUE: Final = error(
    "kueue-queue-missing",
    304,
    'Queue "{queue}" not found',
    (
        "kubectl -n {namespace} get localqueues",
        (
            "Set QUEUE to one of them: "
            "kubectl -n {namespace} label tfjob {job} --overwrite kueue.x-k8s.io/queue-name=QUEUE"
        ),
    ),
    "The LocalQueue, or its ClusterQueue, does not exist",
)
QUEUE_STOPPED: Final = error(
    "kueue-queue-stopped",
    305,
    'Queue "{queue}" is stopped or inactive',
    (_QUEUE, "The condition Active has the reason: kubectl describe clusterqueue"),
    "LocalQueue or ClusterQueue is stopped or inactive",
)
NAMESPACE_MISMATCH: Final = error(
    "kueue-namespace",
    306,
    'The ClusterQueue does not admit jobs of namespace "{namespace}"',
    (
        "Compare spec.namespaceSelector with the labels of the namespace: kubectl get clusterqueue -o yaml",
        "kubectl get namespace {namespace} --show-labels",
        "Ask your cluster administrator to admit the namespace",
    ),
    "The namespace does not match the ClusterQueue's selector",
)
TOO_LARGE: Final = error(
    "kueue-too-large",
    307,
    'Never fits in queue "{queue}": {shortage}',
    (_LOOK, "kubectl describe clusterqueue", _LESS),
    "More than the capacity of the ClusterQueue, a resource without quota, limits below requests: waiting does not help",
)
PREEMPTED: Final = error(
    "kueue-preempted",
    308,
    "Preempted by Kueue; the job is queued again",
    (_LOOK, "The job resumes when its queue has quota again"),
    "The Workload was evicted to make room for another",
)
PODS_READY: Final = error(
    "kueue-pods-ready-timeout",
    309,
    "Evicted by Kueue: not all pods were ready in time",
    (
        _LOOK,
        (
            "Look at the pods while it is tried again: "
            "kubectl -n {namespace} describe pods --selector=training.kubeflow.org/job-name={job}"
        ),
    ),
    "The Workload was evicted by the timeout for ready pods",
)
WAITS_FOR_QUOTA: Final = error(
    "kueue-quota",
    310,
    'Waiting for quota in queue "{queue}": {shortage}',
    (_QUEUE, "The job starts when other jobs have finished", _LESS),
    "The ClusterQueue's quota is used by other jobs",
)
WAITS_FOR_CHECK: Final = error(
    "kueue-check",
    311,
    'Waiting for admission check "{check}" of Kueue',
    (_LOOK, _CHECK),
    "An AdmissionCheck, for example of node provisioning, is Pending",
)
WAITS: Final = error(
    "kueue-waits",
    312,
    'Waiting in queue "{queue}" of Kueue',
    (_LOOK, _QUEUE),
    "The Workload has no quota yet, for a reason unknown here",
)
ONE_BY_ONE: Final = error(
    "kueue-one-by-one",
    313,
    "Kueue queues the replicas of the job one by one, so some may run while others wait ({who})",
    (
        "kubectl -n {namespace} get workloads.kueue.x-k8s.io",
        "Ask your cluster administrator to enable Kueue's integration kubeflow.org/tfjob, and recreate the job with a queue",
    ),
    "A pod has Kueue's scheduling gate, or Kueue suspended a Job of the alpha dialect: Kueue does not know the job",
)
PROBLEMS: Final = problems_in(globals())

# kueue: pkg/controller/core/workload_controller.go, pkg/workload/resources.go,
# pkg/scheduler/flavorassigner/flavorassigner.go; before 0.10 "insufficient quota for X in flavor Y, request > maximum
# capacity".
NEVER_FITS: Final = re.compile(
    r"^(?!.*insufficient unused quota).*?(?P<shortage>insufficient quota for \S+ in flavor \S+?, .{0,300}> maximum capacity"
    r"[^;]*|resource \S+ unavailable in ClusterQueue|requests must not exceed its limits"
    r"|\S{1,300} \S{1,300} does(n't match node affinity| not contain the requested level| not support [^;]*))"
)
"""Kueue's message for a job that can never be admitted, unless another flavor only lacks quota that is in use."""
_WAITING: Final = (
    rule(NO_QUEUE, r"\b(LocalQueue|ClusterQueue) (?P<queue>\S+) doesn't exist"),
    rule(QUEUE_STOPPED, r"\b(LocalQueue|ClusterQueue) (?P<queue>\S+) is (inactive|stopped)"),
    rule(NAMESPACE_MISMATCH, r"namespace doesn't match ClusterQueue selector"),
    MessageRule(TOO_LARGE, NEVER_FITS),
    rule(WAITS_FOR_QUOTA, r"(?P<shortage>(insufficient (unused )?quota|topology \S+ (allows|doesn't allow)) [^;]*)"),
)
# kueue: apis/kueue/v1beta1/workload_types.go, the reasons of Evicted.
_EVICTED: Final = {
    "Preempted": PREEMPTED,
    "PodsReadyTimeout": PODS_READY,
    "ClusterQueueStopped": QUEUE_STOPPED,
    "LocalQueueStopped": QUEUE_STOPPED,
}


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
        yield Finding(
            NO_WORKLOAD, facts.name, (f"job: suspended, with the label {LABEL_QUEUE}={safe_name(queue)}",), values
        )
    else:
        by = f"by {safe_name(facts.evidence.suspended_by)}" if facts.evidence.suspended_by else ""
        seen = f"job: spec.runPolicy.suspend is true{by and ', set '}{by}"
        yield Finding(BY_USER, facts.name, (seen,), {"by": by or " "})


def _by_kueue(facts: Facts, workload: Workload, values: dict[str, str]) -> Iterator[Finding]:
    where = f"workload {safe_name(workload.metadata.name)}"
    if not workload.spec.active:
        yield Finding(DEACTIVATED, facts.name, (f"{where}: spec.active is false",), values)
        return
    checks = sorted(workload.status.admission_checks or (), key=lambda each: (each.state == "Pending", each.name))
    for check in checks:
        if check.state in {"Rejected", "Retry", "Pending"} and (check.state != "Pending" or _reserved(workload)):
            problem = WAITS_FOR_CHECK if check.state == "Pending" else CHECK_REJECTED
            seen = f"{where}: check {safe_name(check.name)} is {safe_name(check.state)}: {quote(check.message)}"
            yield Finding(problem, facts.name, (seen,), values | {"check": value(check.name)})
            return
    if _reserved(workload):
        return  # Kueue is about to resume the job
    reserved = condition_of(workload.status.conditions, "QuotaReserved")
    evicted = condition_of(workload.status.conditions, "Evicted")
    message = reserved.message if reserved is not None else ""
    found = first_match(_WAITING, message)
    proofs = [f"{where}: QuotaReserved is False: {quote(message)}"] if message else []
    if evicted is not None and evicted.status == "True":
        when = ago(facts.now, evicted.last_transition_time)
        proofs.append(f"{where}: evicted{when and ' '}{when}, {safe_name(evicted.reason)}: {quote(evicted.message)}")
        if evicted.reason in _EVICTED and (found is None or found[0] is WAITS_FOR_QUOTA):
            yield Finding(_EVICTED[evicted.reason], facts.name, tuple(proofs), values)
            return
    problem, more = found or (WAITS, {})
    yield Finding(problem, facts.name, tuple(proofs) or (f"{where}: no quota reserved",), values | more)


def _reserved(workload: Workload) -> bool:
    found = condition_of(workload.status.conditions, "QuotaReserved")
    return found is not None and found.status == "True"
