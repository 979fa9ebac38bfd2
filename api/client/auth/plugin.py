"""A credential plugin as a process, which is killed if it hangs.

The `kubernetes` package reads what the kubeconfig says of a plugin, and could run it too; but it would wait for it for
ever.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tfjob_operator.api.client.http.errors import CredentialsError

if TYPE_CHECKING:
    from collections.abc import Mapping

PLUGIN_LIMIT_S: Final = 45.0
"""How long a plugin may take. Less than `READ_LIMIT_S`, so that requests that wait report its failure."""

_EXTENSION: Final = "client.authentication.k8s.io/exec"
"""The extension of a kubeconfig's cluster entry that is meant for plugins."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin as a kubeconfig describes it. `cluster` is the kubeconfig's cluster entry, if the plugin asks for it."""

    command: tuple[str, ...]
    api_version: str
    environment: Mapping[str, str] = field(repr=False)
    folder: str | None = None
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)
    limit_s: float = PLUGIN_LIMIT_S

    def __call__(self) -> Mapping[str, str]:
        """Run it and return the `status` of its ExecCredential. Blocks, for `limit_s` at most.

        Raises CredentialsError when it fails or does not end, OSError when it cannot be started, and whatever the parsing
        of its output raises. What it writes to standard error is dropped, since it may contain anything, unless we run in a
        terminal: there somebody may be asked to log in.
        """
        output = self._run(interactive=sys.stdout is not None and sys.stdout.isatty())
        response = json.loads(output)
        if (response["apiVersion"], response["kind"]) != (self.api_version, "ExecCredential"):
            raise ValueError("not an ExecCredential of the version that was asked for")
        status: Mapping[str, str] = response["status"]
        return status

    def _run(self, *, interactive: bool) -> bytes:
        told = {"KUBERNETES_EXEC_INFO": json.dumps(self._info(interactive=interactive))}
        elsewhere = None if interactive else subprocess.DEVNULL
        # The session makes it the first of a group, so that it can be ended with all that it has started.
        process = subprocess.Popen(  # noqa: S603 - whoever wrote the kubeconfig may have it run what he likes
            self.command,
            stdin=elsewhere,
            stdout=subprocess.PIPE,
            stderr=elsewhere,
            cwd=self.folder,
            env={**self.environment, **told},
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=self.limit_s)
        except subprocess.TimeoutExpired:
            raise CredentialsError(f"it has not ended within {self.limit_s:g} s, and was killed") from None
        finally:
            if process.returncode is None:
                _kill(process)
        if process.returncode:
            raise CredentialsError(f"process returned {process.returncode}")
        return output

    def _info(self, *, interactive: bool) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": interactive}
        if self.cluster is not None:
            extensions = self.cluster.get("extensions") or ()
            configured = {each["name"]: each["extension"] for each in extensions}
            config = {"config": configured[_EXTENSION]} if _EXTENSION in configured else {}
            spec["cluster"] = {**self.cluster, **config}
        return {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that still runs, and its group. What has left the group may keep the pipe open; nobody reads from it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    process.wait()
