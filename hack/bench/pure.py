"""Subjects `workqueue`, `plan`, `events`, `scrape`: what runs in one process without a server."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from statistics import median
from typing import Final

import msgspec

from hack.bench.child import MeasureError
from hack.bench.cluster import BEGAN, PODS_PER_JOB, job, job_meta, job_spec, pod_body, running_status
from hack.bench.playback import Player
from hack.bench.result import Result, at_least, interleaved, percentile, ratio
from hack.bench.run import Bench
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.core import EventType, ObjectReference
from tfjob_operator.api.v1.types import TFJob, TFJobSpec, child_name
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.jobs.children import Pod, ReplicaKey, Service
from tfjob_operator.controller.jobs.metrics import STATE_INDEX, JobMetrics, index_by_state
from tfjob_operator.controller.tfjob.build.children import PodBuilder, build_service
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.plan.plan import plan
from tfjob_operator.informers import Indexer
from tfjob_operator.workqueue import LoopClock, RateLimitingQueue, default_controller_rate_limiter

# Subject `workqueue`: items through add, get and done, against an `asyncio.Queue` with the same producer and consumers.
#
# The queue is the one that the controller uses, `RateLimitingQueue`, with all its layers. An operation is one item's whole way:
# add, get, done. A producer adds keys in batches and lets the loop run after each; consumers only get and done. Time is CPU
# time, so that other processes do not count; but the latency of a wake-up is wall time, since it is spent waiting.


ROUNDS: Final = 5
KEYS: Final = [f"team-{number % 20}/mnist-dist-{number:05d}" for number in range(10_000)]
PASSES: Final = 10
BATCH: Final = 500
"""Keys that arrive together: as many as a list page brings."""

WAKE_UPS: Final = 5000


@dataclass(frozen=True, slots=True)
class Hands:
    """What producers and consumers do to a queue."""

    add: Callable[[str], None]
    get: Callable[[], Awaitable[str]]
    done: Callable[[str], None]


def measure_queue(bench: Bench) -> list[Result]:
    """Measure the throughput with one and with eight consumers, then the latency of a worker that waits."""
    bench.say(f"passing {len(KEYS) * PASSES:,} keys through the work queue and through asyncio.Queue, {ROUNDS} times")
    rates = interleaved(
        {
            f"{name} {consumers}": partial(_rate, make, consumers)
            for consumers in (1, 8)
            for name, make in (("ours", _work_queue), ("bare", _bare_queue))
        },
        ROUNDS,
    )
    waits = asyncio.run(_wake_ups())
    return [
        Result("workqueue_ops", median(rates["ours 1"]), "ops/s", at_least(600_000)),
        Result("workqueue_vs_asyncio_queue", ratio(rates["ours 1"], rates["bare 1"]), "x"),
        Result("workqueue_ops_8_consumers", median(rates["ours 8"]), "ops/s"),
        Result("workqueue_vs_asyncio_queue_8_consumers", ratio(rates["ours 8"], rates["bare 8"]), "x"),
        Result("workqueue_wake_up_p50", percentile(waits, 0.5) * 1e6, "us"),
        Result("workqueue_wake_up_p99", percentile(waits, 0.99) * 1e6, "us"),
    ]


def _work_queue() -> Hands:
    queue = RateLimitingQueue[str](default_controller_rate_limiter())
    return Hands(queue.add, queue.get, queue.done)


def _bare_queue() -> Hands:
    queue: asyncio.Queue[str] = asyncio.Queue()
    return Hands(queue.put_nowait, queue.get, lambda _: queue.task_done())


def _rate(make: Callable[[], Hands], consumers: int) -> float:
    return len(KEYS) * PASSES / asyncio.run(_pass_through(make(), consumers))


async def _pass_through(hands: Hands, consumers: int) -> float:
    left = len(KEYS) * PASSES
    finished = asyncio.Event()
    get, done = hands.get, hands.done

    async def consume() -> None:
        nonlocal left
        while True:
            done(await get())
            left -= 1
            if not left:
                finished.set()

    workers = [asyncio.create_task(consume()) for _ in range(consumers)]
    await asyncio.sleep(0)
    began = time.thread_time()
    for _ in range(PASSES):
        for start in range(0, len(KEYS), BATCH):
            for key in KEYS[start : start + BATCH]:
                hands.add(key)
            await asyncio.sleep(0)
    await finished.wait()
    seconds = time.thread_time() - began
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    return seconds


async def _wake_ups() -> list[float]:
    """Return the seconds from each add to the moment when the waiting worker has the item."""
    hands = _work_queue()
    waits: list[float] = []
    added_at = 0.0

    async def work() -> None:
        for _ in range(WAKE_UPS):
            key = await hands.get()
            waits.append(time.perf_counter() - added_at)
            hands.done(key)

    worker = asyncio.create_task(work())
    for number in range(WAKE_UPS):
        # Let the loop pass through its selector, as between two events from the network, so that the worker waits again.
        await asyncio.sleep(0.0001)
        added_at = time.perf_counter()
        hands.add(KEYS[number])
    await worker
    return waits


# Subjects `plan` and `events`: the CPU time of the pure part of a sync, and of an event on its way through the recorder.


PLAN_ROUNDS: Final = 7
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
    bench.say(f"planning a job of {sum(count for _, count in REPLICAS)} replicas {PLANS:,} times, {PLAN_ROUNDS} times")
    new, settled = worlds()
    sides: dict[str, Callable[[], float]] = {
        "new": partial(_plan, new),
        "settled": partial(_plan, settled),
        "build": _build,
    }
    seconds = interleaved(sides, PLAN_ROUNDS)
    return [
        Result("plan_first_sync", median(seconds["new"]) / PLANS * 1e6, "us/sync"),
        Result("plan_idle_sync", median(seconds["settled"]) / PLANS * 1e6, "us/sync"),
        Result("pod_build", median(seconds["build"]) / PODS_PER_JOB * 1e6, "us/pod"),
    ]


def measure_events(bench: Bench) -> list[Result]:
    """Record, correlate and write events to a server that responds at once."""
    events = JOBS * sum(count for _, count in REPLICAS)
    bench.say(f"recording {events} events, {PLAN_ROUNDS} times")
    seconds = [asyncio.run(_record()) for _ in range(PLAN_ROUNDS)]
    return [Result("event_write", median(seconds) / events * 1e6, "us/event")]


def measure_scrape(bench: Bench) -> list[Result]:
    """Count jobs by state for `tf_operator_jobs`: by the index, and by a walk over the cache."""
    bench.say(f"counting {len(KEYS):,} jobs, {PLAN_ROUNDS} times")
    indexer: Indexer[TFJob] = Indexer({STATE_INDEX: index_by_state})
    for number, key in enumerate(KEYS):
        indexer.put(key, job(number, key.partition("/")[0], REPLICAS))
    metrics = JobMetrics()
    metrics.indexers.append(indexer)
    sides: dict[str, Callable[[], object]] = {
        "index": lambda: metrics.by_state(0.0),
        "walk": lambda: Counter(index_by_state(each)[0] for each in indexer.list()),
    }
    seconds = interleaved({name: partial(_time_of, side) for name, side in sides.items()}, PLAN_ROUNDS)
    return [
        Result("scrape_jobs", median(seconds["index"]) * 1e3, "ms"),
        Result("scrape_jobs_speedup", ratio(seconds["walk"], seconds["index"]), "x", at_least(10)),
    ]


def _time_of(run: Callable[[], object]) -> float:
    began = time.thread_time()
    run()
    return time.thread_time() - began


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
