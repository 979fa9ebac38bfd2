"""Which cluster, user and namespace a command is for, and the way there."""

from __future__ import annotations

from dataclasses import dataclass
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
