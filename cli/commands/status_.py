"""`kubectl tfjob status`."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from tfjob_operator.cli.options import print_value, target_options
from tfjob_operator.cli.target import Target


@click.command("status")
@click.argument("name", metavar="NAME")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Print it for a program.")
@click.option("--no-color", is_flag=True, help="Use no colors, as with the variable NO_COLOR.")
@target_options
def command(target: Target, name: str, output: str | None, no_color: bool) -> None:  # noqa: FBT001 - a flag
    """Show the state of a job and of each replica: node, age, restarts, exit code, last message, and which pods are missing."""
    from tfjob_operator.cli.gathering import snapshot
    from tfjob_operator.cli.status import ASCII, UNICODE, render, standing_of
    from tfjob_operator.cli.terminal import terminal

    with target.session() as session:
        seen = snapshot(session, name)
    standing = standing_of(seen.job, seen.body, seen.pods)
    if output is not None:
        print_value(standing, output)
        return
    screen = terminal(no_color=no_color)
    signs = UNICODE if screen.unicode else ASCII
    for line in render(standing, datetime.now(UTC), screen.paint, screen.width, signs):
        click.echo(screen.shown(line))
