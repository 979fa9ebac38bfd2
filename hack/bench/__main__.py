"""`python -m hack.bench [operator|scale|page] [subject ...]`: measure, print a table, write build/bench/*.json.

Without a suite it measures the hot paths (machinery.json), in about five minutes. Named subjects replace only their own lines
in the file.
"""

from __future__ import annotations

import sys
from typing import Final

from hack.bench import creates, informers, operator, page, programs, pure, scale
from hack.bench.run import Subject, main

SUITES: Final[dict[str, tuple[str, dict[str, Subject]]]] = {
    "machinery": (
        "Measures the hot paths.",
        {  # first what needs no server
            "workqueue": pure.measure_queue,
            "plan": pure.measure_planning,
            "events": pure.measure_events,
            "scrape": pure.measure_scrape,
            "creates": creates.measure_creates,
            "sync": informers.measure_sync,
            "watch": informers.measure_watch,
            "startup": programs.measure_startup,
            "plugin": programs.measure_plugin,
        },
    ),
    "operator": (
        "Measures the whole operator.",
        {
            "storm": operator.measure_storm,
            "idle": operator.measure_idle,
            "workers": operator.measure_workers,
        },
    ),
    "scale": (
        "Measures the operator in a large cluster.",
        {"replicas": scale.measure_replicas, "shared": scale.measure_shared},
    ),
    "page": ("Measures the live page.", {"viewers": page.measure}),
}

if __name__ == "__main__":
    suite = sys.argv.pop(1) if set(sys.argv[1:2]) & SUITES.keys() else "machinery"
    sys.exit(main(f"python -m hack.bench {suite}", SUITES[suite][0], f"{suite}.json", SUITES[suite][1]))
