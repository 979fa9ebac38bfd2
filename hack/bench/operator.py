"""Subjects `idle`, `storm`, `workers`, `restart`: the whole operator on a real API server."""

import contextlib
import http.client
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from hack.audit import AuditLog
from hack.bench.field import AGENT, Field, cpu_s, memory
from hack.bench.load import MeasureError, ps_and_workers
from hack.bench.measuring import Bench, Result, interleaved, ratio
from hack.hollow_node.objects import HollowPod
from hack.hollow_node.script import RUN
from hack.matrix.cluster import hollow_node
from tfjob_operator.api.client.options import MERGE_PATCH
from tfjob_operator.api.v1.constants import ConditionType

# Subject `idle`: what a thousand already finished jobs cost per minute, and how long a new job waits behind them.


IDLE_SETTLE_S: Final = 20.0
"""Longer than the delay of merged writes, and than the last events take."""


def measure_idle(bench: Bench) -> list[Result]:
    """Measure what a thousand finished jobs cost per minute, and how long a new job then waits for its pod."""
    names = [f"done-{number}" for number in range(1000)]
    spec = ps_and_workers(1, servers=0, run="0.1s:0")
    with tempfile.TemporaryDirectory(prefix="tfjob-bench-") as folder:
        audit = AuditLog(Path(folder))
        with Field(["idle"], audit.flags) as field, field.operator() as operator, hollow_node(field.plane):
            bench.say("1,000 jobs run to their end")
            field.send(field.target.jobs("idle", names, spec))
            field.until(
                lambda: field.in_condition("idle", ConditionType.SUCCEEDED) == len(names),
                "all have succeeded",
                tick_s=1.0,
            )
            time.sleep(IDLE_SETTLE_S)
            bench.say("a minute of idleness")
            before, cpu = audit.calls(AGENT), cpu_s(operator.pid)
            time.sleep(60.0)
            calls = audit.calls(AGENT) - before
            busy = cpu_s(operator.pid) - cpu
            for (verb, resource), number in sorted(calls.items()):
                bench.say(f"    {verb:<8}{resource:<20}{number:8} a minute")
            waits = [first_pod(field, "idle", f"new-{number}") for number in range(5)]
    # Watches do not count: if an idle server sends no bookmarks, a quiet watch is reopened every 80s.
    counted = [number for (verb, resource), number in calls.items() if verb != "watch" and resource != "leases"]
    return [
        Result("idle_calls_per_min", sum(counted), "calls", "<= 0"),
        Result("idle_cpu_per_min", busy, "s"),
        Result("first_pod_behind_1000_jobs", median(waits), "s", "<= 0.3"),
    ]


def first_pod(field: Field, namespace: str, name: str) -> float:
    """Create a job; return the seconds until its pod exists."""
    place = f"pods/{namespace}"
    before = field.count(place)
    began = time.perf_counter()
    field.send(field.target.jobs(namespace, [name], ps_and_workers(1, servers=0, run="forever")))
    return field.until(lambda: field.count(place) > before, "the first pod", tick_s=0.002) - began


# Subject `storm`: two hundred jobs at once, relative to the raw load generator on the same server.
#
# There are two ceilings: creating only the 2,000 children, and creating the children and the jobs. A job costs the server as
# much as three pods (docs/design/api.md). The goals are relative to the second ceiling.


STORM_JOBS: Final = 200
STORM_ROUNDS: Final = 7
STORM_SETTLE_S: Final = 8.0
"""Longer than 2,200 events take, and than the delay of merged status writes."""
CHILDREN: Final = STORM_JOBS * 5 * 2


