"""Subjects `workqueue`, `plan`, `events`, `scrape`, in one process without a server."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from statistics import median
from typing import Final, NamedTuple

import msgspec

from hack.bench.load import MeasureError, job, pod_body, ps_and_workers, running_status
from hack.bench.measuring import Bench, Result, interleaved, ratio
from hack.bench.playback import Player
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.core import EventType, ObjectReference
from tfjob_operator.api.v1.types import TFJob, TFJobSpec, child_name
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.jobs.children import Pod, ReplicaKey, Service
from tfjob_operator.controller.jobs.job_metrics import JOB_INDEXERS, JobMetrics, index_by_state
from tfjob_operator.controller.tfjob.build.builder import PodBuilder, build_service
from tfjob_operator.controller.tfjob.plan.plan import plan
from tfjob_operator.controller.tfjob.plan.types import Plan, PlanInput
from tfjob_operator.informers.store import MutableIndexer
from tfjob_operator.workqueue import LoopClock, RateLimitingQueue, default_controller_rate_limiter

# Subject `workqueue`: items through add, get and done, relative to an `asyncio.Queue` with the same producer and consumers.
#
# The queue is the controller's, `RateLimitingQueue`, with all its layers. An operation is add, get and done of one item. A
# producer adds keys in batches and lets the loop run after each; consumers only get and done. CPU time is measured.


ROUNDS: Final = 5
KEYS: Final = [f"team-{number % 20}/mnist-dist-{number:05d}" for number in range(10_000)]
PASSES: Final = 10
BATCH: Final = 500
"""Keys per batch: as many as in a page of a list."""


class Hands(NamedTuple):
    """The operations of producers and consumers."""

    add: Callable[[str], None]
    get: Callable[[], Awaitable[str]]
    done: Callable[[str], None]


def measure_queue(bench: Bench) -> list[Result]:
    """Measure the throughput with one and with eight consumers."""
    bench.say(f"passing {len(KEYS) * PASSES:,} keys through the work queue and through asyncio.Queue, {ROUNDS} times")
    rates = interleaved(
        {
            f"{name} {consumers}": partial(_rate, make, consumers)
            for consumers in (1, 8)
            for name, make in (("ours", _work_queue), ("bare", _bare_queue))
        },
        ROUNDS,
    )
    return [
        Result("workqueue_ops", median(rates["ours 1"]), "ops/s", ">= 600000"),
        Result("workqueue_vs_asyncio_queue", ratio(rates["ours 1"], rates["bare 1"]), "x"),
        Result("workqueue_ops_8_consumers", median(rates["ours 8"]), "ops/s"),
        Result("workqueue_vs_asyncio_queue_8_consumers", ratio(rates["ours 8"], rates["bare 8"]), "x"),
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


# Subjects `plan` and `events`: the CPU time of the pure part of a sync, and of an event in the recorder.


PLAN_ROUNDS: Final = 7
FIVE: Final = ps_and_workers()
PLANS: Final = 2000
EVENTS: Final = 900
"""Few enough for the recorder's buffer of a thousand."""


class Observed(NamedTuple):
    """What a plan depends on."""

    job: TFJob
    spec: TFJobSpec
    pods: Sequence[Pod] = ()
    services: Sequence[Service] = ()

    def plan(self) -> Plan:
        """Plan, a minute after the job started."""
        now = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
        return plan(PlanInput(job=self.job, spec=self.spec, pods=self.pods, services=self.services, now=now))


def measure_planning(bench: Bench) -> list[Result]:
    """Measure a job of one PS and four workers: its first sync, which creates everything, and a sync with nothing to do."""
    bench.say(f"planning a job of 5 replicas {PLANS:,} times, {PLAN_ROUNDS} times")
    new, settled = worlds()
    sides: dict[str, Callable[[], float]] = {
        "new": partial(_time_of, new.plan, PLANS),
        "settled": partial(_time_of, settled.plan, PLANS),
        "build": partial(_time_of, lambda: [pod_body(number) for number in range(20)]),
    }
    seconds = interleaved(sides, PLAN_ROUNDS)
    return [
        Result("plan_first_sync", median(seconds["new"]) / PLANS * 1e6, "us/sync"),
        Result("plan_idle_sync", median(seconds["settled"]) / PLANS * 1e6, "us/sync"),
        Result("pod_build", median(seconds["build"]) / 20 * 1e6, "us/pod"),
    ]


