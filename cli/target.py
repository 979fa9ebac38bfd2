"""Which cluster, user and namespace a command is for, and the way there."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfjob_operator.cli.kubeconfig import Access
    from tfjob_operator.cli.session import Session


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster, user and namespace: a field for each global option, None or empty where it was not given."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    cluster: str | None = None
    user: str | None = None
    server: str | None = None
    token: str | None = None
    as_: str | None = None
    as_group: tuple[str, ...] = ()
    as_uid: str | None = None
    certificate_authority: str | None = None
    insecure_skip_tls_verify: bool = False
    request_timeout: float | None = None

    def flags(self) -> list[str]:
        """Return the options for kubectl."""
        given = {f"--{each.name.rstrip('_').replace('_', '-')}": getattr(self, each.name) for each in fields(self)}
        given["--request-timeout"] = None if self.request_timeout is None else f"{self.request_timeout:g}s"
        return [
            f"{flag}={str(value).lower() if value is True else value}"
            for flag, values in given.items()
            for value in (values if isinstance(values, tuple) else (values,) if values else ())
        ]

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
