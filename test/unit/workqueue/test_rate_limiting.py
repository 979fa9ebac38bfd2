"""The queue that a controller holds: retries that come after a delay."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from fakes.virtual_loop import VirtualTimeLoop
from tfjob_operator.workqueue import ItemExponentialFailureRateLimiter, RateLimitingQueue, ShutDown


def exponential_queue() -> RateLimitingQueue[str]:
    return RateLimitingQueue(ItemExponentialFailureRateLimiter(0.001, 1.0))


async def test_a_rate_limited_add_comes_when_the_limiter_says() -> None:
    """RL-06, rate_limiting_queue_test.go:TestRateLimitingQueue."""
    queue = exponential_queue()
    came = []
    for _ in range(4):
        begun = asyncio.get_running_loop().time()
        queue.add_rate_limited("a")
        assert len(queue) == 0
        queue.done(await queue.get())
        came.append(asyncio.get_running_loop().time() - begun)
    assert came == pytest.approx([0.001, 0.002, 0.004, 0.008])
    assert queue.num_requeues("a") == 4


async def test_forget_clears_the_failures_and_not_the_work() -> None:
    """RL-06, TestRateLimitingQueue: `done` must still be called."""
    queue = exponential_queue()
    queue.add("a")
    await queue.get()
    queue.add_rate_limited("a")
    queue.forget("a")
    assert queue.num_requeues("a") == 0
    await asyncio.sleep(1)
    assert len(queue) == 0, "still in work"
    queue.done("a")
    assert len(queue) == 1, "the add that was under way still comes"


async def test_done_does_not_clear_the_failures() -> None:
    """RL-06: a worker that never forgets makes its keys ever slower."""
    queue = exponential_queue()
    for _ in range(3):
        queue.add_rate_limited("a")
        queue.done(await queue.get())
    assert queue.num_requeues("a") == 3


@pytest.mark.parametrize("seed", range(10))
def test_every_key_succeeds_in_the_end_however_often_it_fails(seed: int) -> None:
    """RL-06, WQ-03: eight workers, syncs that fail as the seed decides, and changes that go on meanwhile."""
    random = Random(seed)
    queue: RateLimitingQueue[int] = RateLimitingQueue(ItemExponentialFailureRateLimiter(0.005, 1.0))
    wanted, seen, in_work = dict.fromkeys(range(20), 0), dict.fromkeys(range(20), 0), set()

    async def worker() -> None:
        while True:
            try:
                key = await queue.get()
            except ShutDown:
                return
            assert key not in in_work, "one key in two hands"
            in_work.add(key)
            version = wanted[key]
            await asyncio.sleep(random.random() * 0.02)
            if random.random() < 0.6:
                queue.add_rate_limited(key)
            else:
                seen[key] = version
                queue.forget(key)
            in_work.remove(key)
            queue.done(key)

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(worker())
            for _ in range(300):
                key = random.randrange(20)
                wanted[key] += 1
                queue.add(key)
                await asyncio.sleep(random.random() * 0.01)
            await asyncio.sleep(
                600
            )  # no run of bad luck in these seeds is longer: at most a second and a bit for each try
            assert seen == wanted, "a change was lost"
            await queue.shut_down_with_drain()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(scenario())
