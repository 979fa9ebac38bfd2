"""Rows that map events and conditions to problems, and how findings are made of what was read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tfjob_operator.cli.diagnosis.causes import Finding, Problem
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.rules import MessageRule, first_match, shorten, value
from tfjob_operator.cli.model.objects import EventDetails, PodDetails
from tfjob_operator.cli.model.pods import condition_of
from tfjob_operator.cli.model.words import quote, safe_name

_KEYS: Final = ("name", "claim", "secret")
"""The named groups that tell apart causes of one problem."""


class OnJob(NamedTuple):
    """The newest event on the job with one of these reasons, if it is younger than `within_s`.

    The value {words} is its message.
    """

    problem: Problem
    reasons: tuple[str, ...]
    within_s: float = float("inf")


class Condition(NamedTuple):
    """A condition of a pod that is True. The value {reason} is its reason."""

    problem: Problem
    type: str


def of_job(facts: Facts, problem: Problem, *seen: str, key: str = "", **values: str) -> Finding:
    """Return a finding about the job. `seen` are facts about it."""
    return Finding(problem, facts.name, tuple(f"job: {each}" for each in seen), values, key)


def of_pod(problem: Problem, pod: PodDetails, *seen: str, key: str = "", **values: str) -> Finding:
    """Return a finding about a pod. `seen` are facts about it; {pod} and {node} are always values."""
    name = pod.metadata.name
    proofs = tuple(f"pod {safe_name(name)}: {each}" for each in seen)
    return Finding(problem, name, proofs, {"pod": name, "node": pod.spec.node_name, **values}, key)


def of_event(
    facts: Facts, problem: Problem, event: EventDetails, pod: PodDetails | None = None, *, key: str = "", **values: str
) -> Finding:
    """Return a finding about the job, or about a pod, of which an event tells. Its message is the value {words}."""
    values = {"words": shorten(value(event.message.removeprefix("Error creating: ")))} | values
    made = of_job(facts, problem, key=key, **values) if pod is None else of_pod(problem, pod, key=key, **values)
    return made.seen_in(facts.line(event))


def on_job(facts: Facts, rows: Iterable[OnJob]) -> Iterator[Finding]:
    """Yield what the events on the job tell."""
    for row in rows:
        for event in latest(facts.job_events(*row.reasons)):
            age_s = facts.age_s(event.at)
            if age_s is None or age_s < row.within_s:
                yield of_event(facts, row.problem, event)


def in_condition(pod: PodDetails, row: Condition) -> Iterator[Finding]:
    """Yield a condition of a pod that is True."""
    condition = condition_of(pod.status.conditions, row.type)
    if condition is not None and condition.status == "True":
        seen = f"{row.type}: {safe_name(condition.reason)}: {quote(condition.message)}"
        yield of_pod(row.problem, pod, seen, key=condition.reason, reason=condition.reason)


def matched(
    rules: Iterable[MessageRule], message: str, pod: PodDetails, *proofs: str, key: str = "", **values: str
) -> Iterator[Finding]:
    """Yield the problem of the first rule that matches a message about a pod. The named groups of its pattern are values."""
    if (found := first_match(rules, message)) is not None:
        problem, named = found
        more = {name: shorten(text) for name, text in named.items()}
        key = key or next((more[name] for name in _KEYS if name in more), "")
        yield of_pod(problem, pod, key=key, **(values | more)).seen_in(*proofs)
