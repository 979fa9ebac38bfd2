"""`kubectl tfjob top`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

import click

from tfjob_operator.api.meta import Resource
from tfjob_operator.api.resources import parse_quantity
from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.options import print_value, target_options
from tfjob_operator.cli.printing import echo
from tfjob_operator.cli.selection import Choice, ReplicaPod, find, no_pods_error, replica_options, selector_of
from tfjob_operator.cli.session import Session
from tfjob_operator.cli.target import Target
from tfjob_operator.cli.terminal import TablePrinter

COLUMNS: Final = ("REPLICA", "CPU(CORES)", "%REQUEST", "%LIMIT", "MEMORY(BYTES)", "%REQUEST", "%LIMIT")
_KEYS: Final = ("replica", "cpu", "cpuRequest", "cpuLimit", "memory", "memoryRequest", "memoryLimit")
"""The columns in the JSON output."""
_MEBI: Final = 1024 * 1024
POD_METRICS: Final = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
ABSENT: Final = (404, 503)
"""Status codes for an API that is not installed, or whose server is unreachable."""
NOT_AVAILABLE: Final = "Metrics API not available: install metrics-server"


@click.command("top")
@click.argument("name", metavar="JOB")
@replica_options
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print it for a program.")
@target_options
def command(*, target: Target, choice: Choice, name: str, output: str | None) -> None:
    """Show the CPU and memory usage of a job's replicas, also as a percentage of their requests and limits."""
    with target.session() as session:
        job = jobs.get(session, name)
        choice = choice.of(name, job)
        replicas = find(session, job, choice).replicas
        if not replicas:
            raise no_pods_error(target, name, job, choice)
        used = _usage(session, job)
    rows = [_cells(replica, used.get(replica.pod_name)) for replica in replicas]
    if output == "json":
        print_value({"items": [dict(zip(_KEYS, row, strict=True)) for row in rows]}, output)
        return
    for line in TablePrinter(COLUMNS).lines(rows):
        echo(line)


def _usage(session: Session, job: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the container metrics of the job's pods by pod name. Raises CliError without the metrics API."""
    try:
        found = session.get(POD_METRICS.path(session.namespace), labelSelector=selector_of(job))
    except ApiServerError as error:
        if error.code not in ABSENT:
            raise
        raise CliError(NOT_AVAILABLE) from error
    return {item["metadata"]["name"]: item.get("containers") or [] for item in found.get("items") or ()}


def _cells(replica: ReplicaPod, used: list[dict[str, Any]] | None) -> list[str]:
    """Return a table row, with dashes for missing measurements and for requests or limits that are not set."""
    cells = [replica.name]
    spec = (replica.pod.get("spec") or {}).get("containers") or ()
    for resource in ("cpu", "memory"):
        usage = None if used is None else total((each.get("usage") or {}).get(resource) for each in used)
        cells.append("-" if usage is None else _shown(resource, usage))
        for bound in ("requests", "limits"):
            asked = [((each.get("resources") or {}).get(bound) or {}).get(resource) for each in spec]
            # A container without a limit means that the pod has none either.
            bounded = None if None in asked and bound == "limits" else total(each for each in asked if each is not None)
            cells.append(f"{100 * usage / bounded:.0f}%" if usage is not None and bounded else "-")
    return cells


def total(quantities: Iterable[object]) -> Decimal:
    """Return the sum of quantities such as `250m`, without invalid ones."""
    return sum((number for quantity in quantities if (number := parse_quantity(quantity)) is not None), Decimal(0))


def _shown(resource: str, amount: Decimal) -> str:
    """Format an amount as kubectl top does: millicores, mebibytes."""
    if resource == "cpu":
        return f"{(amount * 1000).to_integral_value(ROUND_CEILING)}m"
    return f"{amount // _MEBI}Mi"
