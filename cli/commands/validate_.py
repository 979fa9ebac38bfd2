"""`kubectl tfjob validate` and `convert`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.printing import echo

if TYPE_CHECKING:
    from tfjob_operator.cli.manifests import Manifest, ValidationResult


@click.command("validate")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings, too, such as unknown fields.")
def command(*, files: tuple[str, ...], strict: bool) -> None:
    """Validate the TFJobs in files as the operator does, without a cluster, and print errors with their lines.

    Of a folder, all files named *.yaml, *.yml and *.json are read. `-` is standard input. The exit code is 1 if a job is
    invalid or a file cannot be read, and with --strict on warnings.
    """
    from tfjob_operator.cli import manifests

    jobs = invalid = unread = warned = 0
    for file in [each for name in files for each in manifests.files_of(name)]:
        try:
            for manifest in manifests.read(file):
                jobs += 1
                result = manifests.validate(manifest)
                warned += len(result.warnings)
                invalid += _print(manifest, result)
        except CliError as error:
            error.show()
            unread += 1
    if not jobs and not unread:
        echo("no TFJobs found", err=True)
    elif jobs:
        counted = f", {warned} warning{'s' * (warned != 1)}" if warned else ""
        echo(f"{jobs} {'job' if jobs == 1 else 'jobs'}, {invalid} invalid{counted}", err=True)
    if invalid or unread or (strict and warned):
        raise click.exceptions.Exit(1)


def _print(manifest: Manifest, result: ValidationResult) -> bool:
    """Print the errors, warnings and notes of a job. Return True if it is invalid.

    An unknown field is among the errors if there are any, as it may be the misspelled one that they miss.
    """
    from tfjob_operator.api.v1.reader import UNKNOWN_FIELD

    for mistake in result.mistakes:
        level = "warning: " if mistake.message.startswith(UNKNOWN_FIELD) else ""
        echo(f"{manifest.file}:{manifest.line_of(mistake.path)}: {level}{mistake}")
    if result.more:
        echo(f"{manifest.file}:{manifest.line}: and {result.more} more")
    for warning in result.warnings:
        path = warning.partition(" ")[0].rstrip(":")  # warnings about a field start with its path
        line = manifest.line_of(path) if path.startswith("spec.") else manifest.line
        echo(f"{manifest.file}:{line}: warning: {warning}")
    for note in result.notes:
        echo(f"{manifest.file}:{manifest.line_of('spec.runPolicy.failurePolicy')}: note: {note}")
    return bool(result.mistakes)


@click.command("convert")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
def convert(files: tuple[str, ...]) -> None:
    """Convert the TFJobs in files to kubeflow.org/v1 and print them, with comments on differences in behavior.

    Folders are read as by validate. `-` is standard input. Nothing is sent to a cluster: review the output, then apply it with
    kubectl.
    """
    from tfjob_operator.cli import manifests

    converted = [
        manifests.convert(manifest)
        for name in files
        for file in manifests.files_of(name)
        for manifest in manifests.read(file)
    ]
    if not converted:
        raise CliError("no TFJobs found")
    echo(*"---\n".join(converted).split("\n"), nl=False)
