"""Subjects `idle`, `storm`, `workers`: the whole operator on a real API server."""

from __future__ import annotations

import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Any, Final

from hack.audit import AuditLog
from hack.bench.field import (
    AGENT,
    Field,
    Process,
    child_requests,
    delete_requests,
    job_requests,
    ps_and_workers,
)
from hack.bench.result import Result, at_most, interleaved, ratio
from hack.bench.run import Bench
from tfjob_operator.api.v1.constants import ConditionType

# Subject `idle`: a thousand finished jobs, what they cost in a minute, and how long a new job waits behind them.


IDLE_SETTLE_S: Final = 20.0
"""Longer than any write is delayed to be merged with others, and than the last events take."""


def measure_idle(bench: Bench) -> list[Result]:
    """Measure a thousand finished jobs: what they cost in a minute, and how long a new job waits behind them."""
    names = [f"done-{number}" for number in range(1000)]
    spec = ps_and_workers(1, servers=0, run="0.1s:0")
    with tempfile.TemporaryDirectory(prefix="tfjob-bench-") as folder:
        audit = AuditLog(Path(folder))
        with Field("bench-operator", ["idle"], audit.flags) as field, field.operator() as operator, field.node():
            bench.say("1,000 jobs run to their end")
            field.send(job_requests(field.target, "idle", names, spec))
            field.until(
                lambda: field.in_condition("idle", ConditionType.SUCCEEDED) == len(names),
                "all have succeeded",
                tick_s=1.0,
            )
            time.sleep(IDLE_SETTLE_S)
            bench.say("a minute of idleness")
            before, cpu = audit.calls(AGENT), operator.cpu_s()
            time.sleep(60.0)
            calls = audit.calls(AGENT) - before
            busy = operator.cpu_s() - cpu
            for (verb, resource), number in sorted(calls.items()):
                bench.say(f"    {verb:<8}{resource:<20}{number:8} a minute")
            waits = [first_pod(field, "idle", f"new-{number}") for number in range(5)]
    # Watches do not count: if a server sends no bookmarks while nothing happens, a quiet watch is opened anew every 80 s.
    counted = [number for (verb, resource), number in calls.items() if verb != "watch" and resource != "leases"]
    return [
        Result(
            "idle_calls_per_min",
            sum(counted),
            "calls",
            at_most(0),
        ),
        Result("idle_cpu_per_min", busy, "s"),
        Result("first_pod_behind_1000_jobs", median(waits), "s", at_most(0.3)),
    ]


def first_pod(field: Field, namespace: str, name: str) -> float:
    """Create a job; return the seconds until its pod exists."""
    place = f"pods/{namespace}"
    before = field.count(place)
    began = time.perf_counter()
    field.send(job_requests(field.target, namespace, [name], ps_and_workers(1, servers=0, run="forever")))
    return field.until(lambda: field.count(place) > before, "the first pod", tick_s=0.002) - began


# Subject `storm`: two hundred jobs at once, against what the same server takes from the raw load generator.
#
# There are three ceilings: the 2,000 children alone; the same while the operator's caches watch, which costs the server and
# both cores something; and the same with the creation of the jobs, each of which costs the server as much as three pods
# (docs/design/crd-schema.md). The goals are set against the last: the first two leave no CPU time for any operator.


STORM_JOBS: Final = 200
STORM_ROUNDS: Final = 7
STORM_SETTLE_S: Final = 8.0
"""Longer than 2,200 events take, and than the operator waits to write changed counters of a status together."""
CHILDREN: Final = STORM_JOBS * 5 * 2


def measure_storm(bench: Bench) -> list[Result]:
    """Create two hundred jobs at once, and the same objects by the raw load generator, in turns on the same server."""
    spec = ps_and_workers()
    names = [f"storm-{number}" for number in range(STORM_JOBS)]
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
                time.sleep(STORM_SETTLE_S)
                used = {"seconds": seconds, "cpu": busy, "all_cpu": process.cpu_s() - idle, "peak": process.peak_mb()}
            field.send(delete_requests(field.target, "storm", names, spec))
            return used

        bench.say(f"{STORM_JOBS} jobs at once against the raw ceiling, {STORM_ROUNDS} times")
        children()  # the first objects of a server cost more than the others
        from_kubeconfig = ours(field.operator_with_kubeconfig())
        rounds: list[dict[str, float]] = []

        def deployed() -> float:
            rounds.append(ours(field.operator()))
            return rounds[-1]["seconds"]

        seconds = interleaved(
            {"children": children, "watched": watched, "with_jobs": with_jobs, "ours": deployed}, STORM_ROUNDS
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


# Subject `workers`: one job of 500 and one of 2,000 workers with long names: bytes, memory, and time against the ceiling.


SIZES: Final = (500, 2000)
NAME: Final = "resnet50-imagenet-sweep-17-attempt-4"
"""With this name, in the namespace below, 2,000 workers are about as many as fit into an environment variable."""
NAMESPACE: Final = "ml"
WORKERS_SETTLE_S: Final = 10.0
"""Longer than the events of 2,000 replicas, and the last status, take."""
MB: Final = 1e6


def measure_workers(bench: Bench) -> list[Result]:
    """Measure a job of 500 and one of 2,000 workers with long names, and the ceiling for the same; each on its own server."""
    few, many = (_one_job(bench, size) for size in SIZES)
    growth = many["bytes"] / few["bytes"] / (SIZES[1] / SIZES[0])
    return [
        Result("workers_500_etcd", few["bytes"] / MB, "MB in etcd"),
        Result("workers_2000_etcd", many["bytes"] / MB, "MB in etcd"),
        Result("workers_etcd_growth", growth, "x what would be linear", at_most(1.2)),
        Result("workers_500_peak", few["peak"], "MB VmHWM"),
        Result("workers_2000_peak", many["peak"], "MB VmHWM", at_most(150)),
        Result("workers_500_created", few["seconds"], "s"),
        Result("workers_2000_created", many["seconds"], "s"),
        Result("workers_500_vs_ceiling", few["seconds"] / few["ceiling"], "x"),
        Result("workers_2000_vs_ceiling", many["seconds"] / many["ceiling"], "x"),
    ]


def _one_job(bench: Bench, workers: int) -> dict[str, float]:
    spec = ps_and_workers(workers, servers=0)
    with Field("bench-operator", ["raw", NAMESPACE]) as field:
        field.send(
            child_requests(field.target, "raw", ["first"], ps_and_workers(20))
        )  # the first objects of a server cost more than the others
        bench.say(f"a job of {workers:,} workers against the raw ceiling")
        requests = child_requests(field.target, "raw", [NAME], spec)
        ceiling = field.send(requests)
        del requests
        return {"ceiling": ceiling} | _ours(field, spec, 2 * workers)


def _ours(field: Field, spec: dict[str, Any], children: int) -> dict[str, float]:
    with field.operator() as operator:
        before = field.bytes_in_etcd()
        began = time.perf_counter()
        field.send(job_requests(field.target, NAMESPACE, [NAME], spec))
        seconds = field.until(lambda: field.children(NAMESPACE) == children, "all children exist") - began
        time.sleep(WORKERS_SETTLE_S)
        return {"seconds": seconds, "bytes": field.bytes_in_etcd() - before, "peak": operator.peak_mb()}