def measure_events(bench: Bench) -> list[Result]:
    """Measure recording, correlating and writing events to a server that responds at once."""
    bench.say(f"recording {EVENTS} events, {PLAN_ROUNDS} times")
    seconds = [asyncio.run(_record()) for _ in range(PLAN_ROUNDS)]
    return [Result("event_write", median(seconds) / EVENTS * 1e6, "us/event")]


def measure_scrape(bench: Bench) -> list[Result]:
    """Measure the CPU time to count jobs by state for `tf_operator_jobs`, from the index and from the cache."""
    bench.say(f"counting {len(KEYS):,} jobs, {PLAN_ROUNDS} times")
    indexer: MutableIndexer[TFJob] = MutableIndexer(JOB_INDEXERS)
    for key in KEYS:
        namespace, _, name = key.partition("/")
        indexer.put(key, job(namespace, name, FIVE)[0])
    metrics = JobMetrics()
    metrics.indexers.append(indexer)
    sides: dict[str, Callable[[], object]] = {
        "index": lambda: metrics.by_state(0.0),
        "walk": lambda: Counter(index_by_state(each)[0] for each in indexer.list()),
    }
    seconds = interleaved({name: partial(_time_of, side) for name, side in sides.items()}, PLAN_ROUNDS)
    return [
        Result("scrape_jobs", median(seconds["index"]) * 1e3, "ms"),
        Result("scrape_jobs_speedup", ratio(seconds["walk"], seconds["index"]), "x", ">= 10"),
    ]


def _time_of(run: Callable[[], object], times: int = 1) -> float:
    began = time.thread_time()
    for _ in range(times):
        run()
    return time.thread_time() - began


def worlds() -> tuple[Observed, Observed]:
    """Return a job without children, and the same job when everything is running and its status is up to date."""
    new = Observed(*job("team", "mnist-dist", FIVE))
    spec, begun = new.spec, new.plan()
    pods = [_running_pod(new, slot, number) for number, slot in enumerate(begun.create_pods)]
    services = [msgspec.convert(build_service(new.job.metadata, spec, slot), Service) for slot in begun.create_services]
    started = Observed(_with_status_of(new.job, begun), spec, pods, services)
    settled = Observed(_with_status_of(started.job, started.plan()), spec, pods, services)
    if len(pods) != 5 or settled.plan() != Plan():
        raise MeasureError(f"the benchmark's own job does not settle: {settled.plan()}")
    return new, settled


def _running_pod(world: Observed, key: ReplicaKey, number: int) -> Pod:
    body = PodBuilder(world.job, world.spec).build(key)
    uid = {"uid": child_name("uid", key.type, key.index)}
    made = body | {"metadata": body["metadata"] | uid, "status": running_status(number)}
    return msgspec.json.decode(msgspec.json.encode(made), type=Pod)


def _with_status_of(known: TFJob, decided: Plan) -> TFJob:
    return known if decided.status is None else msgspec.structs.replace(known, status=decided.status)


async def _record() -> float:
    recorder = EventRecorder(RestClient(Player([])), component="bench", clock=LoopClock())
    began = time.thread_time()
    for number in range(EVENTS):
        name = f"mnist-dist-{number // 5:05d}"
        regarding = ObjectReference(kind="TFJob", namespace="team", name=name, uid=name)
        recorder.event(regarding, EventType.NORMAL, "SuccessfulCreatePod", f"Created pod: {name}-worker-{number % 5}")
    recorder.stop()
    await recorder.run()
    return time.thread_time() - began
