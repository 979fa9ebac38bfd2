"""Subject `large`: one job of 500 workers, against the ceiling for the same 1,000 objects."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hack.bench.result import Result
from hack.bench_operator.field import Field
from hack.bench_operator.jobs import child_requests, delete_requests, job_requests, ps_and_workers

if TYPE_CHECKING:
    from hack.bench.bench import Bench


def measure(bench: Bench) -> list[Result]:
    """One job of 500 workers, against the ceiling for the same 1,000 objects."""
    spec = ps_and_workers(500, servers=0)
    bench.say("a job of 500 workers")
    with Field("bench-operator", ["raw", "large"]) as field:

        def raw() -> float:
            seconds = field.send(child_requests(field.target, "raw", ["large"], spec))
            field.send(delete_requests(field.target, "raw", ["large"], spec))
            return seconds

        raw()
        ceiling = raw()
        with field.operator():
            began = time.perf_counter()
            field.send(job_requests(field.target, "large", ["large"], spec))
            seconds = field.until(lambda: field.children("large") == 1000, "all children exist") - began
    return [
        Result("large_job_1000_objects", seconds, "s"),
        Result("large_job_vs_ceiling", seconds / ceiling, "x"),
    ]
