"""Subject `life`: two hundred jobs from creation to Succeeded, in time and in API calls."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from hack.audit import AuditLog
from hack.bench.bench import Bench
from hack.bench.measure import interleaved, ratio
from hack.bench.result import Result, at_most
from hack.bench_operator.field import AGENT, Field
from hack.bench_operator.jobs import (
    child_requests,
    job_requests,
    node_requests,
    ps_and_workers,
    status_requests,
)
from hack.bench_operator.watched_jobs import WatchedJobs
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType

JOBS: Final = 200
ROUNDS: Final = 5
WRITES_UNTIL_RUNNING: Final = 2
"""So many status writes a job has at most until it is Running: before its children are created, and when all of them run. In a
burst many have one."""
SETTLE_S: Final = 5.0
"""Longer than the operator waits to write changed counters of a status together."""
RUN: Final = "20s:0"
"""What the workers do: longer than it takes until all run, so that there is a moment at which all jobs are Running."""


def measure(bench: Bench) -> list[Result]:
    """Measure jobs from creation to Succeeded on a hollow node, and to Running in turns with the ceiling; then count calls."""
    spec = ps_and_workers(run=RUN)
    names = [f"life-{number}" for number in range(JOBS)]

    def start(field: Field, namespace: str, jobs: WatchedJobs) -> float:
        """Create the jobs, and return the seconds until all were Running."""
        began = time.perf_counter()
        field.send(job_requests(field.target, namespace, names, spec))
        return field.until(lambda: jobs.in_condition(ConditionType.RUNNING) == JOBS, "all jobs are Running") - began

    def live(field: Field, namespace: str) -> dict[str, float]:
        with field.operator() as operator, field.node(), WatchedJobs(field.target, namespace) as jobs:
            idle, began = operator.cpu_s(), time.perf_counter()
            start(field, namespace, jobs)
            succeeded = field.until(
                lambda: jobs.in_condition(ConditionType.SUCCEEDED) == JOBS, "all jobs have succeeded"
            )
            field.until(lambda: field.count(f"pods/{namespace}") == JOBS * 4, "the parameter servers are gone")
            time.sleep(SETTLE_S)
            return {"succeeded": succeeded - began, "cpu": operator.cpu_s() - idle, "peak": operator.peak_mb()}

    def run(field: Field) -> dict[str, float]:
        with field.operator() as operator, field.node() as node, WatchedJobs(field.target, "turns") as jobs:
            idle, node_idle = operator.cpu_s(), node.cpu_s()
            took = start(field, "turns", jobs)
            used = {"seconds": took, "cpu": operator.cpu_s() - idle, "node_cpu": node.cpu_s() - node_idle}
        field.clear("turns")
        return used

    def ceiling(field: Field, bindings: list[bytes], reports: list[bytes], status: dict[str, Any]) -> dict[str, float]:
        """Send what operator and node send until all jobs are Running, without looking at it."""
        seconds = field.send(job_requests(field.target, "raw", names, spec))
        seconds += field.send(child_requests(field.target, "raw", names, spec))
        seconds += field.send(bindings) + field.send(reports)
        for _ in range(WRITES_UNTIL_RUNNING):
            seconds += field.send(status_requests(field.target, "raw", names, status))
        field.clear("raw")
        return {"seconds": seconds}

    bench.say(f"{JOBS} jobs from creation to Succeeded")
    with Field("bench-operator", ["life", "turns", "raw"]) as field:
        times = live(field, "life")
        status = field.get(f"{c.TFJOBS.path('life')}/{names[0]}")["status"]
        pod = next(
            pod
            for pod in field.get("/api/v1/namespaces/life/pods?limit=50")["items"]
            if "-worker-" in pod["metadata"]["name"]
        )
        node_side = node_requests(field.target, "raw", names, spec, pod["status"])
        field.clear("life")
        bench.say(f"{JOBS} jobs until all are Running, against the raw ceiling, {ROUNDS} times")
        turns = interleaved({"least": lambda: ceiling(field, *node_side, status), "ours": lambda: run(field)}, ROUNDS)
    running = {what: [each[what] for each in turns["ours"]] for what in turns["ours"][0]}
    least = [each["seconds"] for each in turns["least"]]
    bench.say(f"{JOBS} jobs from creation to Succeeded, with the API server's audit log")
    with tempfile.TemporaryDirectory(prefix="tfjob-bench-") as folder:
        audit = AuditLog(Path(folder))
        with Field("bench-operator", ["counted"], audit.flags) as field:
            live(field, "counted")
        calls = audit.calls(AGENT, "counted")
    for (verb, resource), number in sorted(calls.items()):
        bench.say(f"    {verb:<8}{resource:<20}{number / JOBS:8.2f} a job")
    return [
        Result("all_running", median(running["seconds"]), "s"),
        Result("all_running_vs_ceiling", ratio(running["seconds"], least), "x", at_most(1.3)),
        Result("all_running_cpu", median(running["cpu"]), "s of the operator until all ran"),
        Result("all_running_node_cpu", median(running["node_cpu"]), "s of the hollow node until all ran"),
        Result("all_succeeded", times["succeeded"], "s"),
        Result("life_cpu", times["cpu"], "s"),
        Result("life_peak", times["peak"], "MB VmHWM"),
        Result("status_writes_per_job", calls["patch", "tfjobs/status"] / JOBS, "calls", at_most(3)),
        Result("creates_per_job", (calls["create", "pods"] + calls["create", "services"]) / JOBS, "calls", at_most(10)),
        Result("event_calls_per_job", (calls["create", "events"] + calls["patch", "events"]) / JOBS, "calls"),
        Result(
            "calls_per_job", sum(n for (verb, _), n in calls.items() if verb != "watch") / JOBS, "calls", at_most(27.5)
        ),
        Result("reads_per_job", sum(n for (verb, _), n in calls.items() if verb == "get") / JOBS, "calls"),
    ]
