"""`kubectl tfjob timeline`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tfjob_operator.cli.errors import ApiServerError
from tfjob_operator.cli.options import camel_cased, print_value, target_options
from tfjob_operator.cli.printing import echo

if TYPE_CHECKING:
    from tfjob_operator.cli.model.objects import EventDetails
    from tfjob_operator.cli.target import Target

_FORBIDDEN = 403


@click.command("timeline")
@click.argument("name", metavar="JOB")
@click.option("--utc", is_flag=True, help="Print times in UTC instead of local time.")
@click.option("--no-color", is_flag=True, help="Use no colors, as with the variable NO_COLOR.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Print it for a program.")
@target_options
def command(*, target: Target, name: str, utc: bool, no_color: bool, output: str | None) -> None:
    """Show the history of a job and its replicas: a bar for each replica, then conditions and events.

    Deleted pods are known only from events, which API servers usually keep for an hour. Repeated events are shown once.
    """
    from tfjob_operator.cli.gathering import events_of, pods_from, snapshot
    from tfjob_operator.cli.terminal import terminal
    from tfjob_operator.cli.timelines.build import timeline_of
    from tfjob_operator.cli.timelines.render import ASCII, UNICODE, Frame, render

    events: list[EventDetails] = []
    with target.session() as session:
        seen = snapshot(session, name)
        try:
            events = events_of(session, seen.job)
        except ApiServerError as error:
            if error.code != _FORBIDDEN:
                raise
            echo("no permission to list events: deleted pods are not shown", err=True)
    timeline = timeline_of(seen.job, pods_from(seen.pods), events)
    if output is not None:
        print_value(camel_cased(timeline), output)
        return
    screen = terminal(no_color=no_color)
    now = datetime.now(UTC)
    zone = UTC if utc else now.astimezone().tzinfo or UTC
    frame = Frame(now, zone, screen.width, UNICODE if screen.unicode else ASCII)
    for line in render(timeline, name, frame, screen.paint):
        echo(screen.shown(line))
