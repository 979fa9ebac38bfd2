"""One started part of a control plane: a process that dies with the process that started it.

The kernel kills a part when its parent thread ends (PR_SET_PDEATHSIG), however that ends. So parts must be started by the
main thread of a process that lives as long as they are needed; the keeper is that process and has no other thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hack.control_plane.errors import ControlPlaneError, log_tail

PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>
GARBAGE_PERCENT = "300"
"""Go's GOGC for the parts, unless the caller's environment says otherwise. There is enough memory, but tests and measurements
are limited by the cores; at the default of 100, kube-apiserver spends a tenth of its CPU time on garbage collection."""
KILL_WAIT_S = 10.0  # the kernel ends a killed process at once, unless the disk hangs

_libc = ctypes.CDLL(None, use_errno=True)  # looked up before any fork, where loading a library is not safe


class PartDiedError(ControlPlaneError):
    """A part ended that should still run; the message contains the end of its log."""


class PortTakenError(PartDiedError):
    """A part ended because somebody else took its port between our choice and its start."""


class Part:
    """A program of the control plane with its log; invariant: at most one process of it runs at a time."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the last start, 0 if there was none."""
        return self._process.pid if self._process else 0

    def start(self, command: Sequence[str], cwd: Path) -> None:
        """Start the program; its output is added to the log."""
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died between the fork and the line above
                os._exit(1)

        with self.log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env={"GOGC": GARBAGE_PERCENT, **os.environ},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    preexec_fn=die_with_parent,  # noqa: PLW1509 - safe here: the keeper has one thread
                )
            except OSError as error:
                raise ControlPlaneError(f"cannot start {command[0]}: {error}") from error

    def exit_code(self) -> int | None:
        """Return how the process ended, None while it runs."""
        return self._process.poll() if self._process else None

    def check(self) -> None:
        """Raise PartDiedError, or PortTakenError, if the process has ended."""
        code = self.exit_code()
        if code is None:
            return
        tail = log_tail(self.log)
        kind = PortTakenError if "address already in use" in tail else PartDiedError
        raise kind(died_message(self.name, code, self.log))

    def end(self) -> None:
        """Ask the process to end (SIGTERM)."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """End the process at once: nothing here is worth saving, and a graceful end waits for every open watch."""
        if self._process is None:
            return
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=KILL_WAIT_S)


def died_message(name: str, code: int, log: Path) -> str:
    """Return a message about a part that ended, with the end of its log."""
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"{name} {how}; {log_tail(log)}"
