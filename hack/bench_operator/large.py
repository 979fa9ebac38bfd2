"""Subject `large`: one job of 500 workers, against the ceiling for the same 1,000 objects."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Final

from hack.bench.measure import interleaved, ratio
from hack.bench.result import Result
from hack.bench_operator.field import Field
from hack.bench_operator.jobs import child_requests, delete_requests, job_requests, ps_and_workers

if TYPE_CHECKING:
    from hack.bench.bench import Bench


ROUNDS: Final = 3


def measure(bench: Bench) -> list[Result]:
    """Compare one job of 500 workers with the raw load of the same 1,000 objects, without and with the operator watching."""
    spec = ps_and_workers(500, servers=0)
    bench.say(f"a job of 500 workers against the raw ceiling, {ROUNDS} times")
    with Field("bench-operator", ["raw", "large"]) as field:

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
                seconds = field.until(lambda: field.children("large") == 1000, "all children exist") - began
            field.plane.run_kubectl("delete", "tfjobs", "--all", "--namespace=large", "--wait=false")
            field.send(delete_requests(field.target, "large", ["large"], spec))
            return seconds

        raw()  # the first objects of a server cost more than the others
        seconds = interleaved({"raw": raw, "watched": watched, "ours": ours}, ROUNDS)
    return [
        Result("large_job_1000_objects", median(seconds["ours"]), "s"),
        Result("large_job_vs_ceiling", ratio(seconds["ours"], seconds["raw"]), "x"),
        Result("large_job_vs_watched_ceiling", ratio(seconds["ours"], seconds["watched"]), "x"),
    ]
