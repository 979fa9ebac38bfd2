"""kubectl itself, for what it does well: the streams of exec and port-forward. It is there, since this is its plugin."""

from __future__ import annotations

from dataclasses import replace
from shutil import which
from typing import TYPE_CHECKING

from tfjob_operator.cli.errors import CliError

if TYPE_CHECKING:
    from tfjob_operator.cli.target import Target


def kubectl(target: Target, namespace: str | None, verb: str, *arguments: str) -> list[str]:
    """Return the command line of kubectl for the same cluster and user. Raises CliError when there is no kubectl."""
    program = which("kubectl")
    if program is None:
        raise CliError(f"kubectl not found in PATH: {verb} requires it")
    return [program, *replace(target, namespace=namespace).flags(), verb, *arguments]
