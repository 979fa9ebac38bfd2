"""Subject `workers`: one job of 500 and one of 2,000 workers with long names: bytes, memory, and time against the ceiling."""

from __future__ import annotations

import time
from typing import Any, Final

from hack.bench.bench import Bench
from hack.bench.result import Result, at_most
from hack.bench_operator.field import Field
from hack.bench_operator.jobs import child_requests, job_requests, ps_and_workers

SIZES: Final = (500, 2000)
NAME: Final = "resnet50-imagenet-sweep-17-attempt-4"
"""With this name, in the namespace below, 2,000 workers are about as many as fit into an environment variable."""
NAMESPACE: Final = "ml"
SETTLE_S: Final = 10.0
"""Longer than the events of 2,000 replicas, and the last status, take."""
MB: Final = 1e6


def measure(bench: Bench) -> list[Result]:
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
        time.sleep(SETTLE_S)
        return {"seconds": seconds, "bytes": field.bytes_in_etcd() - before, "peak": operator.peak_mb()}
