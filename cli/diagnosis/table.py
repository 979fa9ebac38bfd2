"""The table of all problems, and of the functions that find them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tfjob_operator.cli.diagnosis import (
    admission,
    attempts,
    batch_jobs,
    crashing,
    ending,
    fallback,
    gang,
    images,
    lifecycle,
    logs,
    operator,
    scheduling,
    specification,
    starting,
    storage,
    suspension,
    tensorboard,
)
from tfjob_operator.cli.diagnosis.causes import Finding, Problem, Severity
from tfjob_operator.cli.diagnosis.facts import Facts

GROUPS: Final[Mapping[str, tuple[Problem, ...]]] = {
    "The operator": operator.PROBLEMS,
    "The specification": specification.PROBLEMS,
    "Suspension and Kueue": suspension.PROBLEMS,
    "Pods that cannot be created": admission.PROBLEMS,
    "Jobs of replicas (alpha dialect)": batch_jobs.PROBLEMS,
    "Gangs": gang.PROBLEMS,
    "Storage": storage.PROBLEMS,
    "Scheduling": scheduling.PROBLEMS,
    "Images": images.PROBLEMS,
    "Starting": starting.PROBLEMS,
    "Failing": crashing.PROBLEMS,
    "Last words": logs.PROBLEMS,
    "On the way": lifecycle.PROBLEMS,
    "Ending": ending.PROBLEMS,
    "Failure policies": attempts.PROBLEMS,
    "Quoted": fallback.PROBLEMS,
    "TensorBoard": tensorboard.PROBLEMS,
}
"""All problems by subject, as in docs/design/plugin.md."""

PROBLEMS: Final[Mapping[str, Problem]] = {problem.id: problem for group in GROUPS.values() for problem in group}

FINDERS: Final[tuple[Callable[[Facts], Iterator[Finding]], ...]] = (
    operator.find,
    specification.find,
    suspension.find,
    admission.find,
    batch_jobs.find,
    gang.find,
    storage.find,
    scheduling.find,
    images.find,
    starting.find,
    crashing.find,
    lifecycle.find,
    attempts.find,
    ending.find,
    fallback.find,
    tensorboard.find,
)

_VAGUE: Final = frozenset(
    {crashing.KILLED, crashing.TERMINATED, crashing.CRASH_LOOP, admission.NO_PODS, starting.STARTS_SLOWLY}
)
_KNOWN: Final = frozenset(
    each.id
    for each in PROBLEMS.values()
    if each.severity is Severity.ERROR and each not in _VAGUE and each not in fallback.PROBLEMS
)

_RESTARTS: Final = frozenset({attempts.EARLIER_PODS.id, attempts.DELAYED.id})
SUPERSEDED_BY: Final[Mapping[str, frozenset[str]]] = {
    operator.UNSERVED.id: operator.STOPPED - {operator.UNSERVED.id},
    scheduling.UNBOUND.id: frozenset(each.id for each in storage.PROBLEMS),
    scheduling.UNSCHEDULABLE.id: frozenset(each.id for each in storage.PROBLEMS),
    starting.STARTS_SLOWLY.id: frozenset(
        each.id for each in (*storage.PROBLEMS, lifecycle.NODE_AWAY, *fallback.PROBLEMS)
    ),
    lifecycle.JOB_FAILED.id: frozenset(
        each.id
        for each in (
            *specification.PROBLEMS,
            *batch_jobs.PROBLEMS,
            *crashing.PROBLEMS,
            *logs.PROBLEMS,
            *images.PROBLEMS,
            *starting.PROBLEMS,
        )
        if each.severity is Severity.ERROR
    )
    | {attempts.NODE_LOST.id},
    lifecycle.RESTARTING.id: _RESTARTS
    | frozenset(
        each.id
        for each in (*admission.PROBLEMS, *crashing.PROBLEMS)
        if each.severity is Severity.ERROR and each is not admission.NO_PODS
    ),
    admission.NO_PODS.id: frozenset(
        each.id
        for each in (
            *operator.PROBLEMS,
            *gang.PROBLEMS,
            *batch_jobs.PROBLEMS,
            *specification.PROBLEMS,
            lifecycle.STUCK,
            lifecycle.RESTARTING,
            *attempts.PROBLEMS,
            *fallback.PROBLEMS,
        )
    ),
    crashing.KILLED.id: frozenset({fallback.START.id}),
    crashing.TERMINATED.id: frozenset({fallback.START.id}),
    crashing.CRASH_LOOP.id: frozenset({fallback.START.id}),
    **{each.id: _KNOWN for each in fallback.PROBLEMS},
    fallback.TERMINATING.id: _KNOWN | {attempts.EARLIER_PODS.id},
    fallback.RECREATED.id: _KNOWN | _RESTARTS,
}
"""Causes that are omitted if one of these others was found, since they add nothing to it."""
