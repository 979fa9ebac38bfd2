"""`kubectl tfjob suspend`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tfjob_operator.cli.options import target_options
from tfjob_operator.cli.suspension import set_suspended

if TYPE_CHECKING:
    from tfjob_operator.cli.target import Target


@click.command("suspend")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@target_options
def command(target: Target, names: tuple[str, ...]) -> None:
    """Suspend jobs: delete their pods. `resume` recreates those that have not succeeded."""
    set_suspended(target, names, to=True)
