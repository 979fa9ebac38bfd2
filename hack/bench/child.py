"""Run each side of a comparison in its own process, so that nothing it imports, allocates or leaves behind affects another.

A side is a context manager `side(arguments)` in a module of this package. What it yields is called once for each `go`, with
that call's arguments, and returns numbers. Both ends exchange JSON lines over stdin and stdout.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Self

ROOT: Final = Path(__file__).parents[2]
LIMIT_S: Final = 120.0  # the slowest side, the official informer on a loaded machine, takes twenty

Arguments = Mapping[str, Any]
Numbers = dict[str, float]
Side = Callable[[Arguments], AbstractContextManager[Callable[[Arguments], Numbers]]]


class MeasureError(Exception):
    """Something could not be measured."""


class Child:
    """A running side. Use as a context manager; leaving it ends the process, whatever that is doing."""

    def __init__(self, side: Side, **arguments: Any) -> None:
        """Prepare for `side(arguments)`."""
        self._name = f"{side.__module__}:{getattr(side, '__name__', '')}"
        self._command = [sys.executable, "-m", "hack.bench.child", self._name, json.dumps(arguments)]
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Start the process, and return when it is ready to measure. Raises MeasureError."""
        with contextlib.ExitStack() as stack:
            self._complaints = stack.enter_context(tempfile.TemporaryFile())
            self._process = stack.enter_context(
                subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints, cwd=ROOT
                )
            )
            stack.callback(self._process.kill)  # some of what runs in there cannot be stopped otherwise
            self._answer()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def go(self, **arguments: Any) -> Numbers:
        """Measure once. Raises MeasureError when the process died or took too long."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it died, and the missing result will tell why
                self._process.stdin.write(json.dumps(arguments).encode() + b"\n")
                self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Numbers:
        limit = threading.Timer(LIMIT_S, self._process.kill)
        limit.start()
        try:
            line = b"" if self._process.stdout is None else self._process.stdout.readline()
        finally:
            limit.cancel()
        if not line:
            self._process.wait()
            self._complaints.seek(0)
            last_words = self._complaints.read()[-4000:].decode(errors="replace").strip()
            raise MeasureError(f"{self._name} died or took over {LIMIT_S:.0f} s:\n{last_words}")
        numbers: Numbers = json.loads(line)
        return numbers


def once(side: Side, **arguments: Any) -> Numbers:
    """Measure once in a fresh process."""
    with Child(side, **arguments) as child:
        return child.go()


def memory() -> Numbers:
    """Return this process's resident memory in MB: `rss` now (VmRSS) and `peak` since the start or `forget_peak` (VmHWM)."""
    return memory_of(os.getpid())


def memory_of(pid: int) -> Numbers:
    """Return the resident memory of any process in MB, like `memory`."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: int(fields[key].split()[0]) / 1024 for name, key in (("rss", "VmRSS"), ("peak", "VmHWM"))}


def forget_peak() -> None:
    """Reset this process's peak (VmHWM) to what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def _main() -> None:
    """Run in the child process: prepare, say so, then measure once for every line on stdin."""
    module, _, name = sys.argv[1].partition(":")
    side: Side = getattr(importlib.import_module(module), name)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anybody prints in here must not look like a result
    with side(json.loads(sys.argv[2])) as measure:
        print("{}", file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(measure(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    _main()
