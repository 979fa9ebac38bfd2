"""The values of a diagnosis: a kind of trouble, a finding of it, and a cause, which is made of findings of one kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from string import Formatter
from typing import Final, NamedTuple


class Severity(StrEnum):
    """How bad a trouble is: the job does not run without help, it may come to that, or it is good to know."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Change(NamedTuple):
    """A change of the job's manifest: `what` is in the imperative, such as "correct the image".

    A job that has not ended is edited, and the affected pods are recreated unless `recreate` is False. One that has ended
    is saved to a file and replaced.
    """

    what: str
    recreate: bool = True


class Running(NamedTuple):
    """A step that only helps a job that has not ended."""

    text: str


Step = str | Change | Running


@dataclass(frozen=True, slots=True)
class Trouble:
    """A kind of trouble: a row of the table in docs/design/diagnosis.md.

    `rank` orders causes of one severity, the smallest first: a trouble that hides others ranks before them. `title` and
    `to_do` name values of a finding in braces; {who} is the replica, or how many there are.
    """

    id: str
    rank: int
    severity: Severity
    title: str
    to_do: tuple[Step, ...]
    meaning: str

    def __post_init__(self) -> None:
        """Raise ValueError for an ID that is not made of lower-case words."""
        if not re.fullmatch(r"[a-z]+(-[a-z]+)*", self.id):
            raise ValueError(f"{self.id!r} is no ID")


def error(id_: str, rank: int, title: str, to_do: tuple[Step, ...], meaning: str) -> Trouble:
    """Return a trouble without whose end the job does not run."""
    return Trouble(id_, rank, Severity.ERROR, title, to_do, meaning)


def warning(id_: str, rank: int, title: str, to_do: tuple[Step, ...], meaning: str) -> Trouble:
    """Return a trouble that may end the job, or delay it."""
    return Trouble(id_, rank, Severity.WARNING, title, to_do, meaning)


def info(id_: str, rank: int, title: str, to_do: tuple[Step, ...], meaning: str) -> Trouble:
    """Return what is good to know, and no trouble yet."""
    return Trouble(id_, rank, Severity.INFO, title, to_do, meaning)


def defined(names: Mapping[str, object]) -> tuple[Trouble, ...]:
    """Return the troubles among the names of a module, in the order of their definition."""
    return tuple(each for each in names.values() if isinstance(each, Trouble))


@dataclass(frozen=True, slots=True)
class Finding:
    """One place where a trouble shows: `who` is a pod or the job, `proofs` are lines of evidence with their sources.

    `values` fill title and advice, which is followed by that of `also`; findings of one trouble with the same `key` become one
    cause.
    """

    trouble: Trouble
    who: str
    proofs: tuple[str, ...]
    values: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    also: tuple[Trouble, ...] = ()


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a job does not run, or will not, as it is printed. `whom` are the affected pods, or the job."""

    id: str
    severity: Severity
    title: str
    evidence: tuple[str, ...]
    to_do: tuple[str, ...]
    whom: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The causes, the root cause first, the state of the job in one line, and what could not be read (`unseen`)."""

    causes: tuple[Cause, ...]
    standing: str
    unseen: str = ""


_PLAIN: Final = re.compile(r"[\w.,:/@=+%-]+", re.ASCII)
"""What a shell takes as one word without quotes."""


def fill(template: str, values: Mapping[str, str], *, command: bool = False) -> str:
    """Return the template with its values. In a command, the name in capitals stands for a value that a shell might misread."""
    parts = []
    for text, name, _, _ in Formatter().parse(template):
        parts.append(text)
        if name is not None:
            value = values.get(name, "")
            parts.append(value if value and not (command and not _PLAIN.fullmatch(value)) else name.upper())
    return "".join(parts)
