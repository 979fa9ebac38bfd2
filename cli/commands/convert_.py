"""`kubectl tfjob convert`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from tfjob_operator.api.text import clean
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1alpha1.constants import TENSORFLOW
from tfjob_operator.api.v1alpha1.conversion import Conversion, to_v1
from tfjob_operator.api.v1alpha1.dialect import is_alpha
from tfjob_operator.cli import manifests
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.yaml_text import yaml_text

if TYPE_CHECKING:
    from tfjob_operator.cli.manifests import Manifest


@click.command("convert")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
def command(files: tuple[str, ...]) -> None:
    """Convert the TFJobs in files to kubeflow.org/v1 and print them, with comments on differences in behavior.

    `-` is standard input. Nothing is sent to a cluster: review the output, then apply it with kubectl.
    """
    converted = [_text(manifest) for file in files for manifest in manifests.read(file)]
    if not converted:
        raise CliError("no TFJobs found")
    click.echo("---\n".join(converted), nl=False)


def _text(manifest: Manifest) -> str:
    body: dict[str, Any] = dict(manifest.body)
    comments = []
    if manifest.version != TFJOBS.version or manifest.group != TFJOBS.group:
        comments.append(f"converted from {manifest.group}/{manifest.version}")
    raw = msgspec.json.encode(body.get("spec") or {})
    if manifest.group == TENSORFLOW.resource.group or is_alpha(raw):
        done = to_v1(manifest.alpha, manifest.name, raw)
        if not isinstance(done, Conversion):
            raise CliError(f"{manifest.file}:{manifest.line_of(done[0].path)}: {done[0]}; fix it first")
        body["spec"] = done.spec
        comments += done.differences
    body |= {"apiVersion": f"{TFJOBS.group}/{TFJOBS.version}", "kind": TFJOBS.kind}
    body.pop("status", None)
    ordered = {key: body[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in body}
    document = yaml_text(ordered, sort_keys=False)
    return "".join(f"# {clean(line)}\n" for line in comments) + document
