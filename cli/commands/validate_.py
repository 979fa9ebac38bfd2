"""`kubectl tfjob validate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.text import clean
from tfjob_operator.api.v1 import validation as v1
from tfjob_operator.api.v1.tensorboard import InvalidTensorBoard, read_tensor_board
from tfjob_operator.api.v1.types import InvalidSpec, Mistake
from tfjob_operator.api.v1.validation import BOUNDS
from tfjob_operator.api.v1alpha1 import validation as v1alpha1
from tfjob_operator.api.v1alpha1.constants import TENSORFLOW
from tfjob_operator.api.v1alpha1.dialect import is_alpha
from tfjob_operator.cli import manifests
from tfjob_operator.cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfjob_operator.api.v1.types import SpecWarning
    from tfjob_operator.cli.manifests import Manifest


class Judgement(NamedTuple):
    """The result of validating one job: the first errors, how many `more` there are, and warnings."""

    mistakes: tuple[Mistake, ...]
    more: int
    warnings: tuple[str, ...]


@click.command("validate")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings, too, such as unknown fields.")
def command(*, files: tuple[str, ...], strict: bool) -> None:
    """Validate the TFJobs in files as the operator does, without a cluster, and print errors with their lines.

    `-` is standard input. The exit code is 1 if a job is invalid or a file cannot be read, and with --strict on warnings.
    """
    jobs = invalid = unread = warned = 0
    for file in files:
        try:
            for manifest in manifests.read(file):
                jobs += 1
                judgement = judge(manifest)
                warned += len(judgement.warnings)
                invalid += _print(manifest, judgement)
        except CliError as error:
            error.show()
            unread += 1
    if not jobs and not unread:
        click.echo("no TFJobs found", err=True)
    elif jobs:
        click.echo(f"{jobs} {'job' if jobs == 1 else 'jobs'}, {invalid} invalid", err=True)
    if invalid or unread or (strict and warned):
        raise click.exceptions.Exit(1)


def judge(manifest: Manifest) -> Judgement:
    """Validate a job as the operator would."""
    if not manifest.name:
        return Judgement((Mistake("metadata.name", "is missing"),), 0, ())
    if "spec" not in manifest.body:
        return Judgement((Mistake("spec", "is missing"),), 0, ())
    raw = msgspec.json.encode(manifest.body["spec"])
    alpha = manifest.group == TENSORFLOW.resource.group or is_alpha(raw)
    if alpha:
        spec = v1alpha1.read_spec(manifest.alpha, manifest.name, raw)
        return _wrong(spec) if isinstance(spec, InvalidSpec) else _good(spec.warnings)
    return _judge_v1(manifest.name, raw)


def _judge_v1(name: str, raw: bytes) -> Judgement:
    spec = v1.read_spec(name, raw)
    if isinstance(spec, InvalidSpec):
        return _wrong(spec)
    meta = ObjectMeta(name=name)
    beyond = next((mistake for bound in BOUNDS if (mistake := bound(meta, spec)) is not None), None)
    if beyond is not None:
        return Judgement((beyond,), 0, ())
    board = read_tensor_board(name, raw).board
    if isinstance(board, InvalidTensorBoard):
        return _good(spec.warnings, f"the job runs without its TensorBoard: {board.text}")
    return _good(spec.warnings, *(board.unknown_fields if board is not None else ()))


def _wrong(spec: InvalidSpec) -> Judgement:
    return Judgement(spec.mistakes, spec.more, ())


def _good(warnings: Iterable[SpecWarning], *more: str) -> Judgement:
    return Judgement((), 0, (*(warning.message for warning in warnings), *more))


def _print(manifest: Manifest, judgement: Judgement) -> bool:
    """Print the errors and warnings of a job. Return True if it is invalid."""
    for mistake in judgement.mistakes:
        click.echo(f"{manifest.file}:{manifest.line_of(mistake.path)}: {clean(str(mistake))}")
    if judgement.more:
        click.echo(f"{manifest.file}:{manifest.line}: and {judgement.more} more")
    for warning in judgement.warnings:
        path = warning.partition(" ")[0].rstrip(":")  # where it is about a field, its path comes first
        line = manifest.line_of(path) if path.startswith("spec.") else manifest.line
        click.echo(f"{manifest.file}:{line}: warning: {clean(warning)}")
    return bool(judgement.mistakes)
