"""`kubectl tfjob list`."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from tfjob_operator.cli.jobs import GROUP
from tfjob_operator.cli.list_view import Jobs, ListView, Query, read_pods
from tfjob_operator.cli.listing import COLUMNS, STATES, Listing
from tfjob_operator.cli.options import print_value, target_options
from tfjob_operator.cli.target import kubectl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfjob_operator.cli.session import Session
    from tfjob_operator.cli.target import Target

_FORMATS: Final = ("wide", "name", "json", "yaml")
_TEMPLATES: Final = (
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
    "custom-columns",
    "custom-columns-file",
    "go-template",
    "go-template-file",
)
"""Formats with a template. kubectl prints them: it is there, since this is its plugin, and no library has its dialect."""
_FIELD: Final = re.compile(r"\.?[\w-]+(\.[\w-]+)*", re.ASCII)
_COLUMNS: Final = tuple(name.lower() for name in COLUMNS[:-1])
_OF_PODS: Final = ("ready", "restarts", "reason")
"""Columns for which pods are read."""
_PASSED: Final = {
    "selector": "selector",
    "field-selector": "fields",
    "no-headers": "no_headers",
    "watch": "watch",
    "show-managed-fields": "managed",
}
"""Options that kubectl has too, and their names here."""


def _format(_ctx: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    if given is None or given in _FORMATS or given.partition("=")[0] in _TEMPLATES:
        return given
    raise click.BadParameter(f"{given!r} is not one of {', '.join((*_FORMATS, *(f'{name}=' for name in _TEMPLATES)))}")


def _sort_key(_ctx: click.Context, _option: click.Parameter, given: str) -> str:
    """Return a column in lower case, or a field with a dot before it."""
    field = given.removeprefix("{").removesuffix("}")
    if field.lower() in {"", *_COLUMNS}:
        return field.lower()
    if not _FIELD.fullmatch(field) or "." not in field:
        raise click.BadParameter(
            f"{given!r} is not a column ({', '.join(_COLUMNS)}) or a field such as .status.startTime"
        )
    return f".{field.removeprefix('.')}"


@click.command("list")
@click.argument("names", metavar="[NAME...]", nargs=-1)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="List the jobs of all namespaces.")
@click.option("-l", "--selector", metavar="LABELS", default="", help="Only jobs with these labels.")
@click.option("--field-selector", "fields", metavar="FIELDS", default="", help="Only jobs with these fields.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(STATES, case_sensitive=False), help="Only jobs in this state."
)
@click.option("--sort-by", default="", callback=_sort_key, metavar="COLUMN", help="Sort by a column or field.")
@click.option("-o", "--output", callback=_format, metavar="FORMAT", help="wide, name, json, yaml, jsonpath=...")
@click.option("--no-headers", is_flag=True, help="Print no header.")
@click.option("-w", "--watch", is_flag=True, help="After the list, print each job whose row changes.")
@click.option("--show-managed-fields", "managed", is_flag=True, help="Keep metadata.managedFields in JSON and YAML.")
@click.option("--no-color", is_flag=True, help="Use no colors, as with the variable NO_COLOR.")
@target_options
def command(*, target: Target, everywhere: bool, output: str | None, watch: bool, **given: Any) -> None:
    """List jobs: their state, ready replicas, restarts, and the reason why a job is not running.

    REASON is what decides: from the job's conditions, its pods and, where pods are missing or do not start, events.
    Without the right to list pods, READY is <unknown>.
    """
    names = given["names"]
    if names and (everywhere or given["selector"] or given["fields"]):
        raise click.UsageError("NAME cannot be combined with --all-namespaces, --selector or --field-selector")
    if watch and (len(names) > 1 or output in {"json", "yaml"}):
        raise click.UsageError("--watch takes one NAME at most, and prints rows or names")
    if output is not None and output not in _FORMATS:
        _print_by_kubectl(target, output, {**given, "everywhere": everywhere, "watch": watch})
    with target.session() as session:
        query = Query(
            None if everywhere else session.namespace,
            names,
            given["selector"],
            given["fields"],
            given["states"],
            given["sort_by"],
        )
        source = Jobs(session, query)
        if output in {"json", "yaml"}:
            _print_objects(session, source, output, managed=given["managed"])
        else:
            look = {"names": output == "name", "wide": output == "wide", "headers": not given["no_headers"]}
            ListView(session, source, **look, no_color=given["no_color"]).show(watch=watch)
    if source.failures:
        raise click.exceptions.Exit(1)


def _print_objects(session: Session, source: Jobs, output: str, *, managed: bool) -> None:
    """Print whole jobs: one that was named alone as it is, others as a List."""
    listing, now = Listing(sort_by=source.query.sort_by), datetime.now(UTC).timestamp()
    found = {listing.put_job(body, now): body for body in source.read()}
    if source.query.sort_by in _OF_PODS:
        read_pods(session, source.query, listing, now)
    items = [found[key] for key in listing.ordered(found, now)]
    for item in () if managed else items:
        item["metadata"].pop("managedFields", None)
    whole = {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}
    print_value(items[0] if len(source.query.names) == 1 and items else whole, output, sort_keys=True)


def _print_by_kubectl(target: Target, output: str, given: Mapping[str, Any]) -> NoReturn:
    """Become `kubectl get`, which prints jobs by a template."""
    sort_by = {"name": ".metadata.name", "age": ".metadata.creationTimestamp"}.get(given["sort_by"], given["sort_by"])
    if given["states"] or sort_by in _COLUMNS:
        raise click.UsageError(
            "a template cannot be combined with --state, or sorted by columns other than name and age: "
            "list the names with -o name first"
        )
    arguments = [f"--output={output}", *(["--all-namespaces"] if given["everywhere"] else [])]
    arguments += [f"--sort-by={sort_by}"] if sort_by else []
    arguments += [
        f"--{flag}={str(given[key]).lower() if given[key] is True else given[key]}"
        for flag, key in _PASSED.items()
        if given[key]
    ]
    names = [name if "/" in name else f"tfjobs.{GROUP}/{name}" for name in given["names"]]
    line = kubectl(target, target.namespace, "get", *arguments, *(names or [f"tfjobs.{GROUP}"]))
    os.execv(line[0], line)  # noqa: S606 - no shell is wanted
