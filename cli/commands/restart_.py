"""`kubectl tfjob restart`."""

from __future__ import annotations

import shlex
import time
from datetime import UTC, datetime
from typing import Any, Final

import click

from tfjob_operator.api.v1.constants import ANNOTATION_RESTART, ConditionReason
from tfjob_operator.api.v1.restart_requests import new_request
from tfjob_operator.cli import jobs, writes
from tfjob_operator.cli.errors import UNKNOWN, ApiServerError, CliError, print_each, warn
from tfjob_operator.cli.managers import check_managed_here, has_queue, is_suspended
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.options import target_options
from tfjob_operator.cli.printing import echo
from tfjob_operator.cli.selection import Choice, ReplicaPod, find, no_pods_error, pods_path, replica_options
from tfjob_operator.cli.session import Session
from tfjob_operator.cli.target import Target

ACKNOWLEDGED_WITHIN_S: Final = 10.0
"""How long the operator may take to acknowledge a request, which is a single write of the status."""
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


@click.command("restart")
@click.argument("name", metavar="JOB")
@replica_options
@click.option("--dry-run", is_flag=True, help="Print what would be restarted without changing anything.")
@target_options
def command(*, target: Target, choice: Choice, name: str, dry_run: bool) -> None:
    """Restart a whole job as its next attempt; with --type, --index or --replica, delete single pods to recreate them.

    Neither restart counts toward a limit. To restart the whole job, the operator deletes all pods before it creates any.
    Replicas that succeeded run again unless finishedReplicaPolicy is Keep. A restart is refused if no operator serves the job.
    A finished job cannot be restarted: delete it and create it again. The exit code is 4 if the restart of a whole job was
    requested, but its result cannot be read.
    """
    with target.session() as session:
        job = jobs.get(session, name)
        if choice == Choice() and facts.is_alpha(job):
            text = "is a v1alpha1 job, which cannot be restarted as a whole: choose replicas with --type, --index or --replica"
            raise CliError(f"{name} {text}")
        _check(target, name, job)
        choice = choice.of(name, job)
        whole = choice == Choice()
        has_started = whole and bool((job.get("status") or {}).get("begun"))
        replicas = () if has_started else find(session, job, choice).replicas
        if not (has_started or replicas):
            raise no_pods_error(target, name, job, choice)
        have_run = whole or any(replica.phase not in {"", "Pending"} for replica in replicas)
        _check_operator(session, name, job, whole=whole, have_run=have_run)
        if whole:
            echo(_restart_all(target, session, name, job, dry_run=dry_run))
        else:
            print_each(replicas, lambda replica: _restart(target, session, replica, dry_run=dry_run))


def _restart_all(target: Target, session: Session, name: str, job: dict[str, Any], *, dry_run: bool) -> str:
    """Request a restart of the whole job, wait for the operator to acknowledge it, and return the result."""
    full = jobs.full_name(job)
    if dry_run:
        return f"{full} restarted (dry run)"
    earlier = ((job.get("status") or {}).get("observedRestartRequest"), _annotation(job))
    value = new_request(datetime.now(UTC), [each for each in earlier if isinstance(each, str)])
    sent = writes.patch(session, job, {"metadata": {"annotations": {ANNOTATION_RESTART: value}}}, _look(target, job))
    try:
        seen = _noted(target, session, name, sent["metadata"]["uid"])
    except _NotRestartedError:
        raise
    except CliError as error:
        CliError(f"{name} may restart: it was requested, but the result cannot be read: {error.message}").show()
        raise click.exceptions.Exit(UNKNOWN) from error
    before, attempt = ((each.get("status") or {}).get("attempt") or 0 for each in (sent, seen))
    if attempt > before:
        return f"{full} restarted as attempt {attempt}"
    jobs.check_unfinished(name, seen)
    raise CliError(
        f"{name} was not restarted: its training has ended, and the job finishes when its workers have exited"
    )


class _NotRestartedError(CliError):
    """The job was deleted, or the request was withdrawn."""


def _noted(target: Target, session: Session, name: str, uid: str) -> dict[str, Any]:
    """Wait until the operator acknowledges the request, and return the job. Raises CliError if it does not."""
    from tfjob_operator.cli.watches import Gone, versions

    until = time.monotonic() + ACKNOWLEDGED_WITHIN_S
    for seen in versions(session, name, clock=time.monotonic, pause=time.sleep, warn=warn, until=until, uid=uid):
        if isinstance(seen, Gone):
            raise _NotRestartedError(f"{name} was deleted")
        if _is_noted(seen):
            return seen
    return _withdraw(target, session, name)


