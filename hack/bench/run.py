"""What every benchmark's command does: measure what the command line names, print a table, write a file."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

from hack.bench.child import ROOT, MeasureError
from hack.bench.cluster import LoadError, PodServer
from hack.bench.result import Entry, Result, merged, table
from hack.control_plane import ControlPlaneError

# What a subject gets to work with: a way to print progress, a server if it needs one, a folder for temporary files.


PODS: Final = 10_000
"""As many as a large training cluster has."""


class Bench:
    """One run. Use as a context manager."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.cluster = PodServer(self.say)
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()

    def say(self, text: str) -> None:
        """Print a line with the seconds since the run began."""
        print(f"{time.monotonic() - self._began:6.1f}s  {text}", flush=True)


Subject = Callable[[Bench], list[Result]]
"""Measures one hot path. Raises MeasureError when it cannot."""


def main(prog: str, description: str, file: str, subjects: Mapping[str, Subject]) -> int:
    """Measure, and write the results to build/bench/`file`. Return the exit code.

    It is 0 even if a goal is missed, 1 if something could not be measured, 2 for a wrong command line, 130 if interrupted.
    """
    output = ROOT / "build" / "bench" / file
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("subjects", nargs="*", metavar="subject", help=f"one of: {', '.join(subjects)} (default: all)")
    names: list[str] = parser.parse_args().subjects
    if unknown := set(names) - subjects.keys():
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    before = _on_file(output)
    try:
        results, complete = _measure({name: subjects[name] for name in subjects if not names or name in names})
    except KeyboardInterrupt:
        print("\ninterrupted; everything that ran has been stopped", file=sys.stderr)
        return 130
    entries = [result.entry() for result in results]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(merged(before, entries) if names else entries, indent=2) + "\n")
    print(f"\n{table(results, {entry['name']: entry['value'] for entry in before})}\n\nwritten to {output}")
    return 0 if complete else 1


def _measure(subjects: Mapping[str, Subject]) -> tuple[list[Result], bool]:
    """Measure these subjects; return the results, and whether all could be measured. One that fails lacks only its lines."""
    results: list[Result] = []
    complete = True
    with tempfile.TemporaryDirectory(prefix="tfjob-bench-") as scratch, Bench(Path(scratch)) as bench:
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        if load > cores / 4:
            bench.say(
                f"other programs are busy here (load {load:.1f} on {cores} cores): clients that need little CPU gain less"
            )
        for name, measure in subjects.items():
            try:
                results += measure(bench)
            except (MeasureError, LoadError, ControlPlaneError, OSError, subprocess.CalledProcessError) as error:
                complete = False
                print(f"{name} could not be measured: {error}", file=sys.stderr)
    return results, complete


def _on_file(output: Path) -> list[Entry]:
    try:
        entries: list[Entry] = json.loads(output.read_text())
    except (OSError, ValueError):
        return []
    return entries
