"""`kubectl tfjob completion`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shlex import quote
from typing import Final

import click

from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.printing import echo

PROGRAM: Final = "kubectl_complete-tfjob"
"""The program that kubectl 1.26 and newer run to complete the plugin `tfjob`; it must be in PATH."""


@click.command("completion")
@click.option("--install", is_flag=True, help=f"Write {PROGRAM} next to this plugin.")
@click.option("--folder", metavar="FOLDER", help="Write it to this folder of the PATH instead.")
def command(*, install: bool, folder: str | None) -> None:
    """Set up completion of commands, options and job names after `kubectl tfjob`, in bash, zsh and fish.

    kubectl 1.26 and newer complete a plugin by running the program kubectl_complete-tfjob in the PATH. Plugin managers install
    only the plugin's own program, so `--install` writes the completion program. The shell also needs kubectl's own completion:
    see `kubectl completion --help`.
    """
    if not install:
        echo(*_script().split("\n"), nl=False)
        return
    place = Path(folder) if folder else Path(sys.argv[0]).absolute().parent  # the directory of the link, if it is one
    target = place / PROGRAM
    if target.exists() and target.resolve() == _beside():
        echo(f"{target} already exists")
        return
    try:
        target.write_text(_script())
        target.chmod(0o755)
    except OSError as error:
        raise CliError(f"cannot write {target}: {error.strerror}; choose a folder of the PATH with --folder") from error
    echo(f"{target} written")
    if str(place) not in os.environ.get("PATH", "").split(os.pathsep):
        echo(f"warning: {place} is not in the PATH, so kubectl will not find it", err=True)


def _beside() -> Path:
    """Return the path of the completion program in this plugin's directory; it may not exist."""
    return Path(sys.argv[0]).resolve().with_name(PROGRAM)


def _script() -> str:
    came_with_it = _beside().is_file()
    line = quote(str(_beside())) if came_with_it else f"{quote(sys.executable)} -m tfjob_operator.cli.complete"
    return f'#!/bin/sh\nexec {line} "$@"\n'
