"""`kubectl tfjob explain`."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from tfjob_operator.cli.diagnosis.causes import Cause, Diagnosis
from tfjob_operator.cli.options import camel_cased, print_value, seconds, target_options
from tfjob_operator.cli.printing import echo

if TYPE_CHECKING:
    from tfjob_operator.cli.diagnosis.causes import Diagnosis
    from tfjob_operator.cli.target import Target


_WIDTH: Final = 100
"""The width without a terminal."""


@click.command("explain")
@click.argument("name", metavar="JOB")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Print it for a program.")
@click.option(
    "--silent-after",
    default="10m",
    metavar="DURATION",
    show_default=True,
    callback=seconds,
    help="Report running replicas without a log line for so long; 0: do not read the logs of running replicas.",
)
@target_options
def command(target: Target, name: str, output: str | None, silent_after: float) -> None:
    """Explain why a job is not running, or how it ended: causes with evidence and advice, the likeliest first.

    Reads the job, its pods and events, and, as far as you have permission, nodes, quotas, claims, queues and logs.
    What could not be read is named at the end. Nothing is changed.
    """
    from tfjob_operator.cli.collecting import collect
    from tfjob_operator.cli.diagnosis.diagnose import diagnose

    with target.session() as session:
        diagnosis = _for_cluster(diagnose(collect(session, name, datetime.now(UTC), silent_after)), target)
    if output is not None:
        print_value(camel_cased(diagnosis), output)
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    for line in render(diagnosis, width):
        echo(line)


def _for_cluster(diagnosis: Diagnosis, target: Target) -> Diagnosis:
    """Return the diagnosis with commands for the selected cluster, which may not be that of the current context."""
    return replace(
        diagnosis,
        causes=tuple(replace(cause, to_do=tuple(map(target.for_cluster, cause.to_do))) for cause in diagnosis.causes),
    )


MIN_WIDTH: Final = 20
"""The minimum width in columns; lines on a narrower terminal are this long."""


def render(diagnosis: Diagnosis, width: int = 80) -> list[str]:
    """Return the lines: the state of the job, each cause with evidence and advice, then what could not be read.

    Text is wrapped at `width` columns. A command is never wrapped, since users copy it; it has a line of its own.
    """
    width = max(width, MIN_WIDTH)
    lines = _wrap(diagnosis.state_line, width, "", "  ")
    for accelerator in diagnosis.accelerators:
        lines += _wrap(f"Ended pods held {accelerator}", width, "", "  ")
    if not diagnosis.causes:
        lines += _wrap("Nothing wrong was found.", width, "", "  ")
    for number, cause in enumerate(diagnosis.causes, 1):
        lines += ["", *_of_cause(cause, number, width)]
    if diagnosis.unseen:
        lines += ["", *_wrap(diagnosis.unseen, width, "", "  ")]
    return lines


def _of_cause(cause: Cause, number: int, width: int) -> Iterator[str]:
    mark = f"{number}. "
    yield from _wrap(f"{cause.title} [{cause.severity}: {cause.id}]", width, mark, " " * len(mark))
    for proof in cause.evidence:
        yield from _wrap(proof, width, "   - ", "     ")
    for line in cause.to_do:
        prose, command, rest = line.partition("kubectl ")
        if prose:
            yield from _wrap(prose, width, "   > ", "     ")
        if command:
            yield f"{'     ' if prose else '   > '}{command}{rest}"


def _wrap(text: str, width: int, first: str, rest: str) -> list[str]:
    lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return [line.rstrip() for line in lines] or [first.rstrip()]
