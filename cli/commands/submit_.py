"""`kubectl tfjob submit`."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import click

from tfjob_operator.cli import jobs, writes
from tfjob_operator.cli.errors import CliError, unknown_on_error
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.options import WithProgram, print_value, seconds, target_options
from tfjob_operator.cli.printing import echo
from tfjob_operator.cli.target import Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfjob_operator.cli.submission import Mount, Submission


class _Count(click.IntRange):
    """A number of at least 0; click's own name for it, in the message about another value, is `integer range`."""

    name = "number"


_COUNT: Final = _Count(min=0)
RESTART_POLICIES: Final = ("Always", "OnFailure", "Never", "ExitCode")
CLEAN_POD_POLICIES: Final = ("All", "Running", "None")
"""The values in the API, whose module takes longer to import than parsing the command line."""
_EFFECTS: Final = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_POLICY: Final = {
    "clean_pod_policy": "cleanPodPolicy",
    "ttl": "ttlSecondsAfterFinished",
    "deadline": "activeDeadlineSeconds",
    "backoff_limit": "backoffLimit",
    "suspend": "suspend",
}
"""The options that set fields of `spec.runPolicy`."""


def _mounts(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> list[Mount]:
    from tfjob_operator.cli.submission import Mount

    mounts = []
    for each in given:
        claim, colon, rest = each.partition(":")
        path, read_only = (rest.removesuffix(":ro"), True) if rest.endswith(":ro") else (rest, False)
        if not claim or not colon or not path.startswith("/") or ":" in path:
            raise click.BadParameter(f"{each!r} is not of the form CLAIM:/PATH or CLAIM:/PATH:ro")
        mounts.append(Mount(claim, path, read_only))
    return mounts


def _pairs(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in given:
        key, sign, value = each.partition("=")
        if not key or not sign:
            raise click.BadParameter(f"{each!r} is not of the form KEY=VALUE")
        found[key] = value
    return found


def _labels(ctx: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    return _pairs(ctx, option, tuple(part for each in given for part in each.split(",") if part))


def _tolerations(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> list[dict[str, str]]:
    found = []
    for each in given:
        taint, _, effect = each.partition(":")
        key, sign, value = taint.partition("=")
        if not key or effect not in _EFFECTS:
            raise click.BadParameter(
                f"{each!r} is not of the form KEY[=VALUE][:EFFECT], with an effect of {_EFFECTS[1:]}"
            )
        toleration = {"key": key, "operator": "Equal", "value": value} if sign else {"key": key, "operator": "Exists"}
        found.append(toleration | ({"effect": effect} if effect else {}))
    return found


def _quantity(_ctx: click.Context, _option: click.Parameter, given: str) -> str:
    from tfjob_operator.api.resources import parse_quantity

    if given and (parse_quantity(given) is None or given.startswith("-")):
        raise click.BadParameter(f"{given!r} is not a quantity such as 2, 500m or 4Gi")
    return given


def only_one(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> str | None:
    """Return the value of an option that may be given once. Raises BadParameter for a second one."""
    if len(given) > 1:
        raise click.BadParameter("one manifest is expected: write what the others add into it")
    return given[0] if given else None


def _whole_seconds(ctx: click.Context, option: click.Parameter, given: str | None) -> int | None:
    length = seconds(ctx, option, given)
    return None if length is None else round(length)


@click.command("submit", cls=WithProgram)
@click.argument("name", metavar="NAME")
@click.argument("program", metavar="[-- COMMAND [ARG...]]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-f",
    "--filename",
    multiple=True,  # click would take the last one, where kubectl takes all
    callback=only_one,
    metavar="FILE",
    help="A manifest of one TFJob that the options override.",
)
@click.option("--image", default="", help="The image of all replicas.")
@click.option("--workers", type=_COUNT, metavar="COUNT", help="Workers; by default 1.")
@click.option("--ps", type=_COUNT, metavar="COUNT", help="Parameter servers.")
@click.option("--chief", is_flag=True, help="Add a chief; the job finishes when it does.")
@click.option("--evaluator", is_flag=True, help="Add an evaluator.")
@click.option("--gpu", "gpus", type=_COUNT, metavar="COUNT", help="GPUs per replica, except parameter servers.")
@click.option("--cpu", default="", callback=_quantity, metavar="QUANTITY", help="CPU request per replica.")
@click.option(
    "--memory", default="", callback=_quantity, metavar="QUANTITY", help="Memory request and limit per replica."
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
@click.option("--env-from-secret", "env_from_secrets", multiple=True, metavar="NAME", help="Variables from a Secret.")
@click.option("--image-pull-secret", "image_pull_secrets", multiple=True, metavar="NAME", help="A Secret to pull with.")
@click.option(
    "--toleration",
    "tolerations",
    multiple=True,
    callback=_tolerations,
    metavar="KEY[=VALUE][:EFFECT]",
    help="A tolerated taint.",
)
@click.option("--node-selector", multiple=True, callback=_labels, metavar="KEY=VALUE", help="A required node label.")
@click.option("--restart-policy", type=click.Choice(RESTART_POLICIES), help="Of all replicas.")
@click.option("--clean-pod-policy", type=click.Choice(CLEAN_POD_POLICIES), help="Which pods to delete.")
@click.option("--ttl", callback=_whole_seconds, metavar="TIME", help="Delete the finished job after this time.")
@click.option("--deadline", callback=_whole_seconds, metavar="TIME", help="Fail the job after this time.")
@click.option("--backoff-limit", type=_COUNT, metavar="COUNT", help="Fail the job after this many restarts.")
@click.option("--queue", default="", metavar="NAME", help="The LocalQueue of Kueue that admits the job.")
@click.option("--priority-class", default="", metavar="NAME", help="The PriorityClass of the pods.")
@click.option(
    "--restricted", is_flag=True, help="Meet the Pod Security Standard restricted; run as user 1000 unless one is set."
)
@click.option("--suspend", is_flag=True, default=None, help="Create the job suspended, without pods.")
@click.option(
    "-l", "--label", "labels", multiple=True, callback=_labels, metavar="KEY=VALUE", help="A label of the job."
)
@click.option(
    "--dry-run",
    type=click.Choice(["client", "server", "none"]),
    is_flag=False,
    flag_value="client",
    default="none",
    help="Do not create the job; with server, let the API server validate it.",
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json", "name"]), help="Print the job, or its name.")
@click.option("--watch", "watches", is_flag=True, help="Watch the job until it finishes.")
@target_options
def command(
    *, target: Target, filename: str | None, dry_run: str, output: str | None, watches: bool, **given: Any
) -> None:
    """Create a TFJob from flags, or from a manifest and flags.

    The job is validated first as the operator does, and not created if it is invalid. With --watch, exit codes are those of
    `wait`, and 4 if the job was not created.
    """
    from tfjob_operator.cli.manifests import check
    from tfjob_operator.cli.submission import job_of

    if watches and (dry_run != "none" or output is not None):
        raise click.UsageError("--watch cannot be combined with --dry-run or --output")
    if not given["image"] and filename is None:
        raise click.UsageError("--image or --filename is required")
    with unknown_on_error() if watches else nullcontext():
        base = None if filename is None else _base(filename)
        asked = _submission(given)
        check(job_of(asked, target.namespace or "", base), "created")
        if dry_run == "client":
            _print(job_of(asked, target.namespace or "", base), output, " (dry run)")
            return
        with target.session() as session:
            body = job_of(asked, session.namespace, base)
            look = target.command(session.namespace, "get", f"{jobs.FULL_NAME}/{asked.name}", "-o", "yaml")
            job = writes.create(session, body, look, dry_run=dry_run == "server")
            _print(job, output, " (server dry run)" if dry_run == "server" else "")
            if watches:
                from tfjob_operator.cli.commands.watch_ import watch

                watch(session, asked.name, uid=job["metadata"]["uid"])


def _base(file: str) -> Mapping[str, Any]:
    """Return the single job in a file. Raises CliError for none, several, or one of an older version."""
    from tfjob_operator.cli.manifests import read

    manifests = list(read(file))
    if len(manifests) != 1:
        raise CliError(f"{file} has {len(manifests)} TFJobs: --filename takes one")
    if (manifests[0].group, manifests[0].version) != (facts.GROUP, "v1"):
        convert = Target().command(None, "tfjob", "convert", file)
        raise CliError(f"{file} is not {facts.GROUP}/v1: convert it with {convert}")
    return manifests[0].body


def _submission(given: dict[str, Any]) -> Submission:
    from tfjob_operator.cli.submission import Submission

    policy = {field: given.pop(key) for key, field in _POLICY.items()}
    return Submission(
        command=given.pop("program"),
        policy={field: value for field, value in policy.items() if value is not None},
        **given,
    )


def _print(job: dict[str, Any], output: str | None, how: str) -> None:
    name = f"{jobs.FULL_NAME}/{job['metadata']['name']}"
    if output in {"json", "yaml"}:
        job["metadata"].pop("managedFields", None)  # as in kubectl
        print_value(job, output)
    else:
        echo(name if output == "name" else f"{name} created{how}")
