"""Printing: `echo` and `write` are the only functions that print, so that no text of others controls the terminal.

A cluster, a file or another program may send anything, such as escape sequences that hide text or answer for the user. The
plugin's own control sequences are marked, and all others are escaped. Only child processes print by themselves: `kubectl exec`,
whose terminal belongs to the program in the container, and credential plugins of the kubeconfig.
"""

from __future__ import annotations

import os
import re
import sys
from typing import IO, Any, Final

import click

from tfjob_operator.api.text import one_line

_OWN: Final = f"\x1b{os.urandom(8).hex()}"
"""Begins a control sequence of the plugin until it is printed. It is random, so no text of others can contain it."""
_OWN_SEQUENCE: Final = re.compile(rf"{_OWN}(\[[\d;:]*[A-Za-z])")


def control(code: str) -> str:
    """Return a control sequence that `echo` sends to the terminal, such as `31m`."""
    return f"{_OWN}[{code}"


def printable(line: str) -> str:
    """Return a line with the control characters of others escaped, except tabs."""
    if line.isprintable():
        return line
    parts = _OWN_SEQUENCE.split(line)  # text and sequences alternate
    return "".join(
        f"\x1b{part}" if place % 2 else "\t".join(map(one_line, part.split("\t"))) for place, part in enumerate(parts)
    )


def is_printable(text: str) -> bool:
    """Return True if `echo` prints each line of a text unchanged."""
    return all(printable(line) == line for line in text.split("\n"))


def echo(*lines: str, err: bool = False, nl: bool = True, file: IO[str] | None = None) -> None:
    """Print lines, to standard error with `err`: all text goes through here, wherever it comes from."""
    click.echo("\n".join(map(printable, lines)), file, nl=nl, err=err, color=True)


def write(data: bytes) -> None:
    """Print log lines: to a file or a program unchanged, to a terminal like `echo`."""
    if not sys.stdout.isatty():
        click.echo(data, nl=False)
    elif data:
        echo(*data.decode(errors="replace").removesuffix("\n").split("\n"))


def run(command: list[str]) -> int:
    """Run a program and return its exit code. Its output is unchanged for a file or a program, on a terminal as from `echo`."""
    from codecs import getincrementaldecoder
    from subprocess import PIPE, STDOUT, Popen

    out, err = sys.stdout.isatty(), sys.stderr.isatty()
    if not (out or err):
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted; a signal then ends the program
    decoder = getincrementaldecoder("utf-8")("replace")
    errors = None if not err else STDOUT if out else PIPE
    with Popen(command, stdout=PIPE if out else None, stderr=errors) as process:  # noqa: S603 - likewise
        pipe: Any = process.stdout or process.stderr
        while chunk := pipe.read1():  # also without a newline: it may ask something
            echo(*decoder.decode(chunk).split("\n"), err=not out, nl=False)
    return process.returncode


def confirm(question: str) -> bool:
    """Ask the user a question; the default is no."""
    return click.confirm(printable(question))
