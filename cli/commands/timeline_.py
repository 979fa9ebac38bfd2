"""`kubectl tfjob timeline`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tfjob_operator.cli.errors import ApiError
from tfjob_operator.cli.gathering import events_of, snapshot
from tfjob_operator.cli.options import target_options
from tfjob_operator.cli.terminal import terminal
from tfjob_operator.cli.timelines.build import timeline_of
from tfjob_operator.cli.timelines.render import ASCII, UNICODE, Frame, render

if TYPE_CHECKING:
    from tfjob_operator.cli.diagnosis.objects import Event
    from tfjob_operator.cli.options import Target

_FORBIDDEN = 403


@click.command("timeline")
@click.argument("name", metavar="NAME")
@click.option("--utc", is_flag=True, help="Write times in UTC, not in the time of this machine.")
@click.option("--no-color", is_flag=True, help="Use no colours; so does the variable NO_COLOR.")
@target_options
def command(target: Target, name: str, utc: bool, no_color: bool) -> None:  # noqa: FBT001 - flags
    """Draw what each replica of a job did when, and list what happened.

    Events tell of pods that are gone, for as long as the API server keeps events, which mostly is an hour.
    """
    events: list[Event] = []
    with target.session() as session:
        seen = snapshot(session, name)
        try:
            events = events_of(session, seen.job)
        except ApiError as error:
            if error.code != _FORBIDDEN:
                raise
            click.echo("you may not read events: pods that are gone are not shown", err=True)
    timeline = timeline_of(seen.job, seen.pods, events)
    screen = terminal(no_color=no_color)
    now = datetime.now(UTC)
    zone = UTC if utc else now.astimezone().tzinfo or UTC
    frame = Frame(now, zone, screen.width, UNICODE if screen.unicode else ASCII)
    for line in render(timeline, name, frame, screen.paint):
        click.echo(screen.shown(line))
