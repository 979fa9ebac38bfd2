"""`kubectl tfjob explain`."""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click
import msgspec

from tfjob_operator.cli.collecting import collect
from tfjob_operator.cli.diagnosis.diagnose import diagnose
from tfjob_operator.cli.diagnosis.render import render
from tfjob_operator.cli.options import target_options

if TYPE_CHECKING:
    from tfjob_operator.cli.options import Target

_WIDTH: Final = 100
"""Columns where there is no terminal."""


@click.command("explain")
@click.argument("name", metavar="NAME")
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print the causes for a program.")
@target_options
def command(target: Target, name: str, output: str | None) -> None:
    """Say why a job does not run, ends as it does, or waits: the likeliest cause first, what it was told by, what to do.

    It reads the job, its pods and their events, and as far as you may nodes, quotas, claims, queues and logs.
    What you may not read is named at the end. Nothing is changed.
    """
    with target.session() as session:
        diagnosis = diagnose(collect(session, name, datetime.now(UTC)))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(diagnosis)))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    for line in render(diagnosis, width):
        click.echo(line)
