"""`python -m hack.bench [subject ...]`: measure the hot paths, print a table, write build/bench/machinery.json.

Without arguments everything is measured, in about five minutes. Named subjects replace only their own lines in the file.
"""

from __future__ import annotations

import sys
from typing import Final

from hack.bench import client, creates, deciding, decoding, plugin, queues, startup, sync, watching
from hack.bench.bench import Subject
from hack.bench.run import main

SUBJECTS: Final[dict[str, Subject]] = {
    "workqueue": queues.measure,
    "plan": deciding.measure_planning,
    "events": deciding.measure_events,
    "client": client.measure,
    "creates": creates.measure,
    "sync": sync.measure,
    "watch": watching.measure,
    "decode": decoding.measure_decoding,
    "store": decoding.measure_store,
    "startup": startup.measure,
    "plugin": plugin.measure,
}
"""In the order of measuring: first what needs no server."""

if __name__ == "__main__":
    sys.exit(main("python -m hack.bench", "Measures the hot paths.", "machinery.json", SUBJECTS))
