"""How a job stands, in one line, whether or not anything is wrong. Pure."""

from __future__ import annotations

from collections import Counter

from tfjob_operator.api.v1.constants import PS, ConditionType
from tfjob_operator.api.v1alpha1.constants import State
from tfjob_operator.cli.diagnosis.facts import Facts
from tfjob_operator.cli.diagnosis.pods import is_up
from tfjob_operator.cli.diagnosis.words import ago, named
from tfjob_operator.cli.durations import duration


def standing(facts: Facts) -> str:
    """Return the job's state, since when, and how many replicas run: `mnist: Running for 3h, 4 of 4 workers running`."""
    status, name = facts.job.status, named(facts.name)
    state = status.conditions[-1].type if status.conditions else status.phase or "new"
    if facts.finished:
        lasted = facts.age_s(status.start_time), facts.age_s(status.completion_time)
        took = f", after {duration(lasted[0] - lasted[1])}" if lasted[0] is not None and lasted[1] is not None else ""
        when = ago(facts.now, status.completion_time)
        return f"{name}: {'Succeeded' if _has_succeeded(facts) else 'Failed'}{when and ' '}{when}{took}"
    age_s = facts.age_s(status.start_time)
    if age_s is None or facts.suspended:
        since = ""
    else:
        since = f" {duration(age_s)} ago" if state == ConditionType.CREATED else f" for {duration(age_s)}"
    return f"{name}: {named(state)}{since}{_replicas(facts)}"


def _has_succeeded(facts: Facts) -> bool:
    alpha = facts.evidence.alpha
    if alpha is not None and not alpha.job.status.conditions:
        return alpha.job.status.state == State.SUCCEEDED
    return facts.condition(ConditionType.SUCCEEDED) is not None


def _replicas(facts: Facts) -> str:
    """Return how many replicas of each type run, of how many."""
    running = {facts.shape.replica_of(pod) for pod in facts.live_pods if is_up(pod)}
    up = Counter(kind for name, kind in facts.wanted.items() if name in running)
    done = {kind: size - sum(1 for each in facts.wanted.values() if each == kind) for kind, size in facts.sizes.items()}
    if facts.suspended or not facts.sizes:
        return ""
    return "".join(
        f", {up[kind]} of {_counted(kind, size)} running{f', {done[kind]} finished' if done[kind] else ''}"
        for kind, size in facts.sizes.items()
        if size
    )


def _counted(kind: str, size: int) -> str:
    """Return how many replicas of a type there are: `1 worker`, `2 workers`, `3 PS`."""
    return f"{size} {kind}" if kind == PS else f"{size} {kind.lower()}{'s' if size > 1 else ''}"
