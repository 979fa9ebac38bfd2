"""Merges all findings into causes, root cause first. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Final

from tfjob_operator.api.text import clean
from tfjob_operator.api.v1.constants import CONTAINER_NAME, MANAGED_BY_US, PS, ConditionType
from tfjob_operator.cli.diagnosis import fallback, lifecycle, operator, specification, suspension
from tfjob_operator.cli.diagnosis.advice import DESCRIBE_JOB, LEFT_TO_PEER, LOGS, NOT_SERVED, ON_HOLD, REPLACED, steps
from tfjob_operator.cli.diagnosis.causes import Cause, Diagnosis, Finding, Severity, fill
from tfjob_operator.cli.diagnosis.facts import Evidence, Facts, natural_sort_key
from tfjob_operator.cli.diagnosis.rules import CUT, value
from tfjob_operator.cli.diagnosis.table import FINDERS, RANKS, SUPERSEDED_BY
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.pods import has_started
from tfjob_operator.cli.model.snapshot import JobSnapshot
from tfjob_operator.cli.model.words import accelerator_hours, ago, safe_name, seconds_between

MAX_CAUSES: Final = 20
"""More than users will look at; a job of ten thousand replicas could have as many causes."""
MAX_PROOFS: Final = 4
"""The most lines of evidence for one cause."""
MAX_PROOF: Final = 800
"""The most bytes of a line of evidence: an event's message and its source."""
_WHOLE: Final = re.compile(r"kubectl \S+ \S+ (logs|describe) ")
"""Commands that print a message in full."""
_ORDER: Final = {severity: number for number, severity in enumerate(Severity)}
_PASSING: Final = re.compile(r", \w+ ago\b|, \d+ times\b|\b\d+ restarts?\b|\b[0-9a-f]{8}-[0-9a-f-]{27}\b")
"""The differences between two pods with the same problem: times, counts and UIDs."""


def diagnose(evidence: Evidence) -> Diagnosis:
    """Return why the job is not running, root cause first; there may be no causes. Never raises, whatever the evidence."""
    facts = Facts(evidence)
    finders = (
        FINDERS if _ours(facts) else (operator.find, *([suspension.find] if evidence.workload is not None else ()))
    )
    findings = [finding for find in finders for finding in find(facts)]
    found = {finding.problem.id for finding in findings}
    relevant = [finding for finding in findings if not SUPERSEDED_BY.get(finding.problem.id, frozenset()) & found]
    merged: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in relevant:
        merged[finding.problem.id, finding.key].append(finding)
    ranked = sorted(merged.values(), key=partial(_rank, found))
    causes: list[Cause] = []
    for group in ranked[:MAX_CAUSES]:
        saved = any(REPLACED in step for cause in causes for step in cause.to_do)
        causes.append(_cause(facts, group, keep_pods=_keep_pods(facts, found, group), saved=saved))
    held = tuple(accelerator_hours(facts.job.status.accelerator_seconds))
    return Diagnosis(tuple(causes), state_line(facts), _unseen(evidence), held)


def _keep_pods(facts: Facts, found: set[str], group: Sequence[Finding]) -> str:
    """Return why no pod is to be deleted; "" if its replica would continue in a new one."""
    if operator.STOPPED & found:
        return NOT_SERVED
    if specification.ON_HOLD & found:
        return ON_HOLD
    affected = {finding.affected for finding in group}
    has_run = any(has_started(pod) for pod in facts.pods if pod.metadata.name in affected)
    return LEFT_TO_PEER if facts.peers and has_run else ""


def _ours(facts: Facts) -> bool:
    """Return True if this operator manages the job: most finders do not support jobs of other controllers."""
    return facts.spec.managed_by in MANAGED_BY_US


def _rank(found: Collection[str], group: Sequence[Finding]) -> tuple[object, ...]:
    problem = group[0].problem
    still_runs = {lifecycle.STUCK.id, fallback.TERMINATING.id}.intersection(found)
    explains = problem.id == suspension.BY_USER.id and not still_runs  # it explains why nothing runs
    first = min(natural_sort_key(finding.affected) for finding in group)
    return (
        _ORDER[Severity.ERROR if explains else problem.severity],
        RANKS[problem.id],
        -len({finding.affected for finding in group}),
        first,
        problem.id,
        group[0].key,
    )