def measure_storm(bench: Bench) -> list[Result]:
    """Create two hundred jobs at once, in turn with the raw load generator for the same objects on the same server."""
    spec = ps_and_workers()
    names = [f"storm-{number}" for number in range(STORM_JOBS)]
    with Field(["raw", "storm"]) as field:

        def children() -> float:
            seconds = field.send(field.target.children("raw", names, spec))
            field.send(field.target.deletes("raw", names, spec))
            return seconds

        def with_jobs() -> float:
            return field.send(field.target.jobs("raw", names, spec)) + children()

        def ours(operator: AbstractContextManager[subprocess.Popen[bytes]]) -> dict[str, float]:
            with operator as process:
                idle = cpu_s(process.pid)
                began = time.perf_counter()
                field.send(field.target.jobs("storm", names, spec))
                seconds = field.until(lambda: field.children("storm") == CHILDREN, "all children exist") - began
                busy = cpu_s(process.pid) - idle
                time.sleep(STORM_SETTLE_S)
                used = {
                    "seconds": seconds,
                    "cpu": busy,
                    "all_cpu": cpu_s(process.pid) - idle,
                    "peak": memory(process.pid)["peak"],
                }
            field.send(field.target.deletes("storm", names, spec))
            return used

        bench.say(f"{STORM_JOBS} jobs at once against the raw ceiling, {STORM_ROUNDS} times")
        children()  # the first objects of a server cost more than the others
        from_kubeconfig = ours(field.operator_with_kubeconfig())
        rounds: list[dict[str, float]] = []

        def deployed() -> float:
            rounds.append(ours(field.operator()))
            return rounds[-1]["seconds"]

        seconds = interleaved({"children": children, "with_jobs": with_jobs, "ours": deployed}, STORM_ROUNDS)
    return [
        Result("create_vs_ceiling", ratio(seconds["ours"], seconds["children"]), "x"),
        Result("create_vs_ceiling_with_jobs", ratio(seconds["ours"], seconds["with_jobs"]), "x", "<= 1.4"),
        Result("create_2000_objects", median(seconds["ours"]), "s"),
        Result("ceiling_2000_objects", median(seconds["children"]), "s"),
        Result("operator_cpu_s", median(r["cpu"] for r in rounds), "s until all exist"),
        Result(
            "operator_cpu_vs_ceiling",
            ratio([r["cpu"] for r in rounds], seconds["with_jobs"]),
            "s per second",
            "<= 0.65",
        ),
        Result("operator_cpu_with_events_s", median(r["all_cpu"] for r in rounds), "s until all is written"),
        Result("operator_peak_mb", max(r["peak"] for r in rounds), "MB VmHWM", "<= 45"),
        Result("operator_peak_with_kubeconfig", from_kubeconfig["peak"], "MB VmHWM"),
    ]


# Subject `workers`: jobs of 500 and 2,000 workers with long names: bytes, memory, and time relative to the ceiling.


SIZES: Final = (500, 2000)
NAME: Final = "resnet50-imagenet-sweep-17-attempt-4"
"""With this name and the namespace below, about 2,000 workers fit into an environment variable."""
NAMESPACE: Final = "ml"
WORKERS_SETTLE_S: Final = 10.0
"""Longer than the events of 2,000 replicas, and the last status, take."""
MB: Final = 1e6


def measure_workers(bench: Bench) -> list[Result]:
    """Measure jobs of 500 and 2,000 workers with long names, and raw requests for their children; one server per size."""
    found = {size: _one_job(bench, size) for size in SIZES}
    growth = found[2000]["bytes"] / found[500]["bytes"] / 4
    return [
        Result("workers_etcd_growth", growth, "x what would be linear", "<= 1.2"),
        *(
            result
            for size, each in found.items()
            for result in (
                Result(f"workers_{size}_etcd", each["bytes"] / MB, "MB in etcd"),
                Result(f"workers_{size}_peak", each["peak"], "MB VmHWM", "<= 150"),
                Result(f"workers_{size}_created", each["seconds"], "s"),
                Result(f"workers_{size}_vs_ceiling", each["seconds"] / each["ceiling"], "x"),
            )
        ),
    ]