def _annotation(job: dict[str, Any]) -> object:
    return (job["metadata"].get("annotations") or {}).get(ANNOTATION_RESTART)


def _is_noted(job: dict[str, Any]) -> bool:
    """Return True if the operator has acknowledged the latest request, which may be a later one by another user."""
    wanted = _annotation(job)
    return bool(wanted) and (job.get("status") or {}).get("observedRestartRequest") == wanted


def _withdraw(target: Target, session: Session, name: str) -> dict[str, Any]:
    """Withdraw a request, since an operator that is upgraded later would still process it.

    Raises CliError, or returns the job if the request was acknowledged in the meantime.
    """
    while not _is_noted(job := jobs.get(session, name)):
        meta = job["metadata"]
        change = {"metadata": {"annotations": {ANNOTATION_RESTART: None}}}
        try:
            writes.patch(session, job, change, _look(target, job), meta["resourceVersion"])
        except ApiServerError as error:
            if error.code != _CONFLICT:
                raise
            continue
        try:
            jobs.check_unfinished(name, job)  # its end was decided before the operator saw the request
        except CliError as error:
            raise _NotRestartedError(error.message) from error
        one = f"--replica={(jobs.types_of(job) or ['worker'])[0]}-0"
        some = target.command(meta["namespace"], "tfjob", "restart", name, one)
        text = f"no operator noted the request within {ACKNOWLEDGED_WITHIN_S:.0f}s, and it was withdrawn"
        raise _NotRestartedError(
            f"{name} was not restarted: {text}. An operator that cannot restart whole jobs recreates pods (but "
            f"training-operator may fail the job): {some}"
        )
    return job


def _look(target: Target, job: dict[str, Any]) -> str:
    return target.command(job["metadata"]["namespace"], "get", jobs.full_name(job), "-o", "yaml")


def _check(target: Target, name: str, job: dict[str, Any]) -> None:
    own, here = job["metadata"]["name"], job["metadata"]["namespace"]
    file = f"{own}.saved.yaml"
    save = f"{target.command(here, 'get', jobs.full_name(job), '-o', 'yaml')} > {shlex.quote(file)}"
    again = f"{save}, then {target.command(here, 'replace', '--force', '-f', file)}"
    jobs.check_unfinished(name, job, f". To run it again: {again}")
    check_managed_here(name, job)
    if is_suspended(job) and has_queue(job):
        explain = target.command(here, "tfjob", "explain", name)
        raise CliError(f"{name} is suspended by its queue and has no pods. Details: {explain}")
    if is_suspended(job):
        resume = target.command(here, "tfjob", "resume", name)
        raise CliError(f"{name} is suspended and has no pods: resume it with {resume}")
    held = facts.conditions_of(job).get("Held") or {}
    if (
        held and held.get("reason") != ConditionReason.TOO_LARGE
    ):  # a job that is too large still runs, at its current size
        message = held.get("message", "")
        raise CliError(f"{name} is on hold, and its pods would not be recreated: fix its spec first: {message}")


def _check_operator(session: Session, name: str, job: dict[str, Any], *, whole: bool, have_run: bool) -> None:
    from tfjob_operator.cli.collecting import obstacle

    if why := obstacle(session, job, datetime.now(UTC), whole=whole, have_run=have_run):
        raise CliError(f"{name} not restarted, because {why}")


def _restart(target: Target, session: Session, replica: ReplicaPod, *, dry_run: bool) -> str:
    """Delete the pod of a replica, by UID; return what was done."""
    shown = f"pod/{replica.pod_name}"
    if replica.phase == "Succeeded":
        return f"{shown} not deleted: {replica.name} has succeeded"
    if "deletionTimestamp" in replica.pod["metadata"]:
        return f"{shown} is already being deleted"
    if dry_run:
        return f"{shown} deleted (dry run)"
    try:
        look = target.command(session.namespace, "get", "pod", replica.pod_name, "-o", "yaml")
        writes.delete(session, pods_path(session.namespace, replica.pod_name), replica.uid, look)
    except ApiServerError as error:
        if error.code not in {_NOT_FOUND, _CONFLICT}:
            raise
        return f"{shown} was already recreated"
    return f"{shown} deleted"
