"""`kubectl tfjob restart`."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from tfjob_operator.api.text import clean
from tfjob_operator.api.v1.constants import ConditionReason
from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiError, CliError, print_each
from tfjob_operator.cli.options import target_options
from tfjob_operator.cli.replicas import Choice, Replica, find, none_there, pods_path, replica_options
from tfjob_operator.cli.session import Session
from tfjob_operator.cli.target import Target

_NOT_FOUND = 404
_CONFLICT = 409


@click.command("restart")
@click.argument("name", metavar="JOB")
@replica_options
@click.option("--dry-run", is_flag=True, help="Print what would be deleted without deleting it.")
@target_options
def command(*, target: Target, choice: Choice, name: str, dry_run: bool) -> None:
    """Delete the pods of a job, all or some: the operator recreates them. Not counted by the backoff limit.

    Refused if no operator serves the job. Replicas that succeeded are not recreated. A finished job cannot be restarted:
    delete it and create it again.
    """
    with target.session() as session:
        job = jobs.get(session, name)
        _check(name, job)
        choice = choice.of(name, job)
        replicas = find(session, job, choice).replicas
        if not replicas:
            raise none_there(name, job, choice)
        _check_operator(session, name, job)
        print_each(replicas, lambda replica: _restart(session, replica, dry_run=dry_run))


def _check(name: str, job: dict[str, object]) -> None:
    again = f"kubectl get tfjob {name} -o yaml > {name}.saved.yaml, then kubectl replace --force -f {name}.saved.yaml"
    jobs.check_unfinished(name, job, f". To run it again: {again}")
    if (jobs.spec_of(job).get("runPolicy") or {}).get("suspend"):
        raise CliError(f"{name} is suspended and has no pods: resume it with kubectl tfjob resume {name}")
    held = jobs.conditions_of(job).get("Held") or {}
    if held and held.get("reason") != ConditionReason.TOO_LARGE:  # such a job only keeps its size
        message = clean(str(held.get("message", "")))
        raise CliError(f"{name} is on hold, and its pods would not be recreated: fix its spec first: {message}")


def _check_operator(session: Session, name: str, job: dict[str, object]) -> None:
    from tfjob_operator.cli.collecting import stopped

    if why := stopped(session, job, datetime.now(UTC)):
        raise CliError(f"pods of {name} not deleted, because nobody would recreate them: {why}")


def _restart(session: Session, replica: Replica, *, dry_run: bool) -> str:
    """Delete the pod of a replica, by its UID; return what was done."""
    shown = f"pod/{replica.pod_name}"
    if replica.phase == "Succeeded":
        return f"{shown} not deleted: {replica.name} has succeeded"
    if "deletionTimestamp" in replica.pod["metadata"]:
        return f"{shown} is already being deleted"
    if dry_run:
        return f"{shown} deleted (dry run)"
    try:
        session.delete(pods_path(session.namespace, replica.pod_name), jobs.only(replica.uid))
    except ApiError as error:
        if error.code not in {_NOT_FOUND, _CONFLICT}:
            raise
        return f"{shown} was already recreated"
    return f"{shown} deleted"
