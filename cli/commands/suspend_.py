"""`kubectl tfjob suspend` and `resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tfjob_operator.cli import jobs, writes
from tfjob_operator.cli.errors import CliError, print_each
from tfjob_operator.cli.managers import check_resume, check_suspend, has_queue, is_suspended
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.options import force_option, target_options
from tfjob_operator.cli.printing import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.cli.session import Session
    from tfjob_operator.cli.target import Target


@click.command("suspend")
@click.argument("names", metavar="JOB...", nargs=-1, required=True)
@force_option
@target_options
def command(*, target: Target, names: tuple[str, ...], force: bool) -> None:
    """Suspend jobs: delete their pods. `resume` recreates those that have not succeeded.

    A job that Kueue or another controller manages is refused, and what to do instead is printed.
    """
    _set_all(target, names, to=True, force=force)


@click.command("resume")
@click.argument("names", metavar="JOB...", nargs=-1, required=True)
@force_option
@target_options
def resume(*, target: Target, names: tuple[str, ...], force: bool) -> None:
    """Resume suspended jobs: the operator recreates the pods of replicas that have not succeeded.

    A job that Kueue or another controller manages is refused, and what to do instead is printed.
    """
    _set_all(target, names, to=False, force=force)


def _set_all(target: Target, names: Sequence[str], *, to: bool, force: bool) -> None:
    """Suspend or resume jobs and print each result. Raises CliError, or Exit at the end if one failed."""
    with target.session() as session:
        print_each(names, lambda name: _set(target, session, name, to=to, force=force))


def _set(target: Target, session: Session, name: str, *, to: bool, force: bool) -> str:
    job = jobs.get(session, name)
    if facts.is_alpha(job):
        raise CliError(f"{name} is a v1alpha1 job, which cannot be suspended")
    ending = facts.decided_end(job)
    if ending is None or not to:
        jobs.check_unfinished(name, job)
    if ending is None and not force:
        (check_suspend if to else check_resume)(target, session, name, job)
    if is_suspended(job) == to:
        return f"{jobs.full_name(job)} {'is already suspended' if to else 'is not suspended'}"
    look = target.command(session.namespace, "get", jobs.full_name(job), "-o", "yaml")
    writes.patch(session, job, {"spec": {"runPolicy": {"suspend": to}}}, look)
    if not to and (held := facts.conditions_of(job).get("Held")):
        echo(f"warning: {name} is on hold: {held.get('message', '')}", err=True)
    if ending is not None:
        undone = ", unless Kueue undoes it first" if has_queue(job) else ""
        echo(f"warning: {name} ends as {ending['type']}: its pods only lose their grace periods{undone}", err=True)
    return f"{jobs.full_name(job)} {'suspended' if to else 'resumed'}"