def _cause(facts: Facts, group: Sequence[Finding], *, keep_pods: str, saved: bool) -> Cause:
    """Merge findings of one kind into a cause; `affected` names all replicas, and the values are from the first finding."""
    ordered = sorted(group, key=lambda finding: natural_sort_key(finding.affected))
    first, affected = ordered[0], tuple(dict.fromkeys(finding.affected for finding in ordered))
    given = {"job": facts.name, "namespace": facts.namespace, "resource": facts.shape.resource} | dict(first.values)
    if facts.evidence.lease is not None:
        given = {"operators": facts.evidence.lease.metadata.namespace} | given
    values = {name: value(text) or " " for name, text in given.items()}
    who = safe_name(affected[0]) if len(affected) == 1 else f"{len(affected)} pods"
    containers = {finding.values.get("container", "") for finding in group}
    if (
        "{container}" not in first.problem.title
        and len(containers) == 1
        and containers.isdisjoint(("", CONTAINER_NAME))
    ):
        who = f"container {values['container']} of {who}"
    title = " ".join(fill(first.problem.title, values | {"who": who}).split())
    proofs = _once(ordered)
    shown = [*proofs[: MAX_PROOFS - 1], f"and {len(proofs) - MAX_PROOFS + 1} more"]
    to_do = [step for problem in (first.problem, *first.also) for step in problem.to_do]
    if any(map(CUT.search, values.values())) and not any(
        isinstance(step, str) and _WHOLE.search(step) for step in to_do
    ):
        to_do.insert(0, f"The whole message: {LOGS if 'previous' in values else DESCRIBE_JOB}")
    return Cause(
        id=first.problem.id,
        severity=first.problem.severity,
        title=title,
        evidence=tuple(clean(proof, MAX_PROOF) for proof in (proofs if len(proofs) <= MAX_PROOFS else shown)),
        to_do=steps(facts, to_do, values | {"who": affected[0]}, affected, keep_pods=keep_pods, saved=saved),
        affected=affected,
    )


def _once(findings: Sequence[Finding]) -> list[str]:
    """Return the lines of evidence, merging those that differ only in pod and time: `(2 pods)`."""
    alike: dict[str, dict[str, str]] = defaultdict(dict)
    for finding in findings:
        for proof in finding.proofs:
            line = " ".join(proof.split())
            alike[_PASSING.sub("*", line.replace(finding.affected, "*"))].setdefault(finding.affected, line)
    return [
        line if len(lines) == 1 else line.replace(": ", f" ({len(lines)} pods): ", 1)
        for lines in alike.values()
        for line in [next(iter(lines.values()))]
    ]


def _unseen(evidence: Evidence) -> str:
    """Return what could not be read, and therefore was not checked."""
    kinds: Iterable[str] = sorted(set(evidence.forbidden))
    refused = f"Not checked, because you have no permission to read: {', '.join(safe_name(kind) for kind in kinds)}"
    cut = "Events were read only partly, because the namespace has too many"
    return ". ".join([refused] * bool(evidence.forbidden) + [cut] * evidence.events_cut)


def state_line(facts: Facts) -> str:
    """Return state, duration and ready replicas of the job: `mnist: Running for 3h, 4 of 4 workers ready`."""
    seen, status, name = facts.snapshot, facts.job.status, safe_name(facts.name)
    if facts.ending is not None:
        age_s = facts.age_s(facts.ending.last_transition_time)
        return f"{name}: {seen.state}{'' if age_s is None else f' for {duration(age_s)}'}, will be {facts.ending.type}"
    if facts.finished:
        start, end = status.start_time, status.completion_time
        took = f", after {duration(seconds_between(start, end))}" if start is not None and end is not None else ""
        when = ago(facts.now, status.completion_time)
        return f"{name}: {seen.state}{when and ' '}{when}{took}"
    restarting = facts.condition(ConditionType.RESTARTING) if seen.state == ConditionType.RESTARTING else None
    lasted_s = seen.lasted_s if restarting is None else facts.age_s(restarting.last_transition_time)
    if lasted_s is None:
        since = ""
    else:
        since = f" {duration(lasted_s)} ago" if seen.state == ConditionType.CREATED else f" for {duration(lasted_s)}"
    return f"{name}: {safe_name(seen.state)}{since}{_replicas(seen)}"


def _replicas(seen: JobSnapshot) -> str:
    """Return how many replicas of each type are ready, of how many."""
    sizes = seen.job.sizes if (seen.has_pods or seen.job.manager) and not seen.job.is_suspended else {}
    done = Counter(replica.type for replica in seen.replicas if replica.has_succeeded)
    return "".join(
        f", {seen.ready_of(kind)} of {_counted(kind, size)} ready{f', {done[kind]} finished' if done[kind] else ''}"
        for kind, size in sizes.items()
        if size
    )


def _counted(kind: str, size: int) -> str:
    """Return a number of replicas with their type: `1 worker`, `2 workers`, `3 PS`."""
    return f"{size} {kind}" if kind == PS else f"{size} {kind.lower()}{'s' if size > 1 else ''}"
