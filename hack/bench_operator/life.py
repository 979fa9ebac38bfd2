"""Subject `life`: two hundred jobs from creation to Succeeded, in time and in API calls."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hack.audit import AuditLog
from hack.bench.result import Result, at_most
from hack.bench_operator.field import AGENT, Field
from hack.bench_operator.jobs import child_requests, job_requests, node_requests, ps_and_workers, status_requests
from hack.bench_operator.watched_jobs import WatchedJobs
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType

if TYPE_CHECKING:
    from hack.bench.bench import Bench

JOBS: Final = 200
WRITES_UNTIL_RUNNING: Final = 2
"""Status writes of a job until it is Running: before its children are created, and when all of them run."""
SETTLE_S: Final = 5.0
"""Longer than the operator waits to write changed counters of a status together."""
RUN: Final = "20s:0"
"""What the workers do: longer than it takes until all run, so that there is a moment at which all jobs are Running."""


def measure(bench: Bench) -> list[Result]:
    """Measure the same jobs from creation to Succeeded on a hollow node; then count the calls of one more such run."""
    spec = ps_and_workers(run=RUN)
    names = [f"life-{number}" for number in range(JOBS)]

    def live(field: Field, namespace: str) -> dict[str, float]:
        with field.operator() as operator, field.node() as node, WatchedJobs(field.target, namespace) as jobs:
            idle, node_idle = operator.cpu_s(), node.cpu_s()
            began = time.perf_counter()
            field.send(job_requests(field.target, namespace, names, spec))
            running = field.until(lambda: jobs.in_condition(ConditionType.RUNNING) == JOBS, "all jobs are Running")
            node_cpu = node.cpu_s() - node_idle
            succeeded = field.until(
                lambda: jobs.in_condition(ConditionType.SUCCEEDED) == JOBS, "all jobs have succeeded"
            )
            field.until(lambda: field.count(f"pods/{namespace}") == JOBS * 4, "the parameter servers are gone")
            time.sleep(SETTLE_S)
            return {
                "running": running - began,
                "node_cpu": node_cpu,
                "succeeded": succeeded - began,
                "cpu": operator.cpu_s() - idle,
                "peak": operator.peak_mb(),
            }

    def ceiling(field: Field) -> float:
        """Send what operator and node have sent until all jobs were Running, without looking at it."""
        status = field.get(f"{c.TFJOBS.path('life')}/{names[0]}")["status"]
        pod = next(
            pod
            for pod in field.get("/api/v1/namespaces/life/pods?limit=50")["items"]
            if "-worker-" in pod["metadata"]["name"]
        )
        bindings, reports = node_requests(field.target, "raw", names, spec, pod["status"])
        seconds = field.send(job_requests(field.target, "raw", names, spec))
        seconds += field.send(child_requests(field.target, "raw", names, spec))
        seconds += field.send(bindings) + field.send(reports)
        for _ in range(WRITES_UNTIL_RUNNING):
            seconds += field.send(status_requests(field.target, "raw", names, status))
        return seconds

    bench.say(f"{JOBS} jobs from creation to Succeeded")
    with Field("bench-operator", ["life", "raw"]) as field:
        times = live(field, "life")
        least = ceiling(field)
    bench.say(f"{JOBS} jobs from creation to Succeeded, with the API server's audit log")
    with tempfile.TemporaryDirectory(prefix="tfjob-bench-") as folder:
        audit = AuditLog(Path(folder))
        with Field("bench-operator", ["counted"], audit.flags) as field:
            live(field, "counted")
        calls = audit.calls(AGENT, "counted")
    for (verb, resource), number in sorted(calls.items()):
        bench.say(f"    {verb:<8}{resource:<20}{number / JOBS:8.2f} a job")
    return [
        Result("all_running", times["running"], "s"),
        Result("all_running_vs_ceiling", times["running"] / least, "x", at_most(1.3)),
        Result("all_running_node_cpu", times["node_cpu"], "s of the hollow node until all ran"),
        Result("all_succeeded", times["succeeded"], "s"),
        Result("life_cpu", times["cpu"], "s"),
        Result("life_peak", times["peak"], "MB VmHWM"),
        Result("status_writes_per_job", calls["patch", "tfjobs/status"] / JOBS, "calls", at_most(3)),
        Result("creates_per_job", (calls["create", "pods"] + calls["create", "services"]) / JOBS, "calls", at_most(10)),
        Result("event_calls_per_job", (calls["create", "events"] + calls["patch", "events"]) / JOBS, "calls"),
        Result(
            "calls_per_job", sum(n for (verb, _), n in calls.items() if verb != "watch") / JOBS, "calls", at_most(26)
        ),
        Result("reads_per_job", sum(n for (verb, _), n in calls.items() if verb == "get") / JOBS, "calls"),
    ]
