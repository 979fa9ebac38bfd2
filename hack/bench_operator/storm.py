"""Subject `storm`: two hundred jobs at once, against what the same server takes from the raw load generator.

There are three ceilings: the 2,000 children alone; the same while the operator's caches watch, which costs the server and both
cores something; and the same with the creation of the jobs, each of which costs the server as much as three pods
(docs/design/crd-schema.md). The goals are set against the last: the first two leave no CPU time for any operator.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from statistics import median
from typing import Final

from hack.bench.bench import Bench
from hack.bench.measure import interleaved, ratio
from hack.bench.result import Result, at_most
from hack.bench_operator.field import Field, Process
from hack.bench_operator.jobs import child_requests, delete_requests, job_requests, ps_and_workers

JOBS: Final = 200
ROUNDS: Final = 7
SETTLE_S: Final = 8.0
"""Longer than 2,200 events take, and than the operator waits to write changed counters of a status together."""
CHILDREN: Final = JOBS * 5 * 2


def measure(bench: Bench) -> list[Result]:
    """Create two hundred jobs at once, and the same objects by the raw load generator, in turns on the same server."""
    spec = ps_and_workers()
    names = [f"storm-{number}" for number in range(JOBS)]
    with Field("bench-operator", ["raw", "storm"]) as field:

        def children() -> float:
            seconds = field.send(child_requests(field.target, "raw", names, spec))
            field.send(delete_requests(field.target, "raw", names, spec))
            return seconds

        def watched() -> float:
            with field.operator():
                return children()

        def with_jobs() -> float:
            return field.send(job_requests(field.target, "raw", names, spec)) + children()

        def ours(operator: AbstractContextManager[Process]) -> dict[str, float]:
            with operator as process:
                idle = process.cpu_s()
                began = time.perf_counter()
                field.send(job_requests(field.target, "storm", names, spec))
                seconds = field.until(lambda: field.children("storm") == CHILDREN, "all children exist") - began
                busy = process.cpu_s() - idle
                time.sleep(SETTLE_S)
                used = {"seconds": seconds, "cpu": busy, "all_cpu": process.cpu_s() - idle, "peak": process.peak_mb()}
            field.send(delete_requests(field.target, "storm", names, spec))
            return used

        bench.say(f"{JOBS} jobs at once against the raw ceiling, {ROUNDS} times")
        children()  # the first objects of a server cost more than the others
        from_kubeconfig = ours(field.operator_with_kubeconfig())
        rounds: list[dict[str, float]] = []

        def deployed() -> float:
            rounds.append(ours(field.operator()))
            return rounds[-1]["seconds"]

        seconds = interleaved(
            {"children": children, "watched": watched, "with_jobs": with_jobs, "ours": deployed}, ROUNDS
        )
    return [
        Result("create_vs_ceiling", ratio(seconds["ours"], seconds["children"]), "x"),
        Result("create_vs_watched_ceiling", ratio(seconds["ours"], seconds["watched"]), "x"),
        Result(
            "create_vs_ceiling_with_jobs",
            ratio(seconds["ours"], seconds["with_jobs"]),
            "x, with the jobs",
            at_most(1.4),
        ),
        Result("create_2000_objects", median(seconds["ours"]), "s"),
        Result("ceiling_2000_objects", median(seconds["children"]), "s"),
        Result("operator_cpu_s", median(r["cpu"] for r in rounds), "s until all exist"),
        Result(
            "operator_cpu_vs_ceiling",
            ratio([r["cpu"] for r in rounds], seconds["with_jobs"]),
            "s per second of the ceiling with the jobs",
            at_most(0.65),
        ),
        Result("operator_cpu_with_events_s", median(r["all_cpu"] for r in rounds), "s until all is written"),
        Result("operator_peak_mb", max(r["peak"] for r in rounds), "MB VmHWM", at_most(45)),
        Result("operator_peak_with_kubeconfig", from_kubeconfig["peak"], "MB VmHWM"),
    ]
