"""The errors of the plugin: each has a one-line message on standard error, and an exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, TypeVar

import click

from tfjob_operator.api.text import clean

T = TypeVar("T")
_NOT_FOUND: Final = 404
_DENIED: Final = (401, 403)
UNKNOWN: Final = 4
"""The exit code of the commands that wait for a job if its state cannot be read: 1 means that the job has failed."""


class CliError(click.ClickException):
    """An error that ends a command. `message` is a single line for users; control characters are removed when it is printed.

    `is_denied` is True if the user is unauthenticated or not authorized, so that retrying is useless.
    """

    is_denied = False

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message."""
        click.echo(f"error: {clean(self.message)}", file=file, err=file is None)


@contextmanager
def unknown_on_error() -> Iterator[None]:
    """Print a CliError of the block, and raise Exit with the code UNKNOWN. Also a decorator."""
    try:
        yield
    except CliError as error:
        error.show()
        raise click.exceptions.Exit(UNKNOWN) from error


def warn(text: str) -> None:
    """Print a warning."""
    click.echo(f"warning: {clean(text)}", err=True)


def print_each(items: Iterable[T], act: Callable[[T], str]) -> None:
    """Print the result of `act` for each item, or its CliError. Raises Exit after the last if any failed."""
    failures = 0
    for item in items:
        try:
            click.echo(act(item))
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

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message in kubectl's format, which scripts match."""
        named = f" ({self.reason})" if self.reason else ""
        click.echo(f"Error from server{named}: {clean(self.message)}", file=file, err=file is None)
