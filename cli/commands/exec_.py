"""`kubectl tfjob exec`."""

from __future__ import annotations

import os
import sys

import click

from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.options import WithProgram, target_options
from tfjob_operator.cli.selection import Choice, ReplicaPod, container_of, find, no_pods_error, replica_name
from tfjob_operator.cli.target import Target, kubectl

_FIRST = ("chief-0", "master-0", "worker-0")
"""The replicas in the order in which they are tried: the one that decides the outcome of the job comes first."""


@click.command("exec", cls=WithProgram)
@click.argument("name", metavar="JOB")
@click.argument("program", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--replica", metavar="NAME", callback=replica_name, help="The replica, such as worker-1.")
@click.option("-c", "--container", metavar="NAME", help="The container; by default the one named tensorflow.")
@click.option("-i", "--stdin", is_flag=True, help="Pass standard input to the command; always on a terminal.")
@target_options
def command(
    *, target: Target, name: str, program: tuple[str, ...], replica: str | None, container: str | None, stdin: bool
) -> None:
    """Run a command in a replica of a job, as kubectl exec does; without a command, run a shell.

    The exit code is that of the command.
    """
    with target.session() as session:
        job = jobs.get(session, name)
        choice = Choice(names=frozenset({replica} if replica else ())).of(name, job)
        replicas = find(session, job, choice).replicas
        if not replicas:
            raise no_pods_error(target, name, job, choice)
        chosen = next((pod for first in _FIRST for pod in replicas if pod.name == first), replicas[0])
        named = _container(chosen, container)
        namespace = session.namespace
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    flags = ["--stdin", "--tty"] if terminal else ["--stdin"] if stdin else []
    line = kubectl(
        target, namespace, "exec", *flags, chosen.pod_name, f"--container={named}", "--", *(program or ("sh",))
    )
    sys.stdout.flush()
    os.execv(line[0], line)  # noqa: S606, TID251 - no shell is wanted, and the terminal is the program's


def _container(replica: ReplicaPod, given: str | None) -> str:
    if replica.phase != "Running":
        raise CliError(f"{replica.name} is not running: pod {replica.pod_name} is {replica.phase or 'Pending'}")
    named = container_of(replica.pod, given)
    if named is None:
        raise CliError(f"container {given} not found in pod {replica.pod_name}")
    return named
