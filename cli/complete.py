"""The program that kubectl runs to complete words after `kubectl tfjob`: it prints suggestions and a directive.

The protocol is that of cobra's `__complete` (kubectl's `SetupPluginCompletion`): one suggestion per line, with a tab before its
description; the last line is `:` and a number, the directive. Directive 4 disables file completion.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from tfjob_operator.cli.main import ALIASES, COMMANDS, app
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.options import GLOBAL_OPTIONS, target_in
from tfjob_operator.cli.printing import echo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfjob_operator.cli.session import Session

NO_FILES: Final = 4
FILES: Final = 0
_OF_V1: Final = {"resume", "scale", "suspend"}
"""Commands that do not support jobs of tensorflow.org."""
_VALUED: Final = frozenset(
    name for names, settings in GLOBAL_OPTIONS for name in names if name.startswith("-") and not settings.get("is_flag")
)
"""Global options that take a value."""


def complete(words: Sequence[str]) -> tuple[list[str], int]:
    """Return the suggestions for the last of `words`, which may be empty, and the directive."""
    *before, word = words or [""]
    verb = _command(before)
    if before and before[-1] in _VALUED:
        return [], NO_FILES
    if word.startswith("-"):
        return list(_options(verb, word)), NO_FILES
    if verb is None:
        return [f"{name}\t{text}" for name, text in COMMANDS.items() if name.startswith(word)], NO_FILES
    metavar = argument_of(verb)
    if "FILE" in metavar:
        return [], FILES
    if "JOB" in metavar:
        return [name for name in _jobs(before, older=verb not in _OF_V1) if name.startswith(word)], NO_FILES
    return [], NO_FILES


def _command(before: Sequence[str]) -> str | None:
    """Return the command on a line, None if there is none yet; global options may precede it."""
    values = {index + 1 for index, word in enumerate(before) if word in _VALUED}
    words = (word for index, word in enumerate(before) if index not in values and not word.startswith("-"))
    return next((ALIASES.get(word, word) for word in words), None)


def argument_of(verb: str) -> str:
    """Return the metavar of a command's first argument, such as JOB; "" for none."""
    command = app.get_command(click.Context(app), verb)
    params = command.params if command is not None else ()
    return next((param.metavar or "" for param in params if isinstance(param, click.Argument)), "")


def _options(verb: str | None, word: str) -> Iterator[str]:
    command = app if verb is None else app.get_command(click.Context(app), verb)
    for param in command.params if command is not None else ():
        if isinstance(param, click.Option):
            yield from (f"{name}\t{param.help or ''}" for name in param.opts if name.startswith(word))


def _jobs(before: Sequence[str], *, older: bool) -> list[str]:
    """Return the jobs of the namespace, if `older` also of tensorflow.org (with kind if ambiguous); none if unreadable."""
    from tfjob_operator.cli import jobs
    from tfjob_operator.cli.errors import CliError

    try:
        with target_in(before).session() as session:
            names = _names(session, facts.GROUP)
            first = _names(session, facts.TENSORFLOW_GROUP) if older else []
    except CliError:
        return []
    return [*names, *(f"{jobs.FIRST_NAME}/{name}" if name in names else name for name in first)]


def _names(session: Session, group: str) -> list[str]:
    """Return the names of the jobs of an API; none if it is not served, or without permission."""
    from tfjob_operator.cli import jobs
    from tfjob_operator.cli.errors import ApiServerError

    try:
        found = session.get(jobs.path(session.namespace, group=group), limit=500)
    except ApiServerError:
        return []
    return [each["metadata"]["name"] for each in found["items"]]


def main() -> None:
    """Print the suggestions for the arguments of the command line."""
    suggestions, directive = complete(sys.argv[1:])
    echo(*suggestions, f":{directive}")


if __name__ == "__main__":
    main()
