"""Lines for a person who waits: each names the step and the time since the work began.

Output goes to stderr, so that stdout stays free for what a command returns (`env` is evaluated by a shell).
"""

from __future__ import annotations

import sys
import time


class Progress:
    """Prints steps with the time since the object was made; not shared between threads."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._start = time.monotonic()

    def elapsed(self) -> float:
        """Return the seconds since the work began."""
        return time.monotonic() - self._start

    def say(self, line: str) -> None:
        """Print one line for a person."""
        print(f"[{self._what} {self.elapsed():4.0f}s] {line}", file=sys.stderr, flush=True)