def _one_job(bench: Bench, workers: int) -> dict[str, float]:
    spec = ps_and_workers(workers, servers=0)
    with Field(["raw", NAMESPACE]) as field:
        # the first objects of a server cost more than the others
        field.send(field.target.children("raw", ["first"], ps_and_workers(20)))
        bench.say(f"a job of {workers:,} workers against the raw ceiling")
        ceiling = field.send(field.target.children("raw", [NAME], spec))
        with field.operator() as operator:
            before = field.bytes_in_etcd()
            began = time.perf_counter()
            field.send(field.target.jobs(NAMESPACE, [NAME], spec))
            seconds = field.until(lambda: field.children(NAMESPACE) == 2 * workers, "all children exist") - began
            time.sleep(WORKERS_SETTLE_S)
            grown, peak = field.bytes_in_etcd() - before, memory(operator.pid)["peak"]
    return {"ceiling": ceiling, "seconds": seconds, "bytes": grown, "peak": peak}


# Subject `restart`: the time of a restart of a whole job, relative to its start.


RESTARTED: Final = 500
RESTARTS: Final = 5
PLACE: Final = "/api/v1/namespaces/restart/pods"


class _PodEvent(msgspec.Struct):
    type: str
    object: HollowPod


def measure_restart(bench: Bench) -> list[Result]:
    """Time jobs of 500 workers: the start, then a rule's RestartAll after one worker fails. Deleted pods stop at once."""
    spec = ps_and_workers(RESTARTED, servers=0, run="forever")
    spec["tfReplicaSpecs"]["Worker"]["template"]["spec"] |= {"terminationGracePeriodSeconds": 0}
    spec["runPolicy"] |= {"failurePolicy": {"maxRestarts": 1, "rules": [{"name": "any", "action": "RestartAll"}]}}
    starts, restarts = [], []
    with Field(["restart"]) as field, field.operator("--restart-backoff=false"), hollow_node(field.plane):
        bench.say(f"a job of {RESTARTED} workers starts and is restarted, {RESTARTS} times")
        for number in range(RESTARTS):
            name = f"restart-{number}"
            with _watch(field) as events:
                field.send(field.target.jobs("restart", [name], spec))
                starts.append(_until_all_run(events, again=False))
                time.sleep(WORKERS_SETTLE_S)
                body = {"metadata": {"annotations": {RUN: "0s:42"}}}
                field.plane.request("PATCH", f"{PLACE}/{name}-worker-3", body, content_type=MERGE_PATCH)
                restarts.append(_until_all_run(events, again=True))
            time.sleep(WORKERS_SETTLE_S)
            field.send(field.target.deletes("restart", [name], spec))
    return [
        Result("restart_500_started", median(starts), "s"),
        Result("restart_500_restarted", median(restarts), "s"),
        Result("restart_vs_start", ratio(restarts, starts), "x", "<= 1.5"),
    ]


@contextlib.contextmanager
def _watch(field: Field) -> Iterator[Iterator[_PodEvent]]:
    target, version = field.target, field.get(PLACE)["metadata"]["resourceVersion"]
    connection = http.client.HTTPSConnection(target.host, target.port, timeout=60.0, context=target.tls)
    with contextlib.closing(connection):
        connection.request("GET", f"{PLACE}?watch=1&resourceVersion={version}")
        decoder = msgspec.json.Decoder(_PodEvent)
        yield map(decoder.decode, connection.getresponse())


def _until_all_run(events: Iterator[_PodEvent], *, again: bool) -> float:
    """Return the seconds from the first create, or with `again` from the first delete, until all pods run."""
    began, running = 0.0, set()
    for event in events:
        pod = event.object
        gone = event.type == "DELETED" or pod.metadata.deletion_timestamp is not None
        if not began:
            if gone is not again:
                continue
            began = time.perf_counter()
        if gone:
            running.discard(pod.metadata.uid)
        elif pod.status.phase == "Running":
            running.add(pod.metadata.uid)
        if len(running) == RESTARTED:
            return time.perf_counter() - began
    raise MeasureError("the watch has ended")
