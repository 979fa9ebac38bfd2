"""Troubles with the operator itself, and jobs that it ignores. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1.constants import MANAGED_BY_US, EventReason
from tfjob_operator.api.v1alpha1.constants import TENSORFLOW
from tfjob_operator.cli.diagnosis.advice import OPERATOR_LOGS, REPLACE, SAVE
from tfjob_operator.cli.diagnosis.causes import Finding, Severity, Trouble, defined
from tfjob_operator.cli.diagnosis.facts import latest
from tfjob_operator.cli.diagnosis.words import ago, named
from tfjob_operator.cli.durations import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfjob_operator.cli.diagnosis.facts import Facts

_PODS: Final = "kubectl -n {operators} get pods --selector=name=tf-job-operator"
_INSTALL: Final = "Install the operator, or ask your cluster administrator to"

NAMESPACE_TERMINATING: Final = Trouble(
    "namespace-terminating",
    1,
    Severity.ERROR,
    'Namespace "{namespace}" is being deleted: nothing can be created in it',
    (
        "Create the job in another namespace",
        "The conditions of the namespace list what is left in it: kubectl get namespace {namespace} -o yaml",
    ),
    "The job's namespace is being deleted",
)
JOB_DELETING: Final = Trouble(
    "job-being-deleted",
    2,
    Severity.ERROR,
    "The job is being deleted {waits}",
    (
        (
            "Ask the owners of metadata.finalizers to remove them: "
            "kubectl -n {namespace} get tfjob {job} -o jsonpath='{{.metadata.finalizers}}'"
        ),
    ),
    "The job has a deletionTimestamp; finalizers may delay its deletion",
)
MANAGED_ELSEWHERE: Final = Trouble(
    "managed-elsewhere",
    3,
    Severity.ERROR,
    "The job is managed by {manager}; this operator ignores it",
    (
        "Ask the owner of {manager} about the job",
        f"To have this operator run it, save the manifest, then in the file remove spec.runPolicy.managedBy: {SAVE}",
        REPLACE,
    ),
    "spec.runPolicy.managedBy names another controller, such as MultiKueue",
)
NOT_RUNNING: Final = Trouble(
    "operator-not-running",
    10,
    Severity.ERROR,
    "The operator is not running: its Lease {lease} was last renewed {since}",
    (
        _PODS,
        "kubectl -n {operators} logs --selector=name=tf-job-operator --prefix --tail=50",
        "Ask your cluster administrator to start the operator",
    ),
    "The operator's Lease has no holder, or was not renewed in time",
)
MISSING: Final = Trouble(
    "operator-missing",
    11,
    Severity.ERROR,
    "No operator is installed: the job has no status, and the operator's Lease does not exist",
    ("kubectl get deployments --all-namespaces --selector=app.kubernetes.io/name=tfjob-operator", _INSTALL),
    "The job has no status, and no operator has a Lease",
)
NOT_ACTING: Final = Trouble(
    "operator-not-acting",
    12,
    Severity.ERROR,
    "The operator has not reconciled the job for {age}",
    (
        "kubectl get pods --all-namespaces --selector=name=tf-job-operator",
        f"{_INSTALL}; check its flag --namespace, which may exclude namespace {{namespace}}",
    ),
    (
        "The job has no status a minute after its creation: the operator is down, serves other namespaces, or has no "
        "permission for TFJobs"
    ),
)
NOT_SERVED: Final = Trouble(
    "alpha-not-served",
    12,
    Severity.ERROR,
    "The operator is running and has not reconciled the job for {age}: tensorflow.org/v1alpha1 is probably not enabled",
    (
        (
            "Ask your cluster administrator to run the operator with --apis=kubeflow.org/v1,tensorflow.org/v1alpha1 and the "
            "rights of manifests/addons/alpha"
        ),
        "Or convert the job to v1: kubectl -n {namespace} get {resource} {job} -o yaml | kubectl tfjob convert -",
    ),
    "A TfJob of tensorflow.org has no status a minute after its creation, and the operator's Lease is renewed",
)
EDIT_UNSEEN: Final = Trouble(
    "edit-not-seen",
    13,
    Severity.WARNING,
    "The last edit has not been reconciled yet (generation {generation}, observed {seen})",
    (OPERATOR_LOGS,),
    "status.observedGeneration is less than metadata.generation",
)
CRD_OLD: Final = Trouble(
    "crd-old",
    14,
    Severity.WARNING,
    "Status fields are pruned: the installed CRD is outdated or belongs to another operator",
    (
        (
            "Ask your cluster administrator to apply the CRD of the operator's version: "
            "kubectl apply --server-side --force-conflicts -f manifests/base/crd.yaml"
        ),
    ),
    "The CRD lacks fields that the operator writes; successes and restarts may be lost",
)
TROUBLES: Final = defined(globals())

LATE_S: Final = 60.0
"""A new job has a status within a second; after a minute the work queue is too long, or no operator runs."""
_GRACE_S: Final = 30.0
"""Added to a lease's duration, since the clocks of nodes and of this machine differ."""
_WRITTEN: Final = ("finishedIndices", "restarts", "begun")
"""Fields of the status that only this operator's CRD has (controller/tfjob/crd_check.py looks at all of them)."""


def find(facts: Facts) -> Iterator[Finding]:
    """Yield why the operator does not reconcile the job."""
    meta, evidence = facts.job.metadata, facts.evidence
    if evidence.namespace is not None and (
        evidence.namespace.status.phase == "Terminating" or evidence.namespace.metadata.deletion_timestamp is not None
    ):
        yield Finding(NAMESPACE_TERMINATING, facts.name, (f"namespace {named(facts.namespace)}: phase Terminating",))
    if meta.deletion_timestamp is not None:
        waits = (
            f"and waits for finalizers: {', '.join(map(named, evidence.finalizers[:3]))}" if evidence.finalizers else ""
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
            yield Finding(MISSING, facts.name, ("job: no status", "lease tf-operator: not found"))
        elif age_s is not None and age_s > LATE_S:
            trouble = NOT_SERVED if facts.shape.resource == str(TENSORFLOW.resource) and lease else NOT_ACTING
            yield Finding(
                trouble, facts.name, (f"job: created {duration(age_s)} ago, no status",), {"age": duration(age_s)}
            )
    elif 0 < status.observed_generation < facts.job.metadata.generation:
        values = {"generation": str(facts.job.metadata.generation), "seen": str(status.observed_generation)}
        yield Finding(
            EDIT_UNSEEN, facts.name, ("job: status.observedGeneration is less than metadata.generation",), values
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
                proofs.append(f"CRD tfjobs.kubeflow.org: the schema of v1 lacks status.{', status.'.join(lost)}")
    if proofs:
        yield Finding(CRD_OLD, facts.name, tuple(proofs))
