"""Replicas of the alpha dialect whose Job creates no pod: it is suspended, has failed, or is not reconciled. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tfjob_operator.api.v1.constants import LABEL_QUEUE
from tfjob_operator.cli.diagnosis import suspension
from tfjob_operator.cli.diagnosis.advice import AGAIN
from tfjob_operator.cli.diagnosis.causes import Finding, WhileRunning, error
from tfjob_operator.cli.diagnosis.facts import Facts
from tfjob_operator.cli.diagnosis.rules import value
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.pods import condition_of
from tfjob_operator.cli.model.words import quote, safe_name

FAILED: Final = error(
    "batch-job-failed",
    "Job of {who} failed: {reason}; nothing restarts the replica",
    "A Job of the alpha dialect has failed, by a limit that was set on it: the operator sets none",
    "kubectl -n {namespace} describe job {who}",
    WhileRunning("Delete the Job, which is recreated: kubectl -n {namespace} delete job {who}"),
    AGAIN,
)
SUSPENDED: Final = error(
    "batch-job-suspended",
    "Job of {who} is suspended (spec.suspend)",
    "A Job of the alpha dialect was suspended by a queue or a user: the operator suspends none",
    'kubectl -n {namespace} patch job {who} --type=merge --patch=\'{{"spec":{{"suspend":false}}}}\'',
)
UNSEEN: Final = error(
    "job-controller-silent",
    "Job of {who} has no pod: not reconciled by the Job controller for {age}",
    "A Job of the alpha dialect has no status a minute after its creation",
    "kubectl -n {namespace} describe job {who}",
    "Ask your cluster administrator whether kube-controller-manager is running with the Job controller",
)

_LATE_S: Final = 60.0


def find(facts: Facts) -> Iterator[Finding]:
    """Yield why Jobs create no pods, according to the Jobs; rejections by the API server are found by `admission`."""
    jobs = facts.evidence.alpha.batch_jobs if facts.evidence.alpha is not None else None
    missing = set(facts.missing)
    for job in jobs or ():
        name, failed = job.metadata.name, condition_of(job.status.conditions, "Failed")
        if job.metadata.deletion_timestamp is not None:
            continue
        if failed is not None and failed.status == "True" and (name in facts.wanted or name in _failure_message(facts)):
            seen = f"job {safe_name(name)}: condition Failed, {safe_name(failed.reason)}: {quote(failed.message)}"
            yield Finding(FAILED, name, (seen,), {"reason": value(failed.reason) or "Failed"}, failed.reason)
        elif name in missing and job.spec.suspend:
            problem = suspension.ONE_BY_ONE if LABEL_QUEUE in (job.metadata.labels or {}) else SUSPENDED
            yield Finding(problem, name, (f"job {safe_name(name)}: spec.suspend is true",))
        elif name in missing and job.status.start_time is None and not job.status.conditions:
            age_s = facts.age_s(job.metadata.creation_timestamp)
            if age_s is not None and age_s > _LATE_S:
                seen = f"job {safe_name(name)}: created {duration(age_s)} ago, no status"
                yield Finding(UNSEEN, name, (seen,), {"age": duration(age_s)})


def _failure_message(facts: Facts) -> tuple[str, ...]:
    """Return the message about why the Job has failed."""
    alpha = facts.evidence.alpha
    return tuple(alpha.job.status.reason.replace(",", " ").split()) if alpha is not None else ()
