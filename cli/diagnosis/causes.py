"""The types of a diagnosis: problems, findings, and causes, which group the findings of one problem."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from string import Formatter
from typing import Final, NamedTuple, TypedDict, Unpack


class Severity(StrEnum):
    """The severity: an error that keeps the job from running, a warning that may lead to one, or information."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class ManifestChange(NamedTuple):
    """A change of the job's manifest: `what` is in the imperative, such as "correct the image".

    An unfinished job is edited, and the affected pods are recreated unless `recreate` is False. A finished job is saved
    to a file and replaced.
    """

    what: str
    recreate: bool = True


class WhileRunning(NamedTuple):
    """A step that only helps an unfinished job."""

    text: str


Step = str | ManifestChange | WhileRunning


class Group(StrEnum):
    """The subjects of problems, in the order of the stages of a job: see docs/design/plugin.md."""

    OPERATOR = "The operator"
    SPEC = "The specification"
    SUSPENSION = "Suspension and Kueue"
    ADMISSION = "Pods that cannot be created"
    BATCH_JOBS = "Jobs of replicas (alpha dialect)"
    GANG = "Gangs"
    STORAGE = "Storage"
    SCHEDULING = "Scheduling"
    IMAGES = "Images"
    STARTING = "Starting"
    CRASHING = "Failing"
    LOGS = "Last words"
    UNNOTICED = "Failures of which a job takes no notice"
    LIFECYCLE = "On the way"
    ENDING = "Ending"
    ATTEMPTS = "Failure policies"
    FALLBACK = "Quoted"
    TENSORBOARD = "TensorBoard"


KNOWN: Final = "known"
"""In `Problem.unless`: all errors but the quoted and the vague ones."""


QUOTED: Final = (Group.FALLBACK, "waits-for-terminating-pod", "pod-warning", "pods-recreated")
"""All problems of this group, whatever their severity."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of problem: a row of the table in docs/design/plugin.md.

    `title` and `to_do` have placeholders in braces for values of a finding; {who} is the replica, or the number of replicas.

    Causes of the same severity are in the order of the groups, and of the definitions in a group: a problem that hides others
    comes first. `rank` is a place elsewhere, on the scale of `table.RANKS`. A problem is omitted if one of `unless` was found:
    IDs, groups, of which the errors count, or KNOWN: any error that is not `vague`.
    """

    id: str
    severity: Severity
    title: str
    meaning: str
    to_do: tuple[Step, ...]
    rank: int | None = None
    unless: tuple[str, ...] = ()
    vague: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for an ID that does not consist of lower-case words."""
        if not re.fullmatch(r"[a-z]+(-[a-z]+)*", self.id):
            raise ValueError(f"{self.id!r} is not a valid ID")


class _Options(TypedDict, total=False):
    rank: int
    unless: tuple[str, ...]
    vague: bool


def error(id_: str, title: str, meaning: str, *to_do: Step, **options: Unpack[_Options]) -> Problem:
    """Return a problem that keeps the job from running."""
    return Problem(id_, Severity.ERROR, title, meaning, to_do, **options)


def warning(id_: str, title: str, meaning: str, *to_do: Step, **options: Unpack[_Options]) -> Problem:
    """Return a problem that may fail or delay the job."""
    return Problem(id_, Severity.WARNING, title, meaning, to_do, **options)


def info(id_: str, title: str, meaning: str, *to_do: Step, **options: Unpack[_Options]) -> Problem:
    """Return information that is not a problem yet."""
    return Problem(id_, Severity.INFO, title, meaning, to_do, **options)


@dataclass(frozen=True, slots=True)
class Finding:
    """An instance of a problem: `affected` is a pod or the job, `proofs` are lines of evidence with their sources.

    `values` fill the title and the advice. The advice of the problems in `also` is appended. Findings of one problem with the
    same `key` form one cause.
    """

    problem: Problem
    affected: str
    proofs: tuple[str, ...]
    values: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    also: tuple[Problem, ...] = ()

    def seen_in(self, *proofs: str) -> Finding:
        """Return the finding with more lines of evidence, which come first."""
        return replace(self, proofs=(*proofs, *self.proofs))


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause as it is printed. `affected` are the affected pods, or the job."""

    id: str
    severity: Severity
    title: str
    evidence: tuple[str, ...]
    to_do: tuple[str, ...]
    affected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The causes, root cause first, a line with the state of the job, and what could not be read (`unseen`).

    `accelerators` are the hours for which ended pods held extended resources, a line each.
    """

    causes: tuple[Cause, ...]
    state_line: str
    unseen: str = ""
    accelerators: tuple[str, ...] = ()


_PLAIN: Final = re.compile(r"[\w.,:/@=+%-]+", re.ASCII)
"""A single shell word that needs no quotes."""


def fill(template: str, values: Mapping[str, str], *, command: bool = False) -> str:
    """Fill in a template. In a command, a value that a shell might misread is replaced by its placeholder in capitals."""
    parts = []
    for text, name, _, _ in Formatter().parse(template):
        parts.append(text)
        if name is not None:
            value = values.get(name, "")
            parts.append(value if value and not (command and not _PLAIN.fullmatch(value)) else name.upper())
    return "".join(parts)
