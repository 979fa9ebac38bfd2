"""`kubectl tfjob scale`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from tfjob_operator.cli import jobs, writes
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.model.replica_names import type_of
from tfjob_operator.cli.options import force_option, target_options
from tfjob_operator.cli.printing import echo
from tfjob_operator.cli.target import Target

_MAX_DIGITS = 9
"""The field is an int32."""


@click.command("scale")
@click.argument("name", metavar="JOB")
@click.argument("sizes", metavar="TYPE=COUNT...", nargs=-1, required=True)
@force_option
@target_options
def command(*, target: Target, name: str, sizes: tuple[str, ...], force: bool) -> None:
    """Change the number of replicas of a job, such as `worker=4`. kubectl scale changes only workers.

    A running job of a queue is refused, because Kueue would delete its pods and queue it again.
    """
    from tfjob_operator.cli.managers import check_scale
    from tfjob_operator.cli.manifests import check

    wanted = dict(map(_size, sizes))
    with target.session() as session:
        job = jobs.get(session, name)
        if facts.is_alpha(job):
            edit = target.command(session.namespace, "edit", jobs.full_name(job))
            raise CliError(f"{name} is a v1alpha1 job: edit its spec.replicaSpecs with {edit}")
        entries = facts.spec_of(job).get("tfReplicaSpecs") or {}
        # if a type is spelled twice, the entry in the spelling of v1 counts: the scale subresource has written it
        keys = {key.lower(): key for key in sorted(entries, key=lambda key: key == type_of(key))}
        unknown = sorted(wanted.keys() - keys)
        if unknown:
            raise CliError(
                f"{name} has no replicas of type {unknown[0]}: it has {', '.join(sorted(entries)) or 'none at all'}"
            )
        jobs.check_unfinished(name, job)
        changes = {keys[key]: {"replicas": count} for key, count in wanted.items()}
        resized = {key: (entry or {}) | changes.get(key, {}) for key, entry in entries.items()}
        check({**job, "spec": {**facts.spec_of(job), "tfReplicaSpecs": resized}}, "scaled")
        if not force:
            check_scale(session, name, job)
        look = target.command(session.namespace, "get", jobs.full_name(job), "-o", "yaml")
        writes.patch(session, job, {"spec": {"tfReplicaSpecs": changes}}, look)
        echo(f"{jobs.full_name(job)} scaled")
        if _outdates_tf_config(job, changes):
            restart = target.command(session.namespace, "tfjob", "restart", name)
            echo(f"warning: running replicas keep the old sizes in TF_CONFIG; restart all with {restart}", err=True)


def _outdates_tf_config(job: Mapping[str, Any], changes: Mapping[str, Mapping[str, int]]) -> bool:
    """Return True if running replicas have a TF_CONFIG with other sizes. Those of an elastic job do not have the workers."""
    spec = facts.spec_of(job)
    left_out = {"evaluator", *(["worker"] if spec.get("enableDynamicWorker") is True else [])}
    entries = {kind: facts.mapping(entry) for kind, entry in facts.mapping(spec.get("tfReplicaSpecs")).items()}
    changed = {kind.lower() for kind, new in changes.items() if entries[kind].get("replicas", 1) != new["replicas"]}
    known = facts.job_facts(job)
    return known.started is not None and not known.is_suspended and bool(changed - left_out)


def _size(given: str) -> tuple[str, int]:
    kind, _, count = given.partition("=")
    if not kind or not count.isdecimal() or not count.isascii():
        raise click.BadParameter(f"{given!r} is not of the form TYPE=COUNT, such as worker=4", param_hint="TYPE=COUNT")
    if len(count) > _MAX_DIGITS:
        raise click.BadParameter(f"too many replicas: {kind}={count[:_MAX_DIGITS]}...", param_hint="TYPE=COUNT")
    return kind.lower(), int(count)
