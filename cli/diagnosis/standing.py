"""How a job stands, in one line, whether or not anything is wrong. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1alpha1.constants import State
from tfjob_operator.cli.diagnosis.pods import is_up
from tfjob_operator.cli.diagnosis.words import ago, named
from tfjob_operator.cli.durations import duration

if TYPE_CHECKING:
    from tfjob_operator.cli.diagnosis.facts import Facts


def standing(facts: Facts) -> str:
    """Return the job's state, since when, and how many replicas run: `mnist is Running for 3 h: Worker 4 of 4 running`."""
    status, name = facts.job.status, named(facts.name)
    state = status.conditions[-1].type if status.conditions else status.phase or "new"
    if facts.finished:
        lasted = facts.age_s(status.start_time), facts.age_s(status.completion_time)
        took = f" after {duration(lasted[0] - lasted[1])}" if lasted[0] is not None and lasted[1] is not None else ""
        when = ago(facts.now, status.completion_time)
        verb = "has succeeded" if _has_succeeded(facts) else "has failed"
        return f"{name} {verb}{when and ', '}{when}{took}"
    age_s = facts.age_s(status.start_time)
    since = f" for {duration(age_s)}" if age_s is not None and not facts.suspended else ""
    return f"{name} is {named(state)}{since}{_replicas(facts)}"


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
    words = [
        f"{kind} {up[kind]} of {size} running{f', {done[kind]} done' if done[kind] else ''}"
        for kind, size in facts.sizes.items()
        if size
    ]
    return f": {'; '.join(words)}" if words else ""
