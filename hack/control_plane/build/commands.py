"""Runs programs, with a log, progress for people, and error messages."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

# The error of the local control plane. Its message says what to do, in one line or with the tail of a log.


TAIL_LINES = 15  # enough for the cause of a crash of a Go program, short enough for one screen


class ControlPlaneError(Exception):
    """An error for people: the message says what failed and what to do, and no traceback is printed."""


def log_tail(log: Path, lines: int = TAIL_LINES) -> str:
    """Return the path of a log, then its last lines, or a message that the log does not exist."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return f"(no log at {log})"
    tail = [f"    {line[:400]}" for line in text.splitlines()[-lines:]]
    return "\n".join([f"end of {log}:", *(tail or ["    (empty)"])])


# Progress for people: each line has the step and the time since the start.
#
# Output goes to stderr, because stdout is for the result of a command (a shell evaluates that of `env`).


class Progress:
    """Prints steps with the time since its creation; not thread-safe."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._start = time.monotonic()

    def elapsed(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._start

    def say(self, line: str) -> None:
        """Print one line."""
        print(f"[{self._what} {self.elapsed():4.0f}s] {line}", file=sys.stderr, flush=True)


HEARTBEAT_S = 20.0  # without output for half a minute it would seem to hang
KILL_WAIT_S = 10.0


class LoggedRunner:
    """Runs commands; invariant: when `run` returns or raises, the process group of the command is gone."""

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
        """Run a command. Raises ControlPlaneError, with the log's tail, if it fails or takes longer than `limit_s`."""
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
            self._progress.say(f"  still running: {self._last_line()}")

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
    # Settings (`-o Key=value`) are omitted; the log has them.
    words = [word for before, word in zip(("", *command), command, strict=False) if "-o" not in {before, word}]
    text = " ".join(words)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=KILL_WAIT_S)
