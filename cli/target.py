"""The cluster, user and namespace of a command, and access to that cluster."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tfjob_operator.api.access import Access
    from tfjob_operator.cli.session import Session

_COMMAND: Final = re.compile(r"\bkubectl (tfjob )?")


@dataclass(frozen=True, slots=True)
class Target:
    """The global options, None or empty if not given. They override the kubeconfig."""

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
        """Return the equivalent kubectl options."""
        given = {f"--{field.name.rstrip('_').replace('_', '-')}": getattr(self, field.name) for field in fields(self)}
        given["--request-timeout"] = None if self.request_timeout is None else f"{self.request_timeout:g}s"
        return [
            f"{flag}={str(value).lower() if value is True else value}"
            for flag, values in given.items()
            for value in (values if isinstance(values, tuple) else (values,) if values else ())
        ]

    @property
    def shown(self) -> str:
        """The options that select the cluster and the user, for a shell. The token, a secret, is left to the user."""
        return shlex.join(replace(self, namespace=None, request_timeout=None, token=self.token and "TOKEN").flags())

    def for_cluster(self, line: str) -> str:
        """Return a line whose kubectl commands are for this cluster and user."""
        flags = self.shown
        return _COMMAND.sub(lambda found: f"{found[0]}{flags} ", line) if flags else line

    def command(self, namespace: str | None, *words: str) -> str:
        """Return a kubectl command to print, for this cluster and user; `words` are quoted for a shell."""
        within = ("-n", namespace) if namespace else ()
        return self.for_cluster(
            shlex.join(("kubectl", *words, *within) if words[0] == "tfjob" else ("kubectl", *within, *words))
        )

    def access(self, namespace: str | None = None) -> Access:
        """Return the access to the cluster, for `namespace` if given. A pod without kubeconfig uses its own service account.

        Raises CliError.
        """
        from tfjob_operator.api.access import AccessError, access_of_pod, in_pod
        from tfjob_operator.api.kubeconfig import read_kubeconfig
        from tfjob_operator.cli.errors import CliError

        cluster = {
            "server": self.server,
            "certificate-authority": self.certificate_authority,
            "insecure-skip-tls-verify": self.insecure_skip_tls_verify,
        }
        user = {"token": self.token, "as": self.as_, "as-uid": self.as_uid, "as-groups": self.as_group}
        try:
            kubeconfig = read_kubeconfig(
                self.kubeconfig,
                names={"context": self.context, "cluster": self.cluster, "user": self.user},
                cluster={name: value for name, value in cluster.items() if value},
                user={name: value for name, value in user.items() if value},
            )
            if kubeconfig is None and not in_pod():
                raise CliError("no cluster configured: set KUBECONFIG or pass --kubeconfig")
            access = access_of_pod() if kubeconfig is None else kubeconfig.access()
            access.route()  # report an invalid address now, not in the middle of a command
        except AccessError as error:
            raise CliError(error.message) from error
        limit_s = access.timeout_s if self.request_timeout is None else self.request_timeout or None
        return replace(access, namespace=namespace or self.namespace or access.namespace, timeout_s=limit_s)

    def session(self) -> Session:
        """Open a session with this access. Raises CliError."""
        from tfjob_operator.cli.session import Session

        return Session(self.access())


def kubectl(target: Target, namespace: str | None, verb: str, *arguments: str) -> list[str]:
    """Return a kubectl command line for the same cluster and user. Raises CliError if kubectl is not installed."""
    from shutil import which

    from tfjob_operator.cli.errors import CliError

    program = which("kubectl")
    if program is None:
        raise CliError(f"kubectl not found in PATH: {verb} requires it")
    return [program, *replace(target, namespace=namespace).flags(), verb, *arguments]
