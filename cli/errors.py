"""The errors of the plugin: each has a one-line message on standard error, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import IO, Any, Final, TypeVar

import click

from tfjob_operator.api.text import clean
from tfjob_operator.cli.printing import echo

T = TypeVar("T")
_NOT_FOUND: Final = 404
_DENIED: Final = (401, 403)
UNKNOWN: Final = 4
"""The exit code of the commands that wait for a job if its state cannot be read: 1 means that the job has failed."""


class CliError(click.ClickException):
    """An error that ends a command. `message` is for users, who see it as a single line.

    `is_denied` is True if the user is unauthenticated or not authorized, so that retrying is useless.
    """

    is_denied = False

    @property
    def kind(self) -> str:
        """What precedes the message, such as `error`."""
        return "error"

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message."""
        echo(" ".join(clean(f"{self.kind}: {self.message}").split()), file=file, err=file is None)


def show(error: click.ClickException) -> None:
    """Print an error of this program or of click, which quotes the command line.

    click also finds options similar that have little more than the dashes in common.
    """
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        from difflib import get_close_matches

        name = error.option_name.lstrip("-")
        near = [
            possibility for possibility in error.possibilities if get_close_matches(name, [possibility.lstrip("-")])
        ]
        error = click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
    text = StringIO()
    error.show(text)
    echo(*text.getvalue().removesuffix("\n").split("\n"), err=True)


@contextmanager
def unknown_on_error() -> Iterator[None]:
    """Print a CliError of the block, or the traceback of a bug, and raise Exit with the code UNKNOWN. Also a decorator."""
    try:
        yield
    except CliError as error:
        error.show()
        raise click.exceptions.Exit(UNKNOWN) from error
    except (click.exceptions.Exit, click.Abort, click.ClickException):
        raise
    except Exception as bug:
        if not isinstance(bug, BrokenPipeError):  # nobody reads the output
            sys.excepthook(type(bug), bug, bug.__traceback__)
        raise click.exceptions.Exit(UNKNOWN) from bug


def warn(text: str) -> None:
    """Print a warning."""
    echo(f"warning: {text}", err=True)


def print_each(items: Iterable[T], act: Callable[[T], str]) -> None:
    """Print the result of `act` for each item, or its CliError. Raises Exit after the last if any failed."""
    failures = 0
    for item in items:
        try:
            echo(act(item))
        except CliError as error:
            error.show()
            failures += 1
    if failures:
        raise click.exceptions.Exit(1)


class ApiServerError(CliError):
    """An error response of the API server. `code` and `reason` are from its Status; they are 0 and "" if it has none."""

    def __init__(self, message: str, *, code: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.is_denied = code in _DENIED

    @property
    def is_not_found(self) -> bool:
        """True if the object or its kind does not exist."""
        return self.code == _NOT_FOUND

    @property
    def kind(self) -> str:
        """The beginning of kubectl's errors, which scripts match."""
        return f"Error from server ({self.reason})" if self.reason else "Error from server"
