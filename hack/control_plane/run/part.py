"""One process of a control plane, and small HTTPS requests to it.

The kernel kills the process (PR_SET_PDEATHSIG) when the thread that started it is gone, whatever the reason. Therefore one
thread, which lives as long as this Python process, starts all the parts.
"""

import contextlib
import http.client
import os
import ssl
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from hack.control_plane.build.commands import ControlPlaneError, log_tail
from hack.control_plane.run.pki import Credential

GARBAGE_PERCENT: Final = "300"
"""Go's GOGC for the parts, unless the caller's environment sets it. Tests and measurements are limited by CPU, not by memory;
at the default of 100, kube-apiserver spends a tenth of its CPU time on garbage collection."""
KILL_WAIT_S: Final = 10.0  # a killed process ends at once, unless the disk hangs
NO_RESPONSE: Final = 0
_STARTER: Final = ThreadPoolExecutor(1, "starter")


class PortTakenError(ControlPlaneError):
    """A part exited because another process took its port between the choice of the port and the start."""


class Part:
    """A program with its log; invariant: at most one process of it runs."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process ID of the last start, 0 if it was never started."""
        return self._process.pid if self._process else 0

    def start(self, command: Sequence[str], cwd: Path) -> None:
        """Start the program; its output is added to the log."""
        with self.log.open("ab") as log:
            started = _STARTER.submit(
                subprocess.Popen,
                ["setpriv", "--pdeathsig=KILL", "--", *command],
                cwd=cwd,
                env={"GOGC": GARBAGE_PERCENT, **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C at the terminal must not reach the part, which is stopped afterwards
            )
            self._process = started.result()

    def exit_code(self) -> int | None:
        """Return the exit code of the process, None while it runs."""
        return self._process.poll() if self._process else None

    def complaint(self) -> str:
        """Return a message about a process that has exited, with the end of its log; "" while it runs."""
        code = self.exit_code()
        if code is None:
            return ""
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return f"{self.name} {how}; {log_tail(self.log)}"

    def check(self) -> None:
        """Raise an error if the process has exited: PortTakenError if its port was taken, else ControlPlaneError."""
        if complaint := self.complaint():
            raise (PortTakenError if "address already in use" in complaint else ControlPlaneError)(complaint)

    def end(self, limit_s: float) -> int | None:
        """Send SIGTERM, and kill the process after `limit_s`; return its exit code."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(limit_s)
            self.kill()
        return self.exit_code()

    def kill(self) -> None:
        """Kill the process: there is nothing to save, and a graceful exit waits for every open watch."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=KILL_WAIT_S)


class Requester:
    """Sends requests to the servers of one control plane on loopback with one client certificate."""

    def __init__(self, authority: Path, credential: Credential, timeout_s: float = 5.0) -> None:
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(credential.certificate, credential.key)
        self._timeout = timeout_s

    def connect(self, port: int) -> http.client.HTTPSConnection:
        """Return a connection for many requests. The first request opens it; the caller closes it."""
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=self._timeout, context=self._context)

    def ask(self, method: str, port: int, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return the status and the body of a response; the status is 0 if the server does not respond."""
        with contextlib.closing(self.connect(port)) as connection:
            try:
                connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
                answer = connection.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException):
                return NO_RESPONSE, b""
