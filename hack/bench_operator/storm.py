"""Subject `storm`: two hundred jobs at once, against the ceiling of the same server for the same 2,000 objects."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Final

from hack.bench.measure import interleaved, ratio
from hack.bench.result import Result, at_most
from hack.bench_operator.field import Field
from hack.bench_operator.jobs import child_requests, delete_requests, job_requests, ps_and_workers

if TYPE_CHECKING:
    from hack.bench.bench import Bench

JOBS: Final = 200
ROUNDS: Final = 7
SETTLE_S: Final = 8.0
"""Longer than 2,200 events take, and than the operator waits to write changed counters of a status together."""
CHILDREN: Final = JOBS * 5 * 2


def measure(bench: Bench) -> list[Result]:
    """Create two hundred jobs at once, and the same 2,000 objects by the raw load generator, in turns on the same server."""
    spec = ps_and_workers()
    names = [f"storm-{number}" for number in range(JOBS)]
    with Field("bench-operator", ["raw", "storm"]) as field:

        def raw() -> float:
            seconds = field.send(child_requests(field.target, "raw", names, spec))
            field.send(delete_requests(field.target, "raw", names, spec))
            return seconds

        def ours() -> dict[str, float]:
            with field.operator() as operator:
                idle = operator.cpu_s()
                began = time.perf_counter()
                field.send(job_requests(field.target, "storm", names, spec))
                seconds = field.until(lambda: field.children("storm") == CHILDREN, "all children exist") - began
                busy = operator.cpu_s() - idle
                time.sleep(SETTLE_S)
                used = {"seconds": seconds, "cpu": busy, "all_cpu": operator.cpu_s() - idle, "peak": operator.peak_mb()}
            field.plane.run_kubectl("delete", "tfjobs", "--all", "--namespace=storm", "--wait=false")
            field.send(delete_requests(field.target, "storm", names, spec))
            return used

        bench.say(f"{JOBS} jobs at once against the raw ceiling, {ROUNDS} times")
        raw()  # the first objects of a server cost more than the others
        seconds: list[float] = []
        rounds: list[dict[str, float]] = []
        interleaved({"raw": lambda: seconds.append(raw()), "ours": lambda: rounds.append(ours())}, ROUNDS)
    return [
        Result("create_vs_ceiling", ratio([r["seconds"] for r in rounds], seconds), "x", at_most(1.8)),
        Result("create_2000_objects", median(r["seconds"] for r in rounds), "s"),
        Result("ceiling_2000_objects", median(seconds), "s"),
        Result("operator_cpu_s", median(r["cpu"] for r in rounds), "s until all exist", at_most(1.2)),
        Result("operator_cpu_with_events_s", median(r["all_cpu"] for r in rounds), "s until all is written"),
        Result("operator_peak_mb", max(r["peak"] for r in rounds), "MB VmHWM", at_most(85)),
    ]
