"""`kubectl tfjob submit`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from tfjob_operator.api.resources import parse_quantity
from tfjob_operator.api.text import clean
from tfjob_operator.api.v1.constants import CleanPodPolicy, RestartPolicy
from tfjob_operator.cli import jobs
from tfjob_operator.cli.commands.validate_ import judge
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.manifests import Manifest
from tfjob_operator.cli.options import seconds, target_options
from tfjob_operator.cli.submission import Mount, Submission, job_of

if TYPE_CHECKING:
    from tfjob_operator.cli.options import Target

_COUNT: Final = click.IntRange(min=0)
_POLICY: Final = {
    "clean_pod_policy": "cleanPodPolicy",
    "ttl": "ttlSecondsAfterFinished",
    "deadline": "activeDeadlineSeconds",
    "backoff_limit": "backoffLimit",
    "suspend": "suspend",
}
"""The options that are fields of `spec.runPolicy`."""


def _mounts(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> list[Mount]:
    found = []
    for each in given:
        claim, colon, rest = each.partition(":")
        path, read_only = (rest.removesuffix(":ro"), True) if rest.endswith(":ro") else (rest, False)
        if not claim or not colon or not path.startswith("/") or ":" in path:
            raise click.BadParameter(f"{each!r} is not like claim:/path or claim:/path:ro")
        found.append(Mount(claim, path, read_only))
    return found


def _pairs(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in given:
        key, sign, value = each.partition("=")
        if not key or not sign:
            raise click.BadParameter(f"{each!r} is not like KEY=VALUE")
        found[key] = value
    return found


def _labels(ctx: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    return _pairs(ctx, option, tuple(part for each in given for part in each.split(",") if part))


def _quantity(_ctx: click.Context, _option: click.Parameter, given: str) -> str:
    if given and (parse_quantity(given) is None or given.startswith("-")):
        raise click.BadParameter(f"{given!r} is no quantity such as 2, 500m or 4Gi")
    return given


def _whole_seconds(ctx: click.Context, option: click.Parameter, given: str | None) -> int | None:
    length = seconds(ctx, option, given)
    return None if length is None else round(length)


@click.command("submit")
@click.argument("name", metavar="NAME")
@click.argument("program", metavar="[-- COMMAND [ARG...]]", nargs=-1, type=click.UNPROCESSED)
@click.option("--image", required=True, help="The image that all replicas run.")
@click.option("--workers", type=_COUNT, metavar="COUNT", help="Workers; 1 if there is no --chief either.")
@click.option("--ps", type=_COUNT, default=0, metavar="COUNT", help="Parameter servers.")
@click.option("--chief", is_flag=True, help="A chief, whose end is that of the job.")
@click.option("--evaluator", is_flag=True, help="An evaluator.")
@click.option(
    "--gpu",
    "gpus",
    type=_COUNT,
    default=0,
    metavar="COUNT",
    help="nvidia.com/gpu of each replica but parameter servers.",
)
@click.option("--cpu", default="", callback=_quantity, metavar="QUANTITY", help="CPUs that each replica requests.")
@click.option(
    "--memory",
    default="",
    callback=_quantity,
    metavar="QUANTITY",
    help="Memory that each replica requests, and its limit.",
)
@click.option(
    "--volume",
    "mounts",
    multiple=True,
    callback=_mounts,
    metavar="CLAIM:/PATH[:ro]",
    help="Mount a claim in all replicas.",
)
@click.option("--env", multiple=True, callback=_pairs, metavar="KEY=VALUE", help="A variable of all replicas.")
@click.option("--restart-policy", type=click.Choice([each.value for each in RestartPolicy]), help="Of all replicas.")
@click.option(
    "--clean-pod-policy", type=click.Choice([each.value for each in CleanPodPolicy]), help="Which pods go at the end."
)
@click.option(
    "--ttl", callback=_whole_seconds, metavar="TIME", help="Delete the job so long after its end, such as 7d."
)
@click.option(
    "--deadline", callback=_whole_seconds, metavar="TIME", help="Fail when it has taken so long, such as 12h."
)
@click.option("--backoff-limit", type=_COUNT, metavar="COUNT", help="Fail after so many restarts.")
@click.option(
    "--queue", default="", metavar="NAME", help="Kueue's local queue: the job is suspended until it is admitted."
)
@click.option("--priority-class", default="", metavar="NAME", help="The PriorityClass of its pods.")
@click.option("--suspend", is_flag=True, default=None, help="Make no pods before it is resumed.")
@click.option(
    "-l", "--label", "labels", multiple=True, callback=_labels, metavar="KEY=VALUE", help="A label of the job."
)
@click.option(
    "--dry-run",
    type=click.Choice(["client", "server", "none"]),
    is_flag=False,
    flag_value="client",
    default="none",
    help="Send nothing, or have the server only check it; with -o to see it.",
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json", "name"]), help="What to print of the job.")
@click.option("--watch", "watches", is_flag=True, help="Go on as the verb watch does, until the job has ended.")
@target_options
def command(target: Target, dry_run: str, output: str | None, watches: bool, **given: Any) -> None:  # noqa: FBT001 - a flag
    """Make a job of flags, and start it.

    It is checked first by the operator's own reader, as `validate` does: nothing is sent that would fail.
    """
    if watches and (dry_run != "none" or output is not None):
        raise click.UsageError("--watch shows the job as it runs: it goes with neither --dry-run nor --output")
    asked = _submission(given)
    _check(asked)
    if dry_run == "client":
        _print(job_of(asked, target.namespace or ""), output, " (dry run)")
        return
    with target.session() as session:
        query = {"dryRun": "All"} if dry_run == "server" else {}
        job = jobs.create(session, job_of(asked, session.namespace), **query)
        _print(job, output, " (server dry run)" if query else "")
        if watches:
            from tfjob_operator.cli.commands.watch_ import watch

            watch(session, asked.name)


def _submission(given: dict[str, Any]) -> Submission:
    policy = {field: given.pop(key) for key, field in _POLICY.items()}
    workers = given.pop("workers")
    return Submission(
        command=given.pop("program"),
        workers=int(not given["chief"]) if workers is None else workers,
        policy={field: value for field, value in policy.items() if value is not None},
        **given,
    )


def _check(asked: Submission) -> None:
    """Raise CliError for a job that the operator would not run, in its words; warn of what it would warn of."""
    judgement = judge(Manifest("", 1, "kubeflow.org", "v1", job_of(asked)))
    if judgement.mistakes:
        more = f"; and {judgement.more} more" if judgement.more else ""
        raise CliError(f"nothing was sent, for the job would fail: {'; '.join(map(str, judgement.mistakes))}{more}")
    for warning in judgement.warnings:
        click.echo(f"warning: {clean(warning)}", err=True)


def _print(job: dict[str, Any], output: str | None, how: str) -> None:
    name = f"{jobs.FULL_NAME}/{job['metadata']['name']}"
    if output == "json":
        click.echo(json.dumps(job, indent=4, ensure_ascii=False))
    elif output == "yaml":
        from tfjob_operator.cli.yaml_text import yaml_text

        click.echo(yaml_text(job, sort_keys=False), nl=False)
    else:
        click.echo(name if output == "name" else f"{name} created{how}")
