"""Which cluster, user and namespace a command is for, and the way there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfjob_operator.cli.overrides import Overrides

if TYPE_CHECKING:
    from tfjob_operator.cli.kubeconfig import Access
    from tfjob_operator.cli.session import Session


@dataclass(frozen=True, slots=True)
class Target(Overrides):
    """Which cluster, user and namespace."""

    def access(self) -> Access:
        """Return how to reach the cluster. Raises CliError."""
        from tfjob_operator.cli.kubeconfig import read_access

        return read_access(self.kubeconfig, self.context, self.namespace, self)

    def session(self) -> Session:
        """Open a session there. Raises CliError."""
        from tfjob_operator.cli.session import Session

        return Session(self.access())


def kubectl(target: Target, namespace: str | None, verb: str, *arguments: str) -> list[str]:
    """Return the command line of kubectl for the same cluster and user. Raises CliError when there is no kubectl."""
    from shutil import which

    from tfjob_operator.cli.errors import CliError

    program = which("kubectl")
    if program is None:
        raise CliError(f"kubectl not found in PATH: {verb} requires it")
    return [program, *replace(target, namespace=namespace).flags(), verb, *arguments]
