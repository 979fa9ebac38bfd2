"""Why a job does not run: all that was found, merged into causes, the root cause first. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from tfjob_operator.api.text import clean
from tfjob_operator.api.v1.constants import MANAGED_BY_US
from tfjob_operator.cli.diagnosis import operator, suspension
from tfjob_operator.cli.diagnosis.advice import steps
from tfjob_operator.cli.diagnosis.causes import Cause, Diagnosis, Finding, Severity, fill
from tfjob_operator.cli.diagnosis.evidence import Evidence
from tfjob_operator.cli.diagnosis.facts import Facts, natural
from tfjob_operator.cli.diagnosis.rules import value
from tfjob_operator.cli.diagnosis.standing import standing
from tfjob_operator.cli.diagnosis.table import FINDERS, LEFT_OUT
from tfjob_operator.cli.diagnosis.words import named

MOST_CAUSES: Final = 20
"""More than a person follows up; a job of ten thousand replicas could have as many."""
MOST_PROOFS: Final = 4
"""Lines of evidence of one cause."""
MAX_PROOF: Final = 800
"""Bytes of a line of evidence: an event's words, and where it was seen."""
_ORDER: Final = {severity: number for number, severity in enumerate(Severity)}
_PASSING: Final = re.compile(r", \w+ ago\b|, \d+ times\b|\b\d+ restarts?\b|\b[0-9a-f]{8}-[0-9a-f-]{27}\b")
"""What differs between two pods with the same trouble: times, counts and UIDs."""


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
        _ORDER[Severity.ERROR if trouble is suspension.BY_USER else trouble.severity],  # it explains why nothing runs
        trouble.rank,
        -len({finding.who for finding in group}),
        who,
        trouble.id,
        group[0].key,
    )


def _cause(facts: Facts, group: Sequence[Finding]) -> Cause:
    """Return the cause that findings of one kind become; `whom` names all replicas, and the values are those of the first."""
    ordered = sorted(group, key=lambda finding: natural(finding.who))
    first, whom = ordered[0], tuple(dict.fromkeys(finding.who for finding in ordered))
    given = {"job": facts.name, "namespace": facts.namespace, "resource": facts.shape.resource} | dict(first.values)
    if facts.evidence.lease is not None:
        given = {"operators": facts.evidence.lease.metadata.namespace} | given
    values = {name: value(text) or " " for name, text in given.items()}
    who = named(whom[0]) if len(whom) == 1 else f"{len(whom)} pods"
    title = " ".join(fill(first.trouble.title, values | {"who": who}).split())
    to_do = [step for trouble in (first.trouble, *first.also) for step in trouble.to_do]
    return Cause(
        id=first.trouble.id,
        severity=first.trouble.severity,
        title=title,
        evidence=tuple(clean(proof, MAX_PROOF) for proof in _once(ordered)[:MOST_PROOFS]),
        to_do=steps(facts, to_do, values | {"who": whom[0]}, whom),
        whom=whom,
    )


def _once(findings: Sequence[Finding]) -> list[str]:
    """Return the lines of evidence, one for those of several pods that differ only in the pod and the time: `(2 pods)`."""
    alike: dict[str, dict[str, str]] = defaultdict(dict)
    for finding in findings:
        for proof in finding.proofs:
            line = " ".join(proof.split())
            alike[_PASSING.sub("*", line.replace(finding.who, "*"))].setdefault(finding.who, line)
    return [
        line if len(lines) == 1 else line.replace(": ", f" ({len(lines)} pods): ", 1)
        for lines in alike.values()
        for line in [next(iter(lines.values()))]
    ]


def _unseen(evidence: Evidence) -> str:
    """Return what could not be read, and therefore was not checked."""
    kinds: Iterable[str] = sorted(set(evidence.forbidden))
    return (
        f"Not checked, because you have no permission to read: {', '.join(named(kind) for kind in kinds)}"
        if evidence.forbidden
        else ""
    )
