"""Subject `workqueue`: items through add, get and done, against an `asyncio.Queue` with the same producer and consumers.

The queue is the one that the controller uses, `RateLimitingQueue`, with all its layers. An operation is one item's whole way:
add, get, done. A producer adds keys in batches and lets the loop run after each; consumers only get and done. Time is CPU
time, so that other processes do not count; but the latency of a wake-up is wall time, since it is spent waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final

from hack.bench.bench import Bench
from hack.bench.measure import interleaved, percentile, ratio
from hack.bench.result import Result, at_least
from tfjob_operator.workqueue import RateLimitingQueue, default_controller_rate_limiter

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


def measure(bench: Bench) -> list[Result]:
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
