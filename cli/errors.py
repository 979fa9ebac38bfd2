"""The errors of the plugin: each is one line on standard error, and an exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import IO, Any, Final, TypeVar

import click

from tfjob_operator.api.text import clean

T = TypeVar("T")
_NOT_FOUND: Final = 404
_DENIED: Final = (401, 403)


class CliError(click.ClickException):
    """An error that ends a command. `message` is one line for people; it is cleaned of control characters when it is shown."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line."""
        click.echo(f"error: {clean(self.message)}", file=file, err=file is None)


def print_each(items: Iterable[T], act: Callable[[T], str]) -> None:
    """Print what `act` returns for each item, or the CliError that it raises. Raises Exit after the last if one failed."""
    failures = 0
    for item in items:
        try:
            click.echo(act(item))
        except CliError as error:
            error.show()
            failures += 1
    if failures:
        raise click.exceptions.Exit(1)


class ApiError(CliError):
    """The API server refused. `code` and `reason` are those of its Status, 0 and "" where there was none."""

    def __init__(self, message: str, *, code: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason

    @property
    def is_not_found(self) -> bool:
        """Whether the object, or the kind of object, is not there."""
        return self.code == _NOT_FOUND

    @property
    def is_denied(self) -> bool:
        """Whether the user is not known, or may not do it: to try again is of no use."""
        return self.code in _DENIED

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line as kubectl does, which scripts look for."""
        named = f" ({self.reason})" if self.reason else ""
        click.echo(f"Error from server{named}: {clean(self.message)}", file=file, err=file is None)
