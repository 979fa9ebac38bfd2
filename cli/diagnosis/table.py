"""The table of all problems, and of the functions that find them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tfjob_operator.cli.diagnosis import (
    admission,
    attempts,
    batch_jobs,
    crashing,
    ending,
    exits,
    fallback,
    gang,
    images,
    lifecycle,
    log_rules,
    operator,
    scheduling,
    specification,
    starting,
    storage,
    suspension,
    tensorboard,
    unnoticed,
)
from tfjob_operator.cli.diagnosis.causes import KNOWN, Finding, Group, Problem, Severity
from tfjob_operator.cli.diagnosis.facts import Facts

_MODULES: Final[Mapping[Group, tuple[int, Any]]] = {
    Group.OPERATOR: (0, operator),
    Group.SPEC: (200, specification),
    Group.SUSPENSION: (300, suspension),
    Group.ADMISSION: (400, admission),
    Group.BATCH_JOBS: (430, batch_jobs),
    Group.GANG: (440, gang),
    Group.STORAGE: (480, storage),
    Group.SCHEDULING: (500, scheduling),
    Group.IMAGES: (600, images),
    Group.STARTING: (640, starting),
    Group.CRASHING: (720, exits),
    Group.LOGS: (705, log_rules),
    Group.UNNOTICED: (716, unnoticed),
    Group.LIFECYCLE: (820, lifecycle),
    Group.ENDING: (965, ending),
    Group.ATTEMPTS: (860, attempts),
    Group.FALLBACK: (810, fallback),
    Group.TENSORBOARD: (920, tensorboard),
}
"""The modules, with the rank of the first problem of each."""

GROUPS: Final[Mapping[Group, tuple[Problem, ...]]] = {
    group: tuple(each for each in vars(module).values() if isinstance(each, Problem))
    for group, (_, module) in _MODULES.items()
}
"""All problems by subject, as in docs/design/plugin.md, in the order of their definitions."""

PROBLEMS: Final[Mapping[str, Problem]] = {problem.id: problem for group in GROUPS.values() for problem in group}

RANKS: Final[Mapping[str, int]] = {
    problem.id: first + number if problem.rank is None else problem.rank
    for group, (first, _) in _MODULES.items()
    for number, problem in enumerate(GROUPS[group])
}
"""The places of problems among those of the same severity."""

FINDERS: Final[tuple[Callable[[Facts], Iterator[Finding]], ...]] = tuple(
    (crashing if module is exits else module).find for _, module in _MODULES.values() if module is not log_rules
)


def _ids(name: str) -> frozenset[str]:
    """Return the IDs that an entry of `Problem.unless` stands for. Raises KeyError for one that is unknown."""
    errors = {
        group: [each for each in problems if each.severity is Severity.ERROR] for group, problems in GROUPS.items()
    }
    if name == KNOWN:
        known = (each for group, problems in errors.items() if group is not Group.FALLBACK for each in problems)
        return frozenset(each.id for each in known if not each.vague)
    return frozenset(each.id for each in errors[name]) if isinstance(name, Group) else frozenset({PROBLEMS[name].id})


SUPERSEDED_BY: Final[Mapping[str, frozenset[str]]] = {
    problem.id: frozenset(
        id_ for name in problem.unless for id_ in _ids(name) if problem.id not in {id_, *PROBLEMS[id_].unless}
    )
    for problem in PROBLEMS.values()
}
"""Causes that are omitted if one of these others was found, since they add nothing to it. No two omit each other."""
