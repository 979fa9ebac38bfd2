"""Run the commands of a build: with output into a log, regular signs of life for a waiting person, no child left behind.

A command runs in a session of its own, so that everything that it started can be ended by one signal to its group
when the build is interrupted.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hack.control_plane.errors import ControlPlaneError, log_tail
from hack.control_plane.progress import Progress

HEARTBEAT_S = 20.0  # a person who sees nothing for half a minute believes that it hangs
KILL_WAIT_S = 10.0


class LoggedRunner:
    """Runs commands; invariant: when `run` returns or raises, or the block of `beside` is left, its command's group is gone."""

    def __init__(self, log: Path, progress: Progress) -> None:
        self._log = log
        self._progress = progress

    def run(
        self,
        *command: str,
        limit_s: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Run a command to its end. Raises ControlPlaneError, with the log's tail, if it fails or is not done in `limit_s`."""
        with self.beside(*command, limit_s=limit_s, cwd=cwd, env=env):
            pass

    @contextlib.contextmanager
    def beside(
        self,
        *command: str,
        limit_s: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Iterator[None]:
        """Run a command while the block runs, then wait up to `limit_s` for its end. Raises as `run` does."""
        with self._log.open("a") as log:
            log.write(f"\n$ {' '.join(command)}\n")
            log.flush()
            try:
                process = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env={**os.environ, **(env or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise ControlPlaneError(f"cannot run {command[0]}: {error}") from error
        try:
            yield
            code = self._wait(process, command, limit_s)
        finally:
            _end_group(process)
        if code != 0:
            raise ControlPlaneError(f"`{_short(command)}` failed with code {code}; {log_tail(self._log)}")

    def _wait(self, process: subprocess.Popen[bytes], command: Sequence[str], limit_s: float) -> int:
        waited = 0.0
        while True:
            try:
                return process.wait(timeout=HEARTBEAT_S)
            except subprocess.TimeoutExpired:
                waited += HEARTBEAT_S
            if waited >= limit_s:
                raise ControlPlaneError(f"`{_short(command)}` took more than {limit_s:.0f} s; {log_tail(self._log)}")
            self._progress.say(f"  still at it: {self._last_line()}")

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return next((line.strip()[:100] for line in reversed(lines) if line.strip()), "...")


def output_of(*command: str, limit_s: float = 60.0, env: Mapping[str, str] | None = None) -> str:
    """Run a short command; return its stdout. Raises ControlPlaneError, with its stderr, if it fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=limit_s,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ControlPlaneError(f"`{_short(command)}` did not run: {error}") from error
    if done.returncode != 0:
        raise ControlPlaneError(
            f"`{_short(command)}` failed with code {done.returncode}: {done.stderr.strip()[-2000:]}"
        )
    return done.stdout


def _short(command: Sequence[str]) -> str:
    # Settings (`-o Key=value`) fill lines and explain nothing; the log has them.
    words = [word for before, word in zip(("", *command), command, strict=False) if "-o" not in {before, word}]
    text = " ".join(words)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=KILL_WAIT_S)
