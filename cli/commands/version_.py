"""`kubectl tfjob version`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tfjob_operator.cli.errors import ApiError, CliError
from tfjob_operator.cli.options import target_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfjob_operator.cli.options import Target
    from tfjob_operator.cli.session import Session

UNSEEN = "not seen: you may not read it"


@click.command("version")
@click.option("--client", is_flag=True, help="Show the plugin's version alone, without a cluster.")
@target_options
def command(target: Target, client: bool) -> None:  # noqa: FBT001 - a flag of the command line
    """Show the versions of this plugin, of the cluster, of the TFJob APIs that it serves, and of the operator in it."""
    from importlib.metadata import version

    click.echo(f"kubectl-tfjob  {version('tfjob-operator')}")
    if client:
        return
    with target.session() as session:
        click.echo(f"Kubernetes     {session.get('/version')['gitVersion']}")
        for group in ("kubeflow.org", "tensorflow.org"):
            served = _served(session, group)
            if served or group == "kubeflow.org":
                click.echo(f"{group:14} {', '.join(served) or 'no TFJobs: the CRD is not installed'}")
        click.echo(f"operator       {_operator(session)}")


def _served(session: Session, group: str) -> list[str]:
    try:
        found = session.get(f"/apis/{group}")
    except ApiError as error:
        if error.code == 404:
            return []
        raise
    return [each["version"] for each in found["versions"]]


def _operator(session: Session) -> str:
    """Return the images of the Deployments that run the operator."""
    try:
        found = session.get("/apis/apps/v1/deployments", labelSelector="app.kubernetes.io/name=tfjob-operator")
    except ApiError as error:
        if error.code == 403:
            return UNSEEN
        raise
    return "; ".join(_images(found["items"])) or "no Deployment of it is there"


def _images(items: list[dict[str, Any]]) -> Iterator[str]:
    for each in items:
        try:
            image = each["spec"]["template"]["spec"]["containers"][0]["image"]
            meta, ready = each["metadata"], each.get("status", {}).get("readyReplicas", 0)
        except (KeyError, IndexError) as error:
            raise CliError("the server sent a Deployment without containers") from error
        yield f"{image} ({meta['namespace']}/{meta['name']}, {ready} ready)"
