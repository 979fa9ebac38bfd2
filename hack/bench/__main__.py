"""`python -m hack.bench [subject ...]`: measure the hot paths, print a table, write build/bench/machinery.json.

Without arguments everything is measured, in less than five minutes; of some subjects only their lines in the file are
replaced. Exit codes: 0 also where a goal is missed, 1 when something could not be measured, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hack.bench import creates, deciding, decoding, queues, startup, sync, watching
from hack.bench.bench import Bench, Subject
from hack.bench.child import ROOT, MeasureError
from hack.bench.raw_load import LoadError
from hack.bench.result import Entry, Result, merged, table
from hack.control_plane import ControlPlaneError

if TYPE_CHECKING:
    from collections.abc import Sequence

OUTPUT: Final = ROOT / "build" / "bench" / "machinery.json"
SUBJECTS: Final[dict[str, Subject]] = {
    "workqueue": queues.measure,
    "plan": deciding.measure_planning,
    "events": deciding.measure_events,
    "creates": creates.measure,
    "sync": sync.measure,
    "watch": watching.measure,
    "decode": decoding.measure_decoding,
    "store": decoding.measure_store,
    "startup": startup.measure,
}
"""In the order of measuring: first what needs no server, then `creates`, which makes most of the pods that `sync` needs."""


def main() -> int:
    """Measure what the command line names; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.bench", description="Measures the hot paths.")
    parser.add_argument("subjects", nargs="*", metavar="subject", help=f"one of: {', '.join(SUBJECTS)} (default: all)")
    names: list[str] = parser.parse_args().subjects
    if unknown := set(names) - SUBJECTS.keys():
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    before = _on_file()
    try:
        results, complete = _measure([name for name in SUBJECTS if not names or name in names])
    except KeyboardInterrupt:
        print("\ninterrupted; everything that ran has been stopped", file=sys.stderr)
        return 130
    entries = [result.entry() for result in results]
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(merged(before, entries) if names else entries, indent=2) + "\n")
    print(f"\n{table(results, {entry['name']: entry['value'] for entry in before})}\n\nwritten to {OUTPUT}")
    return 0 if complete else 1


def _measure(names: Sequence[str]) -> tuple[list[Result], bool]:
    """Measure these subjects; also says whether all of them could be. One that can not costs only its own lines."""
    results: list[Result] = []
    complete = True
    with tempfile.TemporaryDirectory(prefix="tfjob-bench-") as scratch, Bench(Path(scratch)) as bench:
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        if load > cores / 4:
            bench.say(
                f"other programs are busy here (load {load:.1f} on {cores} cores): clients that need little CPU gain less"
            )
        for name in names:
            try:
                results += SUBJECTS[name](bench)
            except (MeasureError, LoadError, ControlPlaneError, OSError) as error:
                complete = False
                print(f"{name} could not be measured: {error}", file=sys.stderr)
    return results, complete


def _on_file() -> list[Entry]:
    try:
        entries: list[Entry] = json.loads(OUTPUT.read_text())
    except (OSError, ValueError):
        return []
    return entries


if __name__ == "__main__":
    sys.exit(main())
