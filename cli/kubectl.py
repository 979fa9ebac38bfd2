"""kubectl itself, for what it does well: the streams of exec and port-forward. It is there, since this is its plugin."""

from __future__ import annotations

from shutil import which
from typing import TYPE_CHECKING

from tfjob_operator.cli.errors import CliError

if TYPE_CHECKING:
    from tfjob_operator.cli.options import Target


def kubectl(target: Target, namespace: str, verb: str, *arguments: str) -> list[str]:
    """Return the command line of kubectl for the same cluster and user. Raises CliError when there is no kubectl."""
    program = which("kubectl")
    if program is None:
        raise CliError(f"there is no kubectl in the PATH, which does the work of {verb}: install it")
    options = [f"--namespace={namespace}"]
    options += [f"--kubeconfig={target.kubeconfig}"] if target.kubeconfig else []
    options += [f"--context={target.context}"] if target.context else []
    return [program, *options, verb, *arguments]
