"""`kubectl tfjob` as a user of a namespace calls it, a process for each call."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


class Plugin:
    """`kubectl-tfjob`, a process for each call."""

    def __init__(self, kubeconfig: Path, namespace: str, kubectl: Path) -> None:
        """`kubectl` is the program that it calls, whatever this machine has in PATH."""
        path = f"{kubectl.parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}
        self._namespace = namespace

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Run it, in a process that does not outlive the test."""
        target = [] if arguments[0] == "validate" else [f"--namespace={self._namespace}"]
        # A shell makes its background jobs ignore SIGINT, and tests that run as one pass that on to their child processes.
        command = ["env", "--default-signal=INT", sys.executable, "-m", "tfjob_operator.cli", *arguments, *target]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=self._environment, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def raw(self, *arguments: str) -> bytes:
        """Return the bytes that it prints; it must succeed."""
        command = [sys.executable, "-m", "tfjob_operator.cli", *arguments, f"--namespace={self._namespace}"]
        done = subprocess.run(command, env=self._environment, capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        assert b"Traceback" not in done.stderr
        return done.stdout

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Run it to its end, and return what it prints."""
        with self.started(*arguments) as process:
            output, errors = process.communicate(timeout=60)
        assert process.returncode == code, f"{output}{errors}"
        return output + errors
