"""Replicas of the alpha dialect whose Job makes no pod: it is suspended, was given up, or nobody looks after it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.cli.diagnosis.causes import Finding, Severity, Trouble
from tfjob_operator.cli.diagnosis.pods import condition_of
from tfjob_operator.cli.diagnosis.rules import value
from tfjob_operator.cli.diagnosis.words import named, said
from tfjob_operator.cli.durations import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfjob_operator.cli.diagnosis.facts import Facts

FAILED: Final = Trouble(
    "batch-job-failed",
    420,
    Severity.ERROR,
    "The Job of {who} was given up, {reason}: nothing starts this replica again",
    (
        "kubectl -n {namespace} describe job {who}",
        "If the TFJob goes on, delete the Job, and it is made anew: kubectl -n {namespace} delete job {who}",
    ),
    "A Job of the alpha dialect has failed, by a limit that somebody has set on it: the operator sets none",
)
SUSPENDED: Final = Trouble(
    "batch-job-suspended",
    421,
    Severity.ERROR,
    "The Job of {who} is suspended: its spec.suspend is true",
    (
        "Who has set it? kubectl -n {namespace} get job {who} -o yaml --show-managed-fields",
        'kubectl -n {namespace} patch job {who} --type=merge --patch=\'{{"spec":{{"suspend":false}}}}\'',
    ),
    "A Job of the alpha dialect is suspended, by a queue or a person: the operator suspends none",
)
UNSEEN: Final = Trouble(
    "job-controller-silent",
    422,
    Severity.ERROR,
    "The Job of {who} has no pod: in {age} no Job controller has looked at it",
    (
        "Does kube-controller-manager run, with the controller `job`? Ask who runs the cluster",
        "kubectl -n {namespace} describe job {who}",
    ),
    "A Job of the alpha dialect has no status a minute after it was created",
)
TROUBLES: Final = (FAILED, SUSPENDED, UNSEEN)

_LATE_S: Final = 60.0


def find(facts: Facts) -> Iterator[Finding]:
    """Yield why Jobs make no pods, as far as the Jobs say it; what the API server refuses is found by `admission`."""
    jobs = facts.evidence.alpha.batch_jobs if facts.evidence.alpha is not None else None
    missing = set(facts.missing)
    for job in jobs or ():
        name, failed = job.metadata.name, condition_of(job.status.conditions, "Failed")
        if job.metadata.deletion_timestamp is not None:
            continue
        if failed is not None and failed.status == "True" and (name in facts.wanted or name in _told(facts)):
            seen = f"job {named(name)}: condition Failed, {named(failed.reason)}: {said(failed.message)}"
            yield Finding(FAILED, name, (seen,), {"reason": value(failed.reason) or "Failed"}, failed.reason)
        elif name in missing and job.spec.suspend:
            yield Finding(SUSPENDED, name, (f"job {named(name)}: spec.suspend is true",))
        elif name in missing and job.status.start_time is None and not job.status.conditions:
            age_s = facts.age_s(job.metadata.creation_timestamp)
            if age_s is not None and age_s > _LATE_S:
                seen = f"job {named(name)}: created {duration(age_s)} ago, and it has no status"
                yield Finding(UNSEEN, name, (seen,), {"age": duration(age_s)})


def _told(facts: Facts) -> tuple[str, ...]:
    """Return the words of the message that says why the job has failed."""
    alpha = facts.evidence.alpha
    return tuple(alpha.job.status.reason.replace(",", " ").split()) if alpha is not None else ()
