"""The metrics of a queue, as a scraper sees them."""

import asyncio

import pytest

from fakes.metrics import FakeMetrics
from kit.virtual_loop import FakeClock
from tfjob_operator.workqueue import DelayingQueue, Queue
from tfjob_operator.workqueue import metrics as wq_metrics


async def test_a_life_of_an_item_is_measured_from_add_to_done() -> None:
    """A7, metrics_test.go:TestMetrics: with a clock that stands still unless told."""
    clock, seen = FakeClock(), FakeMetrics()
    queue: Queue[str] = Queue(name="jobs", metrics=seen, clock=clock)
    queue.add("foo")
    queue.add("foo")
    assert seen[wq_metrics.ADDS].count == 1
    assert seen[wq_metrics.DEPTH].read() == 1
    clock.step(50e-6)

    await queue.get()
    assert seen[wq_metrics.DEPTH].read() == 0
    assert seen[wq_metrics.QUEUE_DURATION].observed == pytest.approx([50e-6])

    clock.step(25e-6)
    for _ in range(5):
        queue.add("foo")
    assert seen[wq_metrics.ADDS].count == 2, "five adds in work are one"
    assert seen[wq_metrics.DEPTH].read() == 1
    clock.step(25e-6)
    queue.done("foo")
    assert seen[wq_metrics.WORK_DURATION].observed == pytest.approx([50e-6])

    clock.step(10e-6)
    await queue.get()
    latencies = seen[wq_metrics.QUEUE_DURATION].observed
    assert latencies == pytest.approx([50e-6, 35e-6]), "from the add, not from done"


async def test_work_that_hangs_is_seen_at_any_scrape() -> None:
    """A7, metrics_test.go:TestMetrics, TestMetricShutdown: sum and maximum of the ages, also while a shut down queue drains."""
    clock, seen = FakeClock(), FakeMetrics()
    queue: Queue[str] = Queue(name="jobs", metrics=seen, clock=clock)
    unfinished, longest = seen[wq_metrics.UNFINISHED_WORK], seen[wq_metrics.LONGEST_RUNNING]
    assert (unfinished.read(), longest.read()) == (0.0, 0.0)
    for item in ("foo", "bar"):
        queue.add(item)
        await queue.get()
        clock.step(1.0)
    queue.shut_down()
    assert (unfinished.read(), longest.read()) == pytest.approx((3.0, 2.0))
    queue.done("foo")
    assert (unfinished.read(), longest.read()) == pytest.approx((1.0, 1.0))


async def test_waiting_for_the_getter_to_run_is_latency_and_not_work() -> None:
    """A7: an item handed to a waiting getter is in work when the getter has it; if it is given back, it was never in work."""
    clock, seen = FakeClock(), FakeMetrics()
    queue: Queue[str] = Queue(name="jobs", metrics=seen, clock=clock)
    doomed, getter = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("foo")
    doomed.cancel()
    clock.step(3.0)
    await getter
    assert seen[wq_metrics.QUEUE_DURATION].observed == pytest.approx([3.0])
    assert seen[wq_metrics.LONGEST_RUNNING].read() == 0.0


async def test_an_item_given_back_and_added_meanwhile_counts_from_its_first_add() -> None:
    """A7, WQ-04: it has waited since then."""
    clock, seen = FakeClock(), FakeMetrics()
    queue: Queue[str] = Queue(name="jobs", metrics=seen, clock=clock)
    doomed = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("foo")
    clock.step(1.0)
    queue.add("foo")
    doomed.cancel()
    await asyncio.wait([doomed])
    clock.step(1.0)
    await queue.get()
    assert seen[wq_metrics.QUEUE_DURATION].observed == pytest.approx([2.0])


async def test_an_item_added_again_on_its_way_to_a_getter_is_measured_twice() -> None:
    """A7, WQ-02: two adds in one tick while a worker waits are two pieces of work, and the second one is measured too."""
    clock, seen = FakeClock(), FakeMetrics()
    queue: Queue[str] = Queue(name="jobs", metrics=seen, clock=clock)
    getter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("foo")
    queue.add("foo")
    await getter
    clock.step(2.0)
    queue.done("foo")
    await queue.get()
    assert seen[wq_metrics.ADDS].count == 2
    assert seen[wq_metrics.QUEUE_DURATION].observed == pytest.approx([0.0, 2.0])
    assert seen[wq_metrics.WORK_DURATION].observed == pytest.approx([2.0])


async def test_every_delayed_add_counts_as_a_retry_until_shutdown() -> None:
    """DQ-04, metrics_test.go:TestMetrics: also one without a delay, and one that is superseded."""
    seen = FakeMetrics()
    queue: DelayingQueue[str] = DelayingQueue(name="jobs", metrics=seen)
    for delay in (5.0, 7.0, 0.0, -1.0):
        queue.add_after("foo", delay)
    assert seen[wq_metrics.RETRIES].count == 4
    queue.shut_down()
    queue.add_after("foo", 1.0)
    assert seen[wq_metrics.RETRIES].count == 4


def test_a_queue_without_a_name_makes_no_series() -> None:
    """A7: two nameless queues would write over each other."""
    seen = FakeMetrics()
    queue: DelayingQueue[str] = DelayingQueue(metrics=seen)
    queue.add("foo")
    assert seen.series == {}
