"""Subjects `plan` and `events`: the CPU time of the pure part of a sync, and of an event on its way through the recorder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from statistics import median
from typing import Final

import msgspec

from hack.bench.bench import Bench
from hack.bench.child import MeasureError
from hack.bench.measure import interleaved
from hack.bench.playback import Player
from hack.bench.pods import BEGAN, PODS_PER_JOB, job, job_meta, job_spec, pod_body, running_status
from hack.bench.result import Result
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.core import EventType, ObjectReference
from tfjob_operator.api.v1.types import TFJob, TFJobSpec, child_name
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.jobs.children import Pod, ReplicaKey, Service
from tfjob_operator.controller.tfjob.build.children import PodBuilder, build_service
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.plan.plan import plan
from tfjob_operator.workqueue import LoopClock

ROUNDS: Final = 7
REPLICAS: Final = (("PS", 1), ("Worker", 4))
PLANS: Final = 2000
JOBS: Final = 180
"""With five events each, they fit into the recorder's buffer of a thousand."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The arguments of `plan`."""

    job: TFJob
    spec: TFJobSpec
    pods: Sequence[Pod] = ()
    services: Sequence[Service] = ()

    def plan(self) -> Plan:
        """Decide, a minute after the job began."""
        return plan(self.job, self.spec, self.pods, self.services, BEGAN + timedelta(minutes=1))


def measure_planning(bench: Bench) -> list[Result]:
    """Measure a job of one PS and four workers: its first sync, which creates everything, and one that finds nothing to do."""
    bench.say(f"planning a job of {sum(count for _, count in REPLICAS)} replicas {PLANS:,} times, {ROUNDS} times")
    new, settled = worlds()
    sides: dict[str, Callable[[], float]] = {
        "new": partial(_plan, new),
        "settled": partial(_plan, settled),
        "build": _build,
    }
    seconds = interleaved(sides, ROUNDS)
    return [
        Result("plan_first_sync", median(seconds["new"]) / PLANS * 1e6, "us/sync"),
        Result("plan_idle_sync", median(seconds["settled"]) / PLANS * 1e6, "us/sync"),
        Result("pod_build", median(seconds["build"]) / PODS_PER_JOB * 1e6, "us/pod"),
    ]


def measure_events(bench: Bench) -> list[Result]:
    """Record, correlate and write events to a server that responds at once."""
    events = JOBS * sum(count for _, count in REPLICAS)
    bench.say(f"recording {events} events, {ROUNDS} times")
    seconds = [asyncio.run(_record()) for _ in range(ROUNDS)]
    return [Result("event_write", median(seconds) / events * 1e6, "us/event")]


def worlds() -> tuple[Observed, Observed]:
    """Return a job that has no children yet, and the same job when everything runs and its status says so."""
    spec = job_spec(REPLICAS)
    new = Observed(job(0, "team", REPLICAS), spec)
    begun = new.plan()
    pods = [_running_pod(new, slot, number) for number, slot in enumerate(begun.create_pods)]
    services = [msgspec.convert(build_service(new.job.metadata, spec, slot), Service) for slot in begun.create_services]
    started = Observed(_with_status_of(new.job, begun), spec, pods, services)
    settled = Observed(_with_status_of(started.job, started.plan()), spec, pods, services)
    if len(pods) != sum(count for _, count in REPLICAS) or settled.plan() != Plan():
        raise MeasureError(f"the benchmark's own job does not settle: {settled.plan()}")
    return new, settled


def _running_pod(world: Observed, key: ReplicaKey, number: int) -> Pod:
    body = PodBuilder(world.job, world.spec).build(key)
    uid = {"uid": child_name("uid", key.type, key.index)}
    made = body | {"metadata": body["metadata"] | uid, "status": running_status(number)}
    return msgspec.json.decode(msgspec.json.encode(made), type=Pod)


def _with_status_of(known: TFJob, decided: Plan) -> TFJob:
    return known if decided.status is None else msgspec.structs.replace(known, status=decided.status)


def _plan(world: Observed) -> float:
    began = time.thread_time()
    for _ in range(PLANS):
        world.plan()
    return time.thread_time() - began


def _build() -> float:
    """Build the pods of a larger job, with their TF_CONFIG."""
    began = time.thread_time()
    for number in range(PODS_PER_JOB):
        pod_body(number, "team")
    return time.thread_time() - began


async def _record() -> float:
    recorder = EventRecorder(RestClient(Player([])), component="bench", clock=LoopClock())
    jobs = [job_meta(number, "team") for number in range(JOBS)]
    began = time.thread_time()
    for meta in jobs:
        regarding = ObjectReference(kind="TFJob", namespace=meta.namespace, name=meta.name, uid=meta.uid)
        for kind, count in REPLICAS:
            for index in range(count):
                name = child_name(meta.name, kind, index)
                recorder.event(regarding, EventType.NORMAL, "SuccessfulCreatePod", f"Created pod: {name}")
    recorder.stop()
    await recorder.run()
    return time.thread_time() - began
