"""`kubectl tfjob prune`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tfjob_operator.api.text import one_line
from tfjob_operator.cli import jobs, writes
from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.options import seconds, target_options
from tfjob_operator.cli.printing import confirm, echo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfjob_operator.cli.session import Session
    from tfjob_operator.cli.target import Target

_ENDS = ("Succeeded", "Failed")
_NOT_FOUND = 404
_CONFLICT = 409


class FinishedJob(NamedTuple):
    """A finished job; `name` includes its kind, `at` is the completion time, or None if it cannot be parsed."""

    path: str
    namespace: str
    name: str
    uid: str
    version: str
    state: str
    at: datetime | None


@click.command("prune")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Delete jobs of all namespaces.")
@click.option("-l", "--selector", metavar="LABELS", default="", help="Only jobs with these labels.")
@click.option("--older-than", "age", callback=seconds, metavar="TIME", help="Only jobs finished longer ago.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(_ENDS, case_sensitive=False), help="Only jobs in this state."
)
@click.option("--dry-run", is_flag=True, help="Print what would be deleted without deleting it.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@target_options
def command(
    *,
    target: Target,
    everywhere: bool,
    selector: str,
    age: float | None,
    states: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete finished jobs with their remaining pods and logs, after confirmation.

    Only jobs that succeeded or failed are deleted, and none that has changed since it was listed.
    """
    before = None if age is None else datetime.now(UTC) - timedelta(seconds=age)
    with target.session() as session:
        namespace = None if everywhere else session.namespace
        found = [
            job
            for job in _ended(session, namespace, selector)
            if (not states or job.state in states) and (before is None or (job.at is not None and job.at <= before))
        ]
        if not found:
            echo(f"No finished jobs found{'' if everywhere else f' in {session.namespace} namespace'}.", err=True)
            return
        if dry_run:
            for job in found:
                echo(f"{_shown(job, everywhere)} deleted (dry run)")
            return
        if not yes:
            _ask(found, everywhere)
        _delete(target, session, found, everywhere)


def _ended(session: Session, namespace: str | None, selector: str) -> Iterator[FinishedJob]:
    for job, group in _jobs(session, namespace, selector):
        found, meta = facts.job_facts(job), job["metadata"]
        if found.state not in _ENDS or found.is_deleted or not jobs.is_whole(job):
            continue
        path, name = jobs.path(meta["namespace"], meta["name"], group), f"tfjob.{group}/{meta['name']}"
        at = found.ended if found.ended is not None else found.since
        ended = datetime.fromtimestamp(at, UTC) if at is not None else None
        yield FinishedJob(path, meta["namespace"], name, meta["uid"], meta["resourceVersion"], found.state, ended)


def _jobs(session: Session, namespace: str | None, selector: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the jobs of both APIs with their group. Raises CliError if neither is served."""
    missing: CliError | None = None
    try:
        for page in jobs.pages(session, namespace, selector=selector):
            yield from ((job, facts.GROUP) for job in page["items"])
    except jobs.NoTFJobsError as error:
        missing = error
    for page in jobs.tensorflow_pages(session, namespace, selector=selector):
        missing = None
        yield from ((job, facts.TENSORFLOW_GROUP) for job in page["items"])
    if missing is not None:
        raise missing


def _shown(job: FinishedJob, everywhere: bool) -> str:  # noqa: FBT001 - as the option
    return f"{job.name}{f' in {job.namespace}' if everywhere else ''}"


def _ask(found: list[FinishedJob], everywhere: bool) -> None:  # noqa: FBT001 - as the option
    """Ask for confirmation. Raises CliError without a terminal, Exit if the user declines."""
    if not sys.stdin.isatty():
        raise CliError(
            f"standard input is not a terminal: pass --yes to delete {len(found)} jobs, or --dry-run to list them"
        )
    for job in found:
        when = f" {job.at:%Y-%m-%d %H:%M} UTC" if job.at is not None else ""
        echo(f"{_shown(job, everywhere)} {job.state}{when}")
    if not confirm(f"Delete {'this job' if len(found) == 1 else f'these {len(found)} jobs'}?"):
        raise click.exceptions.Exit(1)


def _delete(target: Target, session: Session, found: list[FinishedJob], everywhere: bool) -> None:  # noqa: FBT001 - as the option
    """Delete jobs unless they have changed since they were read. Raises Exit at the end if some were refused, and CliError.

    A reason for which several are refused is printed once.
    """
    refused: dict[str, list[str]] = {}
    try:
        for job in found:
            look = target.command(job.namespace, "get", job.name, "-o", "yaml")
            try:
                writes.delete(session, job.path, job.uid, look, job.version)
            except ApiServerError as error:
                if error.code == _CONFLICT:
                    text = f"error: {_shown(job, everywhere)} has changed and was not deleted: {error.message}"
                    refused.setdefault("changed", []).append(text)
                    continue
                if error.code != _NOT_FOUND:
                    reason = error.message.replace(job.name.partition("/")[2], "").replace(job.namespace, "")
                    refused.setdefault(f"{error.code} {reason}", []).append(f"{error.kind}: {error.message}")
                    continue
            echo(f"{_shown(job, everywhere)} deleted")
    finally:
        for first, *others in refused.values():
            more = f"; the same for {len(others)} more job{'s' if len(others) > 1 else ''}" if others else ""
            echo(one_line(first) + more, err=True)
    if refused:
        raise click.exceptions.Exit(1)
