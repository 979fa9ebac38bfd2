"""`kubectl tfjob wait`."""

from __future__ import annotations

import time
from typing import Final

import click

from tfjob_operator.api.text import clean
from tfjob_operator.cli import jobs
from tfjob_operator.cli.options import seconds, target_options
from tfjob_operator.cli.target import Target
from tfjob_operator.cli.watches import end_of, versions

GONE: Final = 3
TIMED_OUT: Final = 124
"""As `timeout` of GNU coreutils."""


@click.command("wait")
@click.argument("name", metavar="NAME")
@click.option("--timeout", callback=seconds, metavar="TIME", help="The maximum time to wait, such as 2h.")
@target_options
def command(target: Target, name: str, timeout: float | None) -> None:
    """Wait until a job finishes and print its state. Exit codes: 0 succeeded, 1 failed, 3 deleted, 124 timed out."""
    until = None if timeout is None else time.monotonic() + timeout
    full = f"{jobs.FULL_NAME}/{name}"
    with target.session() as session:
        for job in versions(session, name, clock=time.monotonic, pause=time.sleep, until=until):
            if job is None:
                click.echo(f"{full} was deleted", err=True)
                raise click.exceptions.Exit(GONE)
            full, end = jobs.full_name(job), end_of(job)
            if end is not None:
                click.echo(f"{full} {end.condition}: {clean(end.message)}")
                raise click.exceptions.Exit(end.code)
    click.echo(f"timed out waiting for {full}", err=True)
    raise click.exceptions.Exit(TIMED_OUT)
