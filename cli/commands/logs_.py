"""`kubectl tfjob logs`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

import click

from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.logs.lines import LOG_GONE, LineFormatter, LogLine, Splitter, split
from tfjob_operator.cli.options import seconds, target_options
from tfjob_operator.cli.printing import write
from tfjob_operator.cli.selection import (
    Choice,
    ReplicaPod,
    container_of,
    find,
    no_pods_error,
    pods_path,
    replica_options,
)
from tfjob_operator.cli.session import Session
from tfjob_operator.cli.target import Target

_NOTHING_THERE = (400, 404)


@click.command("logs")
@click.argument("name", metavar="JOB")
@replica_options
@click.option("-f", "--follow", is_flag=True, help="Follow the logs until the job finishes.")
@click.option("-p", "--previous", is_flag=True, help="Print the logs of the previous containers.")
@click.option("-c", "--container", metavar="NAME", help="The container; by default the one named tensorflow.")
@click.option("--since", callback=seconds, metavar="TIME", help="Only lines newer than this, such as 90s or 2h.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Only this many last lines of each replica.")
@click.option("--timestamps", is_flag=True, help="Print the time of each line.")
@click.option("--no-prefix", is_flag=True, help="Print lines without the name of the replica.")
@click.option("--no-color", is_flag=True, help="Use no colors, as with the variable NO_COLOR.")
@click.option(
    "--max-log-requests",
    "most",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    default=50,
    show_default=True,
    help="The maximum number of replicas to follow.",
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
    """Print the logs of the replicas of a job, all or some, as long as their pods exist.

    Each line begins with its replica, such as worker-0. With --follow, logs continue after restarts and in new pods, each
    line once.
    """
    if follow and previous:
        raise click.UsageError("--previous cannot be combined with --follow")
    terminal = sys.stdout.isatty()
    colour = terminal and not no_color and not os.environ.get("NO_COLOR")
    formatter = LineFormatter(terminal=terminal, colour=colour, prefixes=not no_prefix, stamps=timestamps)
    first: dict[str, str | int] = {} if tail is None else {"tailLines": tail}
    if since is not None:
        first["sinceSeconds"] = max(1, round(since))
    with target.session() as session:
        job = jobs.get(session, name)
        choice = choice.of(name, job)
        if follow:
            from tfjob_operator.cli.logs.following import Following

            Following(
                session, job, choice, container, formatter, most=most, clock=time.monotonic, pause=time.sleep
            ).run(first)
            return
        replicas = find(session, job, choice).replicas
        if not replicas:
            raise no_pods_error(target, name, job, choice)
        first |= ({"previous": "true"} if previous else {}) | ({"timestamps": "true"} if timestamps else {})
        formatter.expect(replica.name for replica in replicas)
        read = [_print(session, replica, container, formatter, first) for replica in replicas]
    if not any(read):
        raise click.exceptions.Exit(1)


def _print(
    session: Session,
    replica: ReplicaPod,
    container: str | None,
    formatter: LineFormatter,
    query: Mapping[str, str | int],
) -> bool:
    """Print the current log of a replica; if there is none, print the reason on standard error and return False."""
    named = container_of(replica.pod, container)
    if named is None:
        CliError(f"container {container} not found in pod {replica.pod_name}").show()
        return False
    path = pods_path(session.namespace, f"{replica.pod_name}/log")
    to_line = split if "timestamps" in query else _plain
    lines = Splitter()
    try:
        for part in session.stream(path, container=named, **query):
            write(formatter.shown(replica.name, map(to_line, lines.feed(part))))
    except ApiServerError as error:
        if error.code not in _NOTHING_THERE:
            raise
        CliError(f"{replica.name}: {error.message}").show()
        return False
    rest = lines.rest()
    if rest.startswith(LOG_GONE):
        CliError(f"{replica.name}: the container of {replica.pod_name} was removed, and its log with it").show()
        return False
    if rest:
        write(formatter.shown(replica.name, [to_line(rest)]))
    return True


def _plain(raw: bytes) -> LogLine:
    return LogLine(b"", raw)
