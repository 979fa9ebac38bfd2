"""`kubectl tfjob explain`."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from tfjob_operator.cli.options import print_value, seconds, target_options

if TYPE_CHECKING:
    from tfjob_operator.cli.diagnosis.causes import Diagnosis
    from tfjob_operator.cli.target import Target

_WIDTH: Final = 100
"""Columns where there is no terminal."""


@click.command("explain")
@click.argument("name", metavar="NAME")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Print it for a program.")
@click.option(
    "--silent-after",
    default="10m",
    metavar="DURATION",
    show_default=True,
    callback=seconds,
    help="Report running replicas without a log line for so long; 0 disables it.",
)
@target_options
def command(target: Target, name: str, output: str | None, silent_after: float) -> None:
    """Explain why a job is not running, or how it ended: causes with evidence and advice, the likeliest first.

    Reads the job, its pods and events, and, as far as you have permission, nodes, quotas, claims, queues and logs.
    What could not be read is named at the end. Nothing is changed.
    """
    from tfjob_operator.cli.collecting import collect
    from tfjob_operator.cli.diagnosis.diagnose import diagnose
    from tfjob_operator.cli.diagnosis.render import render

    with target.session() as session:
        diagnosis = _aimed(diagnose(collect(session, name, datetime.now(UTC), silent_after)), target)
    if output is not None:
        print_value(diagnosis, output)
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    for line in render(diagnosis, width):
        click.echo(line)


def _aimed(diagnosis: Diagnosis, target: Target) -> Diagnosis:
    """Return the diagnosis with commands for the cluster that was asked, which may not be that of the current context."""
    from tfjob_operator.cli.diagnosis.advice import aimed

    given = (("kubeconfig", target.kubeconfig), ("context", target.context))
    flags = [shlex.quote(f"--{name}={value}") for name, value in given if value]
    return replace(
        diagnosis,
        causes=tuple(
            replace(each, to_do=tuple(aimed(line, flags) for line in each.to_do)) for each in diagnosis.causes
        ),
    )
