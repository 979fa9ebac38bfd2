"""Credential plugins (`exec` in a kubeconfig), run as in client-go (`plugin/pkg/client/auth/exec`), with a timeout."""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tfjob_operator.api.access import Access, AccessError, bearer

LIMIT_S: Final = 45.0
"""The timeout of a plugin. Less than `READ_LIMIT_S`, so that waiting requests report its failure."""
LOGIN_LIMIT_S: Final = 600.0
"""The timeout of a plugin that may ask the user to log in, perhaps in a browser. client-go has none."""
LIFE_SHARE: Final = 0.8
"""The share of its credentials' lifetime after which a plugin is run again. It leaves time for a few failed attempts; with
a fixed margin a plugin with short-lived credentials would run for every request."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin as configured in a kubeconfig. `cluster` is passed to it if it asks for cluster information."""

    command: tuple[str, ...]
    api_version: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    mode: str = "IfAvailable"
    hint: str = ""
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)
    limit_s: float = LIMIT_S

    def __call__(self, access: Access, quiet: bool) -> Access:  # noqa: FBT001 - called through a variable
        """Run the plugin and return the access with its credentials. Raises AccessError, which never quotes the output.

        `quiet` discards standard error, which may contain anything, unless the plugin may ask the user to log in.
        """
        output = self._run(quiet)
        try:
            status = self._status(output)
            token, certificate, key = (
                status.get(name) or None for name in ("token", "clientCertificateData", "clientKeyData")
            )
            fresh_s = fresh_s_of(status.get("expirationTimestamp"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise self._error(f"it did not print a valid ExecCredential of {self.api_version}") from None
        if bool(certificate) != bool(key) or not (token or key):
            raise self._error("it returned neither a token nor a client certificate and key")
        header = bearer(str(token), f"the token of credential plugin {self.command[0]}") if token else None
        return replace(access, authorization=header, certificate=certificate, key=key, fresh_s=fresh_s)

    def _status(self, output: bytes) -> Mapping[str, Any]:
        answer = json.loads(output)
        if (answer["apiVersion"], answer["kind"]) != (self.api_version, "ExecCredential"):
            raise ValueError
        status: Mapping[str, Any] = answer["status"]
        return status

    def _error(self, why: str) -> AccessError:
        return AccessError(f"credential plugin {self.command[0]} failed: {why}")

    def _run(self, quiet: bool) -> bytes:  # noqa: FBT001
        import signal
        import subprocess
        from contextlib import suppress

        is_terminal = sys.stdin is not None and sys.stdin.isatty()
        if self.mode == "Always" and not is_terminal:
            raise self._error("standard input is not a terminal, and interactiveMode is Always")
        interactive = is_terminal and self.mode != "Never"
        limit_s = LOGIN_LIMIT_S if interactive else self.limit_s
        try:
            process = subprocess.Popen(  # noqa: S603 - whoever wrote the kubeconfig may have it run what they like
                self.command,
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL if quiet and not interactive else None,
                env={**os.environ, **self.environment, "KUBERNETES_EXEC_INFO": self._info(interactive=interactive)},
                # Its own process group, so that all its child processes can be killed too; a login needs our terminal.
                start_new_session=not interactive,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
            why = error.strerror if isinstance(error, OSError) else "its command line is invalid"
            raise self._error(f"cannot start: {why}{f'. {self.hint}' if self.hint else ''}") from error
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise self._error(f"it did not exit within {limit_s:g}s and was killed") from None
        finally:
            if process.returncode is None:
                # A process that has left the group may keep the pipe open; nobody reads from it.
                with suppress(ProcessLookupError):
                    process.kill() if interactive else os.killpg(process.pid, signal.SIGKILL)
                if process.stdout is not None:
                    process.stdout.close()
                process.wait()
        if process.returncode:
            raise self._error(f"exit code {process.returncode}")
        return output

    def _info(self, *, interactive: bool) -> str:
        spec: dict[str, Any] = {"interactive": interactive}
        if self.cluster is not None:
            spec["cluster"] = dict(self.cluster)
            if file := spec["cluster"].pop("certificate-authority", None):
                data = base64.b64encode(Path(file).read_bytes()).decode()
                spec["cluster"]["certificate-authority-data"] = data
        return json.dumps({"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec})


def fresh_s_of(expires: str | None, now: datetime | None = None) -> float:
    """Return how many seconds credentials are fresh; without an expiry they are fresh until the server rejects them."""
    if not expires:
        return math.inf
    return max(0.0, (datetime.fromisoformat(expires) - (now or datetime.now(UTC))).total_seconds() * LIFE_SHARE)
