"""Why a job does not run: all that was found, merged into causes, the root cause first. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.text import clean
from tfjob_operator.api.v1.constants import LABEL_JOB_NAME, LABEL_PREFIX, MANAGED_BY_US
from tfjob_operator.cli.diagnosis import operator
from tfjob_operator.cli.diagnosis.causes import Cause, Diagnosis, Finding, Severity, fill
from tfjob_operator.cli.diagnosis.facts import Facts, natural
from tfjob_operator.cli.diagnosis.rules import value
from tfjob_operator.cli.diagnosis.standing import standing
from tfjob_operator.cli.diagnosis.table import FINDERS, LEFT_OUT
from tfjob_operator.cli.diagnosis.words import named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfjob_operator.cli.diagnosis.evidence import Evidence

MOST_CAUSES: Final = 20
"""More than a person follows up; a job of ten thousand replicas could have as many."""
MOST_PROOFS: Final = 4
"""Lines of evidence of one cause."""
V1_LABEL: Final = LABEL_PREFIX + LABEL_JOB_NAME
"""The label of pods with the name of their job, as the troubles write it."""
MAX_PROOF: Final = 800
"""Bytes of a line of evidence: an event's words, and where it was seen."""
_ORDER: Final = {severity: number for number, severity in enumerate(Severity)}


def diagnose(evidence: Evidence) -> Diagnosis:
    """Return why the job does not run, the root cause first; no causes where nothing is wrong.

    It raises nothing, whatever the evidence: what cannot be understood is left out.
    """
    facts = Facts(evidence)
    findings = [finding for find in FINDERS for finding in find(facts)] if _ours(facts) else list(operator.find(facts))
    found = {finding.trouble.id for finding in findings}
    telling = [finding for finding in findings if not LEFT_OUT.get(finding.trouble.id, frozenset()) & found]
    merged: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in telling:
        merged[finding.trouble.id, finding.key].append(finding)
    ranked = sorted(merged.values(), key=_rank)
    causes = tuple(_cause(facts, group) for group in ranked[:MOST_CAUSES])
    return Diagnosis(causes, standing(facts), _unseen(evidence))


def _ours(facts: Facts) -> bool:
    """Return whether this operator looks after the job: most finders know nothing about jobs of another controller."""
    return facts.spec.managed_by in MANAGED_BY_US


def _rank(group: Sequence[Finding]) -> tuple[object, ...]:
    trouble = group[0].trouble
    who = min(natural(finding.who) for finding in group)
    return (
        _ORDER[trouble.severity],
        trouble.rank,
        -len({finding.who for finding in group}),
        who,
        trouble.id,
        group[0].key,
    )


def _cause(facts: Facts, group: Sequence[Finding]) -> Cause:
    """Return the cause that findings of one kind become: its title is about the first replica, `whom` names all."""
    ordered = sorted(group, key=lambda finding: natural(finding.who))
    first, whom = ordered[0], tuple(dict.fromkeys(finding.who for finding in ordered))
    given = {"job": facts.name, "namespace": facts.namespace, "resource": facts.shape.resource} | dict(first.values)
    values = {name: value(text) or " " for name, text in given.items()}
    who = named(whom[0]) + (f" and {len(whom) - 1} more" if len(whom) > 1 else "")
    title = " ".join(fill(first.trouble.title, values | {"who": who}).split())
    proofs = dict.fromkeys(proof for finding in ordered for proof in finding.proofs)
    return Cause(
        id=first.trouble.id,
        severity=first.trouble.severity,
        title=title,
        evidence=tuple(clean(" ".join(proof.split()), MAX_PROOF) for proof in tuple(proofs)[:MOST_PROOFS]),
        to_do=(
            *(_in_dialect(facts, line, values | {"who": whom[0]}) for line in first.trouble.to_do),
            *_made_anew(facts, first),
        ),
        whom=whom,
    )


def _in_dialect(facts: Facts, line: str, values: Mapping[str, str]) -> str:
    """Return what to do, with the resource and the label that a job of this dialect has."""
    for v1, here in ((" tfjob {job}", f" {facts.shape.resource} {{job}}"), (f"{V1_LABEL}=", f"{facts.shape.label}=")):
        line = line.replace(v1, here)
    return fill(line, values, command=True)


def _made_anew(facts: Facts, finding: Finding) -> Iterator[str]:
    """Yield how an edited template comes into force where a Job was made of the old one."""
    alpha, who = facts.evidence.alpha, finding.who
    replica = next((facts.shape.replica_of(pod) for pod in facts.pods if pod.metadata.name == who), who)
    jobs = {job.metadata.name for job in (alpha.batch_jobs or ())} if alpha is not None else set()
    if replica in jobs and any(" edit tfjob {job}" in line for line in finding.trouble.to_do):
        values = {"namespace": facts.namespace, "who": replica}
        yield fill(
            "then delete its Job, which is made anew: kubectl -n {namespace} delete job {who}", values, command=True
        )


def _unseen(evidence: Evidence) -> str:
    """Return what could not be read, so that people know what the diagnosis leaves out."""
    kinds: Iterable[str] = sorted(set(evidence.forbidden))
    return (
        f"Not looked at, since you may not read them: {', '.join(named(kind) for kind in kinds)}"
        if evidence.forbidden
        else ""
    )
