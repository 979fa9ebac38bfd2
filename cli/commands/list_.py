"""`kubectl tfjob list`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.options import target_options
from tfjob_operator.cli.session import TABLE
from tfjob_operator.cli.table import TablePrinter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.cli.options import Target
    from tfjob_operator.cli.session import Session


@click.command("list")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Show the jobs of all namespaces.")
@click.option(
    "-l", "--selector", metavar="LABELS", default="", help="Show the jobs with these labels, such as team=vision."
)
@click.option(
    "-o", "--output", type=click.Choice(["wide", "name", "json", "yaml"]), help="What to print instead of columns."
)
@click.option("-w", "--watch", is_flag=True, help="Go on, and print each job that changes.")
@click.option("--show-managed-fields", "managed", is_flag=True, help="Keep metadata.managedFields in JSON and YAML.")
@target_options
def command(*, target: Target, everywhere: bool, selector: str, output: str | None, watch: bool, managed: bool) -> None:
    """Show jobs in the columns that `kubectl get tfjobs` has.

    TfJobs of tensorflow.org, where there are any, come in a second table.
    """
    if watch and output in {"json", "yaml"}:
        raise CliError("--watch prints columns or names; for whole objects use kubectl get --watch")
    with target.session() as session:
        namespace = None if everywhere else session.namespace
        if output in {"json", "yaml"}:
            _print_objects(session, namespace, selector, output, managed=managed)
            return
        printer = TablePrinter(wide=output == "wide", namespaces=everywhere)
        names = output == "name"
        count = 0
        watched: list[tuple[str, str, TablePrinter]] = []  # group, version of its list, layout
        missing: CliError | None = None
        try:
            for page in jobs.pages(session, namespace, selector=selector, accept=TABLE):
                count += len(page.get("rows") or [])
                watched = [(jobs.GROUP, page["metadata"]["resourceVersion"], printer)]
                _print(page, printer, names=names)
        except jobs.NoTFJobsError as error:
            missing = error
        first = TablePrinter(wide=output == "wide", namespaces=everywhere, prefix=f"{jobs.FIRST_NAME}/")
        first_version = ""
        for page in jobs.first_pages(session, namespace, selector=selector, accept=TABLE):
            if count and not names and page.get("rows"):
                click.echo()
            count += len(page.get("rows") or [])
            first_version = page["metadata"]["resourceVersion"]
            _print(page, first, names=names, kind=jobs.FIRST_NAME)
        if first_version:
            watched.append((jobs.FIRST_GROUP, first_version, first))
        if missing is not None and not (watched if watch else count):
            raise missing
        if not count and not watch:
            where = "" if everywhere else f" in {session.namespace} namespace"
            click.echo(f"No resources found{where}.", err=True)
        if watch:
            _watch(session, namespace, selector, watched, names=names)


def _print(table: dict[str, Any], printer: TablePrinter, *, names: bool, kind: str = jobs.FULL_NAME) -> None:
    if "rows" not in table and "columnDefinitions" not in table:
        raise CliError("the server sends no columns: it is older than Kubernetes 1.15, or no API server")
    if names:
        for row in table["rows"] or []:
            click.echo(f"{kind}/{row['object']['metadata']['name']}")
        return
    for line in printer.lines(table):
        click.echo(line)


def _watch(
    session: Session,
    namespace: str | None,
    selector: str,
    watched: Sequence[tuple[str, str, TablePrinter]],
    *,
    names: bool,
) -> None:
    """Print what changes until the server ends a watch or the user presses Ctrl-C."""
    from tfjob_operator.cli.watching.changes import Watch, changes

    sys.stdout.flush()
    watches = [Watch(jobs.path(namespace, group=group), version, selector, TABLE) for group, version, _ in watched]
    for number, event in changes(session, watches):
        group, _, printer = watched[number]
        if event["type"] == "ERROR":
            raise CliError(f"the watch has ended: {event['object'].get('message', 'for no reason that was told')}")
        if event["type"] != "BOOKMARK":
            _print(event["object"], printer, names=names, kind=f"tfjob.{group}")
            sys.stdout.flush()


def _print_objects(session: Session, namespace: str | None, selector: str, output: str, *, managed: bool) -> None:
    items = [item for page in jobs.pages(session, namespace, selector=selector) for item in page["items"]]
    items += [item for page in jobs.first_pages(session, namespace, selector=selector) for item in page["items"]]
    for item in () if managed else items:
        item["metadata"].pop("managedFields", None)
    whole = {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}
    if output == "json":
        click.echo(json.dumps(whole, indent=4, sort_keys=True, ensure_ascii=False))
        return
    from tfjob_operator.cli.yaml_text import yaml_text

    click.echo(yaml_text(whole, sort_keys=True), nl=False)
