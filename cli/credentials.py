"""A user's credentials, shared by all connections of a command: a credential plugin runs once, not for each."""

from __future__ import annotations

import base64
import json
import os
import ssl
import sys
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tfjob_operator.cli.errors import CliError

if TYPE_CHECKING:
    from tfjob_operator.cli.kubeconfig import Access


class Shown(NamedTuple):
    """The Authorization header and the TLS context; None where there is none."""

    header: str | None
    context: ssl.SSLContext | None


class Credentials:
    """The credentials of one kubeconfig's user, made when they are first needed."""

    def __init__(self, access: Access, *, tls: bool) -> None:
        self._access = access
        self._tls = tls
        self._lock = Lock()
        self._shown: Shown | None = None

    def get(self) -> Shown:
        """Return the credentials. Raises CliError for certificates that can not be used, and when a credential plugin fails."""
        with self._lock:
            if self._shown is None:
                self._shown = self._make()
            return self._shown

    def renew(self, refused: Shown) -> bool:
        """Return whether `get` may now return others than the refused ones: a plugin's tokens expire within minutes."""
        with self._lock:
            if self._access.command is None:
                return False
            if self._shown is refused:
                self._shown = None  # else another connection has renewed them already
            return True

    def _make(self) -> Shown:
        access = self._access
        certificate, key = access.certificate, access.key
        header = f"Bearer {access.token.strip()}" if access.token else None
        if access.basic is not None:
            header = f"Basic {base64.b64encode(':'.join(access.basic).encode()).decode()}"
        if access.command is not None:
            status = run_plugin(access.command, access.cluster)
            header = f"Bearer {status['token'].strip()}" if status.get("token") else header
            certificate = status.get("clientCertificateData") or certificate
            key = status.get("clientKeyData") or key
        if header is not None and not (header.isascii() and header.isprintable()):
            raise CliError("the token contains characters that are not allowed in a header, such as a line break")
        return Shown(header, _context(access, certificate, key) if self._tls else None)


def _context(access: Access, certificate: str | None, key: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=access.authority)
        # Python 3.13 requires of a CA what many made by kubeadm lack, and what no other client requires.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not access.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate and key:
            _load(context, certificate, key)
    except (ssl.SSLError, ValueError) as error:
        raise CliError(f"invalid certificate or key in the kubeconfig: {error}") from error
    return context


def _load(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a client certificate. OpenSSL reads only files: this one is in memory where the system allows it, else private."""
    both = f"{certificate}\n{key}\n".encode()
    no_password = ""  # an encrypted key makes it fail, instead of asking on the terminal
    if hasattr(os, "memfd_create"):
        memory = os.memfd_create("kubectl-tfjob")
        try:
            os.write(memory, both)
            context.load_cert_chain(f"/proc/self/fd/{memory}", password=no_password)
        finally:
            os.close(memory)
        return
    from pathlib import Path
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="kubectl-tfjob-") as private:
        file = Path(private, "both")
        file.write_bytes(both)
        context.load_cert_chain(file, password=no_password)


_EXTENSION: Final = "client.authentication.k8s.io/exec"


def run_plugin(entry: Mapping[str, Any], cluster: Mapping[str, Any]) -> Mapping[str, str]:
    """Run the plugin of `entry`, which may prompt, and return the `status` that it prints. Raises CliError."""
    import subprocess

    version = str(entry.get("apiVersion", ""))
    interactive = sys.stdin.isatty() and entry.get("interactiveMode") != "Never"
    spec: dict[str, Any] = {"interactive": interactive}
    if entry.get("provideClusterInfo"):
        extensions = {each["name"]: each["extension"] for each in cluster.get("extensions") or ()}
        config = {"config": extensions[_EXTENSION]} if _EXTENSION in extensions else {}
        spec["cluster"] = {name: value for name, value in cluster.items() if name != "extensions"} | config
    told = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    given = {str(each["name"]): str(each["value"]) for each in entry.get("env") or ()}
    command = [str(entry.get("command", "")), *map(str, entry.get("args") or ())]
    try:
        done = subprocess.run(  # noqa: S603 - whoever wrote the kubeconfig may have it run what he likes
            command,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(told)},
            check=False,
        )
    except OSError as error:
        hint = entry.get("installHint")
        raise CliError(
            f"cannot run the credential plugin {command[0]}: {error.strerror}{f'. {hint}' if hint else ''}"
        ) from error
    if done.returncode:
        raise CliError(f"credential plugin {command[0]} failed with exit code {done.returncode}")
    try:
        credential = json.loads(done.stdout)
        about = credential["apiVersion"], credential["kind"]
        status: Mapping[str, str] = credential["status"]
    except (ValueError, KeyError, TypeError):
        about, status = ("", ""), {}
    if about != (version, "ExecCredential"):
        raise CliError(f"credential plugin {command[0]} did not print an ExecCredential of {version}")
    return status
