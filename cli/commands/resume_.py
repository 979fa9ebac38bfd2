"""`kubectl tfjob resume`."""

from __future__ import annotations

import click

from tfjob_operator.cli.commands.suspend_ import set_suspended
from tfjob_operator.cli.options import target_options
from tfjob_operator.cli.target import Target


@click.command("resume")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@target_options
def command(target: Target, names: tuple[str, ...]) -> None:
    """Resume suspended jobs: the operator recreates the pods of replicas that have not succeeded."""
    set_suspended(target, names, to=False)
