"""`kubectl tfjob convert`."""

from __future__ import annotations

import click

from tfjob_operator.cli.errors import CliError


@click.command("convert")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
def command(files: tuple[str, ...]) -> None:
    """Convert the TFJobs in files to kubeflow.org/v1 and print them, with comments on differences in behavior.

    `-` is standard input. Nothing is sent to a cluster: review the output, then apply it with kubectl.
    """
    from tfjob_operator.cli import manifests

    converted = [manifests.convert(manifest) for file in files for manifest in manifests.read(file)]
    if not converted:
        raise CliError("no TFJobs found")
    click.echo("---\n".join(converted), nl=False)
