"""The error that the local control plane raises. Its message says how to go on, in one line or with the tail of a log."""

from __future__ import annotations

from pathlib import Path

TAIL_LINES = 15  # enough for the cause of a crash of a Go program, short enough for one screen


class ControlPlaneError(Exception):
    """Something that a person has to see: the message says what failed and what to do, without a traceback."""


def log_tail(log: Path, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a log, headed by its path, or say that there is none."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return f"(no log at {log})"
    tail = [f"    {line[:400]}" for line in text.splitlines()[-lines:]]
    return "\n".join([f"end of {log}:", *(tail or ["    (empty)"])])
