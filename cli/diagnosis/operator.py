"""Troubles with the operator itself, and jobs that it leaves alone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1.constants import MANAGED_BY_US, EventReason
from tfjob_operator.api.v1alpha1.constants import TENSORFLOW
from tfjob_operator.cli.diagnosis.causes import Finding, Severity, Trouble
from tfjob_operator.cli.diagnosis.facts import latest
from tfjob_operator.cli.diagnosis.words import ago, named
from tfjob_operator.cli.durations import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfjob_operator.cli.diagnosis.facts import Facts

NAMESPACE_TERMINATING: Final = Trouble(
    "namespace-terminating",
    1,
    Severity.ERROR,
    "The namespace {namespace} is being deleted: nothing can be created in it",
    (
        "Create the job in another namespace",
        "kubectl get namespace {namespace} -o yaml   # its conditions say what is left in it",
    ),
    "The job's namespace is being deleted",
)
JOB_DELETING: Final = Trouble(
    "job-being-deleted",
    2,
    Severity.ERROR,
    "The job is being deleted {waits}",
    ("kubectl -n {namespace} get tfjob {job} -o yaml   # metadata.finalizers say who has to let it go",),
    "The job has a deletionTimestamp; finalizers may keep it",
)
MANAGED_ELSEWHERE: Final = Trouble(
    "managed-elsewhere",
    3,
    Severity.ERROR,
    "The job belongs to another controller, {manager}: this operator does not touch it",
    ("Ask {manager} about the job, or create it anew without spec.runPolicy.managedBy",),
    "spec.runPolicy.managedBy names another controller, such as MultiKueue's",
)
NOT_RUNNING: Final = Trouble(
    "operator-not-running",
    10,
    Severity.ERROR,
    "The operator does not run: its lease {lease} was last renewed {since}",
    (
        "kubectl -n {operators} get pods --selector=name=tf-job-operator",
        "kubectl -n {operators} logs --selector=name=tf-job-operator --prefix --tail=50",
    ),
    "The operator's lease is held by nobody, or was not renewed in time",
)
MISSING: Final = Trouble(
    "operator-missing",
    11,
    Severity.ERROR,
    "No operator has ever looked at the job, and there is no lease of one",
    (
        "kubectl get deployments --all-namespaces --selector=app.kubernetes.io/name=tfjob-operator",
        "Install the operator, or ask who runs the cluster to",
    ),
    "No operator is installed, as far as its lease shows",
)
NOT_ACTING: Final = Trouble(
    "operator-not-acting",
    12,
    Severity.ERROR,
    "The operator has not looked at the job in {age}",
    (
        "kubectl -n kubeflow get pods --selector=name=tf-job-operator",
        "Does it serve this namespace? Look at its flag --namespace, and in its log for {namespace}/{job}",
    ),
    (
        "The job has no status a minute after it was created: the operator is away, serves other namespaces, or has no "
        "right to TFJobs"
    ),
)
NOT_SERVED: Final = Trouble(
    "alpha-not-served",
    12,
    Severity.ERROR,
    "The operator runs, and has not looked at the job in {age}: most likely it does not serve tensorflow.org/v1alpha1",
    (
        "Have the operator run with --apis=kubeflow.org/v1,tensorflow.org/v1alpha1, and the rights of manifests/addons/alpha",
        "or make it a job of v1: kubectl -n {namespace} get {resource} {job} -o yaml | kubectl tfjob convert -",
    ),
    "A TfJob of tensorflow.org has no status a minute after it was created, and the operator's lease is renewed",
)
EDIT_UNSEEN: Final = Trouble(
    "edit-not-seen",
    13,
    Severity.WARNING,
    "The operator has not followed the last edit yet (generation {generation}; it has seen {seen})",
    ("Wait some seconds; then kubectl -n kubeflow logs --selector=name=tf-job-operator | grep {job}",),
    "status.observedGeneration is less than metadata.generation",
)
CRD_OLD: Final = Trouble(
    "crd-old",
    14,
    Severity.WARNING,
    "The CRD is another operator's or an old one: the API server drops fields of the status",
    ("kubectl apply --server-side --force-conflicts -f manifests/base/crd.yaml   # of the operator's version",),
    "The CRD does not have all fields that the operator writes: successes and restarts may be forgotten",
)
TROUBLES: Final = (
    NAMESPACE_TERMINATING,
    JOB_DELETING,
    MANAGED_ELSEWHERE,
    NOT_RUNNING,
    MISSING,
    NOT_ACTING,
    NOT_SERVED,
    EDIT_UNSEEN,
    CRD_OLD,
)

LATE_S: Final = 60.0
"""A new job has a status within a second; after a minute the work queue is too long, or no operator runs."""
_GRACE_S: Final = 30.0
"""Added to a lease's duration, since the clocks of nodes and of this machine differ."""
_WRITTEN: Final = ("finishedIndices", "restarts", "begun")
"""Fields of the status that only this operator's CRD has (controller/tfjob/crd_check.py looks at all of them)."""


