"""`kubectl tfjob status`, `watch` and `wait`."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import CliError, unknown_on_error, warn
from tfjob_operator.cli.options import print_value, seconds, target_options
from tfjob_operator.cli.printing import echo

if TYPE_CHECKING:
    from tfjob_operator.cli.session import Session
    from tfjob_operator.cli.target import Target
    from tfjob_operator.cli.watches import Gone

GONE: Final = 3
TIMED_OUT: Final = 124
"""The exit code of GNU `timeout`."""
REDRAW_S: Final = 1.0
"""How often the job is redrawn without changes, since ages grow."""
_MIN_REDRAW_S: Final = 0.1
"""The minimum time between redraws: while a job of a thousand pods starts, it may change a thousand times per second."""
_SETTLE_S: Final = 1.0
"""How long pods may be gone before that is shown: a job is often deleted with them, of which another watch tells."""


@click.command("watch")
@click.argument("name", metavar="JOB")
@click.option("--no-color", is_flag=True, help="Use no colors, as with the variable NO_COLOR.")
@target_options
@unknown_on_error()
def command(target: Target, name: str, no_color: bool) -> None:  # noqa: FBT001 - a flag
    """Show the state of a job live until it finishes. Exit codes as for `wait`: 0 succeeded, 1 failed, 3 deleted, 4 unknown.

    A progress bar is shown if the log of the chief, the master or worker 0 reports steps. Without a terminal, each change is
    printed on a line.
    """
    with target.session() as session:
        watch(session, name, no_color=no_color)


def watch(session: Session, name: str, *, no_color: bool = False, uid: str | None = None) -> None:
    """Watch a job until it finishes, then raise Exit with the exit code of its outcome. Raises CliError.

    `uid` is given if the job is known to exist.
    """
    from tfjob_operator.cli.selection import Choice, find
    from tfjob_operator.cli.terminal import terminal
    from tfjob_operator.cli.watches import end_of
    from tfjob_operator.cli.watching import LiveJob, Printer, Screen

    look = partial(terminal, no_color=no_color)
    shown = Screen(look) if look().is_terminal else Printer()
    full = f"{jobs.FULL_NAME}/{name}"
    before = 0
    with LiveJob(session, name, time.monotonic, uid) as live:
        while True:
            seen = live.wait(REDRAW_S)
            if len(seen.replicas or ()) < before:
                time.sleep(_SETTLE_S)
                seen = live.wait(0)
            before = len(seen.replicas or ())
            if seen.gone is not None:
                raise _exit(full, seen.gone)
            full = jobs.full_name(seen.job) if seen.job is not None else full
            end = end_of(seen.job) if seen.job is not None else None
            if end is not None and seen.job is not None:
                with suppress(CliError):  # the pods were not read yet, or before the job ended
                    seen = seen._replace(replicas=find(session, seen.job, Choice()).replicas)
            shown.show(seen, datetime.now(UTC), last=end is not None)
            if end is not None:
                echo(f"{full} {end.condition}: {end.message}")
                raise click.exceptions.Exit(end.code)
            time.sleep(_MIN_REDRAW_S)


def _exit(full: str, gone: Gone) -> click.exceptions.Exit:
    """Print that a job was deleted, and return its exit code: that of its outcome if it had finished."""
    if gone.end is not None:
        echo(f"{full} {gone.end.condition}: {gone.end.message}")
    echo(f"{full} was deleted", err=True)
    return click.exceptions.Exit(GONE if gone.end is None else gone.end.code)


@click.command("wait")
@click.argument("name", metavar="JOB")
@click.option("--timeout", callback=seconds, metavar="TIME", help="The maximum time to wait, such as 2h.")
@target_options
@unknown_on_error()
def wait(target: Target, name: str, timeout: float | None) -> None:
    """Wait until a job finishes and print its state. Exit codes: 0 succeeded, 1 failed, 3 deleted, 4 unknown, 124 timed out.

    The state is unknown if there is no such job or no permission to read it, or if the API server cannot be reached. Once the
    job was read, lost connections and errors of the server are retried until --timeout.
    """
    from tfjob_operator.cli.watches import Gone, end_of, versions

    until = None if timeout is None else time.monotonic() + timeout
    full = f"{jobs.FULL_NAME}/{name}"
    with target.session() as session:
        for job in versions(session, name, clock=time.monotonic, pause=time.sleep, warn=warn, until=until):
            if isinstance(job, Gone):
                raise _exit(full, job)
            full, end = jobs.full_name(job), end_of(job)
            if end is not None:
                echo(f"{full} {end.condition}: {end.message}")
                raise click.exceptions.Exit(end.code)
    echo(f"timed out waiting for {full}", err=True)
    raise click.exceptions.Exit(TIMED_OUT)


@click.command("status")
@click.argument("name", metavar="JOB")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Print it for a program.")
@click.option("--no-color", is_flag=True, help="Use no colors, as with the variable NO_COLOR.")
@target_options
def status(target: Target, name: str, output: str | None, no_color: bool) -> None:  # noqa: FBT001 - a flag
    """Show the state of a job and of each replica: node, age, restarts, exit code, last message, and which pods are missing."""
    from tfjob_operator.cli.gathering import snapshot, waits_of
    from tfjob_operator.cli.status import ASCII, UNICODE, job_summary_of, render
    from tfjob_operator.cli.terminal import terminal

    with target.session() as session:
        seen = snapshot(session, name)
        waits = waits_of(session, seen.body, seen.pods)
    now = datetime.now(UTC)
    summary = job_summary_of(seen.job, seen.body, seen.pods, now, *waits)
    if output is not None:
        print_value(summary, output)
        return
    screen = terminal(no_color=no_color)
    signs = UNICODE if screen.unicode else ASCII
    for line in render(summary, now, screen.paint, screen.width, signs):
        echo(screen.shown(line))
