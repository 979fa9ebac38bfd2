"""The program that kubectl runs when somebody presses Tab after `kubectl tfjob`: it prints suggestions and a directive.

The protocol is that of cobra's `__complete` (kubectl's `SetupPluginCompletion`): one suggestion a line, with a tab before its
description; then `:` and the directive, a number: 4 tells the shell to offer no names of files.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import click

from tfjob_operator.cli.app import VERBS, app

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfjob_operator.cli.session import Session

NO_FILES: Final = 4
FILES: Final = 0
_OF_JOBS: Final = {
    "exec",
    "explain",
    "logs",
    "restart",
    "resume",
    "scale",
    "status",
    "suspend",
    "tensorboard",
    "timeline",
    "top",
    "wait",
    "watch",
}
_OF_V1: Final = {"resume", "scale", "suspend"}
"""Of those the ones that are not for jobs of tensorflow.org."""
_OF_FILES: Final = {"validate", "convert"}
_TARGET: Final = {"-n": "namespace", "--namespace": "namespace", "--context": "context", "--kubeconfig": "kubeconfig"}


def complete(words: Sequence[str]) -> tuple[list[str], int]:
    """Return the suggestions for the last of `words`, which may be empty, and the directive."""
    *before, word = words or [""]
    if not before:
        return [f"{name}\t{text}" for name, text in VERBS.items() if name.startswith(word)], NO_FILES
    verb = before[0]
    if word.startswith("-"):
        return list(_options(verb, word)), NO_FILES
    if verb in _OF_FILES:
        return [], FILES
    if verb in _OF_JOBS and before[-1] not in _TARGET:
        return [name for name in _jobs(before, older=verb not in _OF_V1) if name.startswith(word)], NO_FILES
    return [], NO_FILES


def _options(verb: str, word: str) -> Iterator[str]:
    command = app.get_command(click.Context(app), verb)
    for each in command.params if command is not None else ():
        if isinstance(each, click.Option):
            yield from (f"{name}\t{each.help or ''}" for name in each.opts if name.startswith(word))


def _jobs(before: Sequence[str], *, older: bool) -> list[str]:
    """Return the names of the jobs in the namespace that the line selects so far; none if they cannot be read.

    With `older` also those of tensorflow.org, with their kind where a job of kubeflow.org has the same name.
    """
    from tfjob_operator.cli import jobs
    from tfjob_operator.cli.errors import CliError
    from tfjob_operator.cli.options import Target

    given = {_TARGET[each]: value for each, value in pairwise(before) if each in _TARGET}
    try:
        with Target(**given).session() as session:
            names = _names(session, jobs.GROUP)
            first = _names(session, jobs.FIRST_GROUP) if older else []
    except CliError:
        return []
    return [*names, *(f"{jobs.FIRST_NAME}/{name}" if name in names else name for name in first)]


def _names(session: Session, group: str) -> list[str]:
    """Return the names of the jobs of an API; none where it is not served, or may not be read."""
    from tfjob_operator.cli import jobs
    from tfjob_operator.cli.errors import ApiError

    try:
        found = session.get(jobs.path(session.namespace, group=group), limit=500)
    except ApiError:
        return []
    return [each["metadata"]["name"] for each in found["items"]]


def main() -> None:
    """Print the suggestions for the arguments of the command line."""
    suggestions, directive = complete(sys.argv[1:])
    print(*suggestions, f":{directive}", sep="\n")  # noqa: T201 - this is the protocol


if __name__ == "__main__":
    main()
