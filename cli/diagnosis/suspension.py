"""Suspended jobs: by a person, or by Kueue, whose Workload says what the job waits for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.cli.diagnosis.causes import Finding, Severity, Trouble
from tfjob_operator.cli.diagnosis.pods import condition_of
from tfjob_operator.cli.diagnosis.rules import first_match, rule, value
from tfjob_operator.cli.diagnosis.words import ago, named, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfjob_operator.cli.diagnosis.facts import Facts
    from tfjob_operator.cli.diagnosis.objects import Workload

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_LOOK: Final = "kubectl -n {namespace} describe workload {workload}"
_QUEUE: Final = "kubectl -n {namespace} describe localqueue {queue}"


def _kueue(id_: str, rank: int, title: str, to_do: tuple[str, ...], meaning: str) -> Trouble:
    return Trouble(id_, rank, Severity.ERROR, title, to_do, meaning)


BY_USER: Final = Trouble(
    "suspended",
    300,
    Severity.ERROR,
    "The job is suspended {by}",
    (
        'kubectl -n {namespace} patch tfjob {job} --type=merge --patch=\'{{"spec":{{"runPolicy":{{"suspend":false}}}}}}\'',
    ),
    "spec.runPolicy.suspend is true, and no queue has set it",
)
NO_WORKLOAD: Final = _kueue(
    "kueue-absent",
    301,
    "The job waits for Kueue, which has made no Workload for it",
    ("Does Kueue run, with the integration kubeflow.org/tfjob? kubectl -n kueue-system get pods", _QUEUE),
    "The job has a queue's label and is suspended, but there is no Workload of Kueue's",
)
DEACTIVATED: Final = _kueue(
    "kueue-deactivated",
    302,
    "Kueue has taken the job out of its queue: its Workload is not active",
    (_LOOK, 'kubectl -n {namespace} patch workload {workload} --type=merge --patch=\'{{"spec":{{"active":true}}}}\''),
    "The Workload's spec.active is false: by a person, or after too many tries",
)
CHECK_REJECTED: Final = _kueue(
    "kueue-check-rejected",
    303,
    "An admission check of Kueue's rejects the job: {check}",
    (_LOOK, "kubectl describe admissioncheck {check}"),
    "An AdmissionCheck is in the state Rejected or Retry",
)
NO_QUEUE: Final = _kueue(
    "kueue-queue-missing",
    304,
    "The job waits in a queue that does not exist: {queue}",
    ("kubectl -n {namespace} get localqueues   # and set the label kueue.x-k8s.io/queue-name to one of them",),
    "The LocalQueue, or its ClusterQueue, does not exist",
)
QUEUE_STOPPED: Final = _kueue(
    "kueue-queue-stopped",
    305,
    "The queue {queue} is stopped or inactive",
    (_QUEUE, "kubectl describe clusterqueue   # its condition Active says why"),
    "LocalQueue or ClusterQueue is stopped, or inactive",
)
NAMESPACE_MISMATCH: Final = _kueue(
    "kueue-namespace",
    306,
    "The ClusterQueue does not take jobs of the namespace {namespace}",
    ("kubectl get clusterqueue -o yaml   # spec.namespaceSelector", "kubectl get namespace {namespace} --show-labels"),
    "The namespace does not match the ClusterQueue's selector",
)
TOO_LARGE: Final = _kueue(
    "kueue-too-large",
    307,
    "The job asks for more {resource} than its queue can ever give",
    ("Use fewer or smaller replicas, or another queue", "kubectl describe clusterqueue   # its quotas"),
    "The request is beyond the ClusterQueue's capacity: waiting does not help",
)
PREEMPTED: Final = _kueue(
    "kueue-preempted",
    308,
    "Kueue has preempted the job: others of its queue go first",
    (_LOOK, "Wait, or give the job a higher priority: the label kueue.x-k8s.io/priority-class"),
    "The Workload was evicted to make room for another",
)
PODS_READY: Final = _kueue(
    "kueue-pods-ready-timeout",
    309,
    "Kueue has stopped the job: not all of its pods were ready in time",
    (
        _LOOK,
        (
            "Look at the pods when it is tried again: kubectl -n {namespace} describe pods "
            "--selector=training.kubeflow.org/job-name={job}"
        ),
    ),
    "The Workload was evicted by the time-out for ready pods",
)
WAITS_FOR_QUOTA: Final = _kueue(
    "kueue-quota",
    310,
    "The job waits in Kueue's queue {queue} for quota: {shortage}",
    (_QUEUE, "Wait until others end, or use fewer or smaller replicas"),
    "The ClusterQueue's quota is used by others",
)
WAITS_FOR_CHECK: Final = _kueue(
    "kueue-check",
    311,
    "The job waits for an admission check of Kueue's: {check}",
    (_LOOK, "kubectl describe admissioncheck {check}"),
    "An AdmissionCheck, such as a provisioning of nodes, is Pending",
)
WAITS: Final = _kueue(
    "kueue-waits",
    312,
    "The job waits in Kueue's queue {queue}",
    (_LOOK, _QUEUE),
    "The Workload has no quota yet, for a reason that is not known here",
)
TROUBLES: Final = (
    BY_USER,
    NO_WORKLOAD,
    DEACTIVATED,
    CHECK_REJECTED,
    NO_QUEUE,
    QUEUE_STOPPED,
    NAMESPACE_MISMATCH,
    TOO_LARGE,
    PREEMPTED,
    PODS_READY,
    WAITS_FOR_QUOTA,
    WAITS_FOR_CHECK,
    WAITS,
)

# kueue: pkg/controller/core/workload_controller.go, pkg/workload/resources.go,
# pkg/scheduler/flavorassigner/flavorassigner.go; before 0.10 "insufficient quota for X in flavor Y, request > maximum
# capacity".
_WAITING: Final = (
    rule(NO_QUEUE, r"\b(LocalQueue|ClusterQueue) (?P<queue>\S+) doesn't exist"),
    rule(QUEUE_STOPPED, r"\b(LocalQueue|ClusterQueue) (?P<queue>\S+) is (inactive|stopped)"),
    rule(NAMESPACE_MISMATCH, r"namespace doesn't match ClusterQueue selector"),
    rule(TOO_LARGE, r"insufficient quota for (?P<resource>\S+) in flavor \S+?, .{0,300}> maximum capacity"),
    rule(WAITS_FOR_QUOTA, r"(?P<shortage>insufficient (unused )?quota [^;]*)"),
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
    workload, queue = facts.evidence.workload, (facts.job.metadata.labels or {}).get(QUEUE_LABEL, "")
    values = {"queue": value(queue)}
    if workload is not None:
        yield from _by_kueue(
            facts,
            workload,
            values | {"workload": workload.metadata.name, "queue": value(workload.spec.queue_name or queue)},
        )
    elif queue:
        yield Finding(
            NO_WORKLOAD, facts.name, (f"job: suspended, with the label {QUEUE_LABEL}={named(queue)}",), values
        )
    else:
        by = f"by {named(facts.evidence.suspended_by)}" if facts.evidence.suspended_by else ""
        seen = f"job: spec.runPolicy.suspend is true{by and ', set '}{by}"
        yield Finding(BY_USER, facts.name, (seen,), {"by": by or " "})


def _by_kueue(facts: Facts, workload: Workload, values: dict[str, str]) -> Iterator[Finding]:
    where = f"workload {named(workload.metadata.name)}"
    if not workload.spec.active:
        yield Finding(DEACTIVATED, facts.name, (f"{where}: spec.active is false",), values)
        return
    checks = sorted(workload.status.admission_checks or (), key=lambda each: (each.state == "Pending", each.name))
    for check in checks:
        if check.state in {"Rejected", "Retry", "Pending"} and (check.state != "Pending" or _reserved(workload)):
            trouble = WAITS_FOR_CHECK if check.state == "Pending" else CHECK_REJECTED
            seen = f"{where}: check {named(check.name)} is {named(check.state)}: {said(check.message)}"
            yield Finding(trouble, facts.name, (seen,), values | {"check": value(check.name)})
            return
    if _reserved(workload):
        return  # Kueue is about to resume the job
    reserved = condition_of(workload.status.conditions, "QuotaReserved")
    evicted = condition_of(workload.status.conditions, "Evicted")
    message = reserved.message if reserved is not None else ""
    found = first_match(_WAITING, message)
    proofs = [f"{where}: QuotaReserved is False: {said(message)}"] if message else []
    if evicted is not None and evicted.status == "True":
        when = ago(facts.now, evicted.last_transition_time)
        proofs.append(f"{where}: evicted{when and ' '}{when}, {named(evicted.reason)}: {said(evicted.message)}")
        if evicted.reason in _EVICTED and (found is None or found[0] is WAITS_FOR_QUOTA):
            yield Finding(_EVICTED[evicted.reason], facts.name, tuple(proofs), values)
            return
    trouble, more = found or (WAITS, {})
    yield Finding(trouble, facts.name, tuple(proofs) or (f"{where}: it has no quota yet",), values | more)


def _reserved(workload: Workload) -> bool:
    found = condition_of(workload.status.conditions, "QuotaReserved")
    return found is not None and found.status == "True"