def find(facts: Facts) -> Iterator[Finding]:
    """Yield why the operator does not look after the job."""
    meta, evidence = facts.job.metadata, facts.evidence
    if evidence.namespace is not None and (
        evidence.namespace.status.phase == "Terminating" or evidence.namespace.metadata.deletion_timestamp is not None
    ):
        yield Finding(NAMESPACE_TERMINATING, facts.name, (f"namespace {named(facts.namespace)}: phase Terminating",))
    if meta.deletion_timestamp is not None:
        waits = (
            f"and waits for its finalizers: {', '.join(map(named, evidence.finalizers[:3]))}"
            if evidence.finalizers
            else ""
        )
        seen = f"job: deletionTimestamp is set, {ago(facts.now, meta.deletion_timestamp)}"
        yield Finding(JOB_DELETING, facts.name, (seen,), {"waits": waits or " "})
    if facts.spec.managed_by not in MANAGED_BY_US:
        manager = named(facts.spec.managed_by)
        yield Finding(
            MANAGED_ELSEWHERE, facts.name, (f"job: spec.runPolicy.managedBy is {manager}",), {"manager": manager}
        )
    elif not facts.finished:
        yield from _asleep(facts)
    yield from _crd(facts)


def _asleep(facts: Facts) -> Iterator[Finding]:
    lease, spec = facts.evidence.lease, facts.evidence.lease.spec if facts.evidence.lease is not None else None
    status, age_s = facts.job.status, facts.age_s(facts.evidence.created_at)
    if lease is not None and spec is not None:
        left_s = (facts.age_s(spec.renew_time) or 0.0) - (spec.lease_duration_seconds or 0)
        if not spec.holder_identity or left_s > _GRACE_S:
            where = f"{lease.metadata.namespace}/{lease.metadata.name}"
            since = ago(facts.now, spec.renew_time) or "never"
            holder = f"held by {named(spec.holder_identity)}" if spec.holder_identity else "held by nobody"
            values = {"lease": where, "since": since, "operators": lease.metadata.namespace}
            yield Finding(NOT_RUNNING, facts.name, (f"lease {where}: {holder}, renewed {since}",), values)
            return
    if not status.conditions and not status.phase:
        if facts.is_absent("Lease", "tf-operator"):
            yield Finding(MISSING, facts.name, ("job: it has no status", "lease tf-operator: it does not exist"))
        elif age_s is not None and age_s > LATE_S:
            trouble = NOT_SERVED if facts.shape.resource == str(TENSORFLOW.resource) and lease else NOT_ACTING
            yield Finding(
                trouble,
                facts.name,
                (f"job: created {duration(age_s)} ago, and it has no status",),
                {"age": duration(age_s)},
            )
    elif 0 < status.observed_generation < facts.job.metadata.generation:
        values = {"generation": str(facts.job.metadata.generation), "seen": str(status.observed_generation)}
        yield Finding(
            EDIT_UNSEEN, facts.name, ("job: status.observedGeneration is behind metadata.generation",), values
        )


def _crd(facts: Facts) -> Iterator[Finding]:
    events = latest(facts.job_events(EventReason.STATUS_FIELDS_PRUNED))
    proofs = [facts.line(event) for event in events]
    crd = facts.evidence.crd
    for version in (crd.spec.versions or ()) if crd is not None else ():
        schema = version.schema.open_api_v3_schema if version.schema is not None else None
        status = (schema.properties or {}).get("status") if schema is not None else None
        fields = status.get("properties") if isinstance(status, dict) else None
        if version.name == "v1" and not (
            isinstance(status, dict) and status.get("x-kubernetes-preserve-unknown-fields")
        ):
            lost = [name for name in _WRITTEN if not (isinstance(fields, dict) and name in fields)]
            if lost:
                proofs.append(f"CRD tfjobs.kubeflow.org: the schema of v1 has no status.{', status.'.join(lost)}")
    if proofs:
        yield Finding(CRD_OLD, facts.name, tuple(proofs))
