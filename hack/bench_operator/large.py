"""Subject `large`: one job of 500 workers, against the ceiling for the same 1,000 objects."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from hack.audit import AuditLog
from hack.bench.bench import Bench
from hack.bench.measure import interleaved, ratio
from hack.bench.result import Result, at_most
from hack.bench_operator.field import AGENT, Field
from hack.bench_operator.jobs import child_requests, delete_requests, job_requests, ps_and_workers

ROUNDS: Final = 3
WORKERS: Final = 500
SETTLE_S: Final = 5.0
"""Longer than the events of the children take, and than the operator waits to write changed counters of a status together."""


def measure(bench: Bench) -> list[Result]:
    """Compare one job of 500 workers with the raw load of the same 1,000 objects, without and with the operator watching."""
    spec = ps_and_workers(WORKERS, servers=0)
    bench.say(f"a job of {WORKERS} workers against the raw ceiling, {ROUNDS} times")
    with tempfile.TemporaryDirectory(prefix="tfjob-bench-") as folder:
        audit = AuditLog(Path(folder))
        with Field("bench-operator", ["raw", "large"], audit.flags) as field:

            def raw() -> float:
                seconds = field.send(child_requests(field.target, "raw", ["large"], spec))
                field.send(delete_requests(field.target, "raw", ["large"], spec))
                return seconds

            def watched() -> float:
                with field.operator():
                    return raw()

            def ours() -> float:
                with field.operator():
                    began = time.perf_counter()
                    field.send(job_requests(field.target, "large", ["large"], spec))
                    seconds = field.until(lambda: field.children("large") == 2 * WORKERS, "all children exist") - began
                    time.sleep(SETTLE_S)
                field.send(delete_requests(field.target, "large", ["large"], spec))
                return seconds

            raw()  # the first objects of a server cost more than the others
            seconds = interleaved({"raw": raw, "watched": watched, "ours": ours}, ROUNDS)
        calls = sum(audit.calls(AGENT, "large").values())
    return [
        Result("large_job_1000_objects", median(seconds["ours"]), "s"),
        Result("large_job_vs_ceiling", ratio(seconds["ours"], seconds["raw"]), "x"),
        Result("large_job_vs_watched_ceiling", ratio(seconds["ours"], seconds["watched"]), "x"),
        Result("large_job_calls_a_replica", calls / ROUNDS / WORKERS, "calls", at_most(2.2)),
    ]
