"""Subject `idle`: a thousand finished jobs, what they cost in a minute, and how long a new job waits behind them."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from hack.audit import AuditLog
from hack.bench.bench import Bench
from hack.bench.result import Result, at_most
from hack.bench_operator.field import AGENT, Field
from hack.bench_operator.jobs import job_requests, ps_and_workers
from tfjob_operator.api.v1.constants import ConditionType

SETTLE_S: Final = 20.0
"""Longer than any write is delayed to be merged with others, and than the last events take."""


def measure(bench: Bench) -> list[Result]:
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
            time.sleep(SETTLE_S)
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
