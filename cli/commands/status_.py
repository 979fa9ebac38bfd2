"""`kubectl tfjob status`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import msgspec

from tfjob_operator.cli.gathering import snapshot
from tfjob_operator.cli.options import target_options
from tfjob_operator.cli.status.judge import standing_of
from tfjob_operator.cli.status.render import ASCII, UNICODE, render
from tfjob_operator.cli.terminal import terminal

if TYPE_CHECKING:
    from tfjob_operator.cli.options import Target


@click.command("status")
@click.argument("name", metavar="NAME")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Print it for a program.")
@click.option("--no-color", is_flag=True, help="Use no colours; so does the variable NO_COLOR.")
@target_options
def command(target: Target, name: str, output: str | None, no_color: bool) -> None:  # noqa: FBT001 - a flag
    """Show how a job stands, and its replicas: state, node, age, restarts, exit code, last words, and which are missing."""
    with target.session() as session:
        seen = snapshot(session, name)
    standing = standing_of(seen.job, seen.body, seen.pods)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(standing)))
        return
    if output == "yaml":
        from tfjob_operator.cli.yaml_text import yaml_text

        click.echo(yaml_text(msgspec.to_builtins(standing), sort_keys=False), nl=False)
        return
    screen = terminal(no_color=no_color)
    signs = UNICODE if screen.unicode else ASCII
    for line in render(standing, datetime.now(UTC), screen.paint, screen.width, signs):
        click.echo(screen.shown(line))
