"""`kubectl tfjob logs`."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiError, CliError
from tfjob_operator.cli.logs.following import MOST_LOGS, Following
from tfjob_operator.cli.logs.lines import Line, Splitter, split
from tfjob_operator.cli.logs.showing import Shower
from tfjob_operator.cli.options import seconds, target_options
from tfjob_operator.cli.replicas import container_of, find, none_there, pods_path, replica_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfjob_operator.cli.options import Target
    from tfjob_operator.cli.replicas import Choice, Replica
    from tfjob_operator.cli.session import Session

_NOTHING_THERE = (400, 404)


@click.command("logs")
@click.argument("name", metavar="JOB")
@replica_options
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended, over restarts and new pods.")
@click.option("-p", "--previous", is_flag=True, help="What containers wrote before they were restarted in place.")
@click.option("-c", "--container", metavar="NAME", help="This container; else the one that trains.")
@click.option("--since", callback=seconds, metavar="TIME", help="Only lines of so long ago, such as 90s or 2h.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Only the last lines of each replica.")
@click.option("--timestamps", is_flag=True, help="Print when each line was written, as the kubelet says.")
@click.option("--no-prefix", is_flag=True, help="Print lines alone, without the replica before them.")
@click.option("--no-color", is_flag=True, help="No colours, as when NO_COLOR is set or the output is no terminal.")
@click.option(
    "--max-log-requests",
    "most",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    default=MOST_LOGS,
    show_default=True,
    help="How many replicas may be followed at once.",
)
@target_options
def command(
    *,
    target: Target,
    choice: Choice,
    name: str,
    follow: bool,
    previous: bool,
    container: str | None,
    since: float | None,
    tail: int | None,
    timestamps: bool,
    no_prefix: bool,
    no_color: bool,
    most: int,
) -> None:
    """Print what the replicas of a job have written: of all, or of some, while they run and as long as their pods are there.

    Each line begins with its replica, such as worker-0. With --follow what a replica writes after a restart, or in a new pod,
    comes in its place, each line once.
    """
    if follow and previous:
        raise click.UsageError("--previous is of the past: it cannot be followed")
    terminal = sys.stdout.isatty()
    colour = terminal and not no_color and not os.environ.get("NO_COLOR")
    shower = Shower(terminal=terminal, colour=colour, prefixes=not no_prefix, stamps=timestamps)
    first: dict[str, str | int] = {} if tail is None else {"tailLines": tail}
    if since is not None:
        first["sinceSeconds"] = max(1, round(since))
    with target.session() as session:
        job = jobs.get(session, name)
        choice.check(name, job)
        if follow:
            Following(session, job, choice, container, shower, most=most, clock=time.monotonic, pause=time.sleep).run(
                first
            )
            return
        replicas = find(session, job, choice).replicas
        if not replicas:
            raise none_there(name, job, choice)
        first |= ({"previous": "true"} if previous else {}) | ({"timestamps": "true"} if timestamps else {})
        shower.expect(each.name for each in replicas)
        read = [_print(session, each, container, shower, first) for each in replicas]
    if not any(read):
        raise click.exceptions.Exit(1)


def _print(
    session: Session, replica: Replica, container: str | None, shower: Shower, query: Mapping[str, str | int]
) -> bool:
    """Print the log of one replica as it is now; return False, after a line on standard error, if there is none."""
    named = container_of(replica.pod, container)
    if named is None:
        CliError(f"{replica.name} has no container {container}: see kubectl describe pod {replica.pod_name}").show()
        return False
    path = pods_path(session.namespace, f"{replica.pod_name}/log")
    to_line = split if "timestamps" in query else _plain
    lines = Splitter()
    try:
        for part in session.stream(path, container=named, **query):
            click.echo(shower.shown(replica.name, map(to_line, lines.feed(part))), nl=False)
    except ApiError as error:
        if error.code not in _NOTHING_THERE:
            raise
        CliError(f"{replica.name}: {error.message}").show()
        return False
    if rest := lines.rest():
        click.echo(shower.shown(replica.name, [to_line(rest)]), nl=False)
    return True


def _plain(raw: bytes) -> Line:
    return Line(b"", raw)
