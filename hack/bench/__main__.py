"""`python -m hack.bench [operator|scale|page|by-hand] [subject ...]`: measure, print the results, write build/bench/*.json.

Without a suite it measures the hot paths (machinery.json), in about five minutes. The exit code is 0 even if a goal is missed.
"""

import argparse
import json
import os
import sys
from typing import Final

from hack.bench import by_hand, creates, informers, operator, page, programs, pure, scale
from hack.bench.measuring import Bench, Result, Subject
from hack.matrix.cluster import ROOT

SUITES: Final[dict[str, dict[str, Subject]]] = {
    "machinery": {  # subjects that need no server come first
        "workqueue": pure.measure_queue,
        "plan": pure.measure_planning,
        "events": pure.measure_events,
        "scrape": pure.measure_scrape,
        "creates": creates.measure_creates,
        "sync": informers.measure_sync,
        "watch": informers.measure_watch,
        "plugin": programs.measure_plugin,
    },
    "operator": {
        "storm": operator.measure_storm,
        "idle": operator.measure_idle,
        "workers": operator.measure_workers,
        "restart": operator.measure_restart,
    },
    "scale": {"replicas": scale.measure},
    "by-hand": {"start": by_hand.measure_starts, "http": by_hand.measure_http},
    "page": {"viewers": page.measure},
}


def main() -> None:
    """Measure what the command line names."""
    suite = sys.argv.pop(1) if set(sys.argv[1:2]) & SUITES.keys() else "machinery"
    subjects = SUITES[suite]
    parser = argparse.ArgumentParser(prog=f"python -m hack.bench {suite}")
    parser.add_argument("subjects", nargs="*", metavar="subject", help=f"one of: {', '.join(subjects)} (default: all)")
    names: list[str] = parser.parse_args().subjects
    if unknown := set(names) - subjects.keys():
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    results: list[Result] = []
    with Bench() as bench:
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        if load > cores / 4:
            bench.say(
                f"other programs are busy (load {load:.1f}, {cores} cores): clients that need little CPU gain less"
            )
        for name in names or subjects:
            found = subjects[name](bench)
            print(*found, sep="\n", flush=True)
            results += found
    output = ROOT / "build" / "bench" / f"{suite}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps([each._asdict() | {"met": each.met} for each in results], indent=2) + "\n")
    print(f"written to {output}")


if __name__ == "__main__":
    main()
