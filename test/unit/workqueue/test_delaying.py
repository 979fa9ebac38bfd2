"""Delayed adds: when they come, what supersedes them, and that nothing of them outlives a shutdown."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kit.virtual_loop import VirtualTimeLoop
from tfjob_operator.workqueue import DelayingQueue, ShutDown


class Timers:
    def __init__(self) -> None:
        self.loop = cast("Any", asyncio.get_running_loop())
        self.made: list[asyncio.TimerHandle] = []
        self._call_at = self.loop.call_at
        self.loop.call_at = self._note

    def _note(self, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        self.made.append(self._call_at(*arguments, **options))
        return self.made[-1]

    @property
    def armed(self) -> list[float]:
        return [timer.when() for timer in self.made if not timer.cancelled() and timer.when() > self.loop.time()]


async def arrivals(queue: DelayingQueue[str], count: int) -> list[tuple[float, str]]:
    """Take `count` items, with the times at which they came."""
    came = []
    for _ in range(count):
        item = await queue.get()
        came.append((asyncio.get_running_loop().time(), item))
        queue.done(item)
    return came


@pytest.mark.parametrize("delay", [0.0, -1.0])
async def test_an_item_comes_when_its_delay_is_over_and_not_before(delay: float) -> None:
    """DQ-01, delaying_queue_test.go:TestSimpleQueue: zero and less are now. An add does not call off a delayed one."""
    queue: DelayingQueue[str] = DelayingQueue()
    queue.add_after("a", 50.0)
    queue.add_after("a", delay)
    assert len(queue) == 1
    assert await arrivals(queue, 1) == [(0.0, "a")]
    await asyncio.sleep(49.9)
    assert len(queue) == 0
    assert await arrivals(queue, 1) == [(50.0, "a")]


async def test_the_earlier_of_two_times_for_an_item_wins() -> None:
    """DQ-02, delaying_queue_test.go:TestDeduping: it comes once, and what was superseded does not fire for a later add."""
    queue: DelayingQueue[str] = DelayingQueue()
    for item, delay in (("a", 50.0), ("a", 70.0), ("b", 60.0), ("b", 30.0)):
        queue.add_after(item, delay)
    assert await arrivals(queue, 2) == [(30.0, "b"), (50.0, "a")]
    queue.add_after("b", 100.0)
    assert await arrivals(queue, 1) == [(150.0, "b")]
    await asyncio.sleep(1000)
    assert len(queue) == 0


async def test_items_line_up_in_the_order_in_which_they_fall_due_and_are_not_counted_before() -> None:
    """DQ-02, PQ-03, delaying_queue_test.go:TestAddTwoFireEarly: "doesn't include non-ready items in Len()"."""
    queue: DelayingQueue[str] = DelayingQueue()
    queue.add_after("second", 2.0)
    queue.add_after("first", 1.0)
    assert len(queue) == 0
    await asyncio.sleep(1.5)
    queue.add("between")
    assert len(queue) == 2
    await asyncio.sleep(1.0)
    queue.add("last")
    assert [await queue.get() for _ in range(4)] == ["first", "between", "second", "last"]


async def test_items_with_every_order_of_delays_come_in_the_order_of_their_times() -> None:
    """DQ-03, delaying_queue_test.go:TestCopyShifting: without a heartbeat, none comes late."""
    delays = [float(delay) for delay in range(1, 200)]
    Random(3).shuffle(delays)
    queue: DelayingQueue[str] = DelayingQueue()
    for delay in delays:
        queue.add_after(str(delay), delay)
    came = await arrivals(queue, 199)
    assert [item for _, item in came] == [str(delay) for delay in sorted(delays)]
    assert [at for at, _ in came] == pytest.approx(sorted(delays))


async def test_items_due_at_one_moment_come_in_the_order_of_their_adds() -> None:
    """DQ-01: and are never compared with each other."""
    queue: DelayingQueue[complex] = DelayingQueue()
    for item in (3j, 1j, 2j):
        queue.add_after(item, 1.0)
    assert [await queue.get() for _ in range(3)] == [3j, 1j, 2j]


async def test_an_item_that_falls_due_in_work_comes_back_when_it_is_done() -> None:
    """DQ-01, WQ-03: the rules of any queue hold for delayed adds."""
    queue: DelayingQueue[str] = DelayingQueue()
    queue.add("a")
    await queue.get()
    queue.add_after("a", 1.0)
    await asyncio.sleep(2)
    assert len(queue) == 0
    queue.done("a")
    assert len(queue) == 1


async def test_a_delayed_add_has_normal_priority() -> None:
    """PQ-04: a delayed add has normal priority; it asked for a time, and its time has come."""
    queue: DelayingQueue[str] = DelayingQueue()
    queue.add("low", low_priority=True)
    queue.add_after("delayed", 1.0)
    await asyncio.sleep(2)
    assert [await queue.get(), await queue.get()] == ["delayed", "low"]


async def test_a_delayed_item_has_the_highest_priority_of_its_delayed_adds() -> None:
    """PQ-06: and an earlier delay does not change that; after its time the next delay starts anew."""
    queue: DelayingQueue[str] = DelayingQueue()
    for item, delay, low in (("low", 1.0, True), ("low", 2.0, True), ("up", 2.0, True), ("up", 3.0, False)):
        queue.add_after(item, delay, low_priority=low)
    for item, low in (("down", False), ("down", True), ("at once", True)):
        queue.add_after(item, 0.0 if item == "at once" else 1.0, low_priority=low)
    await asyncio.sleep(2)
    found = [await queue.get_with_priority() for _ in range(4)]
    assert sorted(found) == [("at once", True), ("down", False), ("low", True), ("up", False)]
    for item, _ in found:
        queue.done(item)
    queue.add_after("down", 1.0, low_priority=True)
    queue.add_after("low", 1.0)
    await asyncio.sleep(1)
    assert [await queue.get_with_priority() for _ in range(2)] == [("low", False), ("down", True)]


async def test_a_delay_that_is_no_number_is_refused() -> None:
    """It compares with nothing, and would put the heap of all delayed items out of order."""
    queue: DelayingQueue[str] = DelayingQueue()
    with pytest.raises(ValueError, match="the delay of 'a' is not a number"):
        queue.add_after("a", float("nan"))


async def test_asking_again_and_again_for_the_same_delay_does_not_postpone_an_item() -> None:
    """DQ-02: a sync that asks for a minute each time it runs gets that minute, not the last one of an endless row."""
    queue: DelayingQueue[str] = DelayingQueue()
    for _ in range(600):
        queue.add_after("a", 60.0)
        await asyncio.sleep(0.1)
    assert await arrivals(queue, 1) == [(60.0, "a")]


async def test_the_timer_is_set_anew_only_when_the_head_changes() -> None:
    """DQ-03: a thousand later items cost no timer; one timer at a time, at the earliest due time."""
    timers = Timers()
    queue: DelayingQueue[int] = DelayingQueue()
    for item in range(1000):
        queue.add_after(item, 10.0 + item)
    assert (len(timers.made), timers.armed) == (1, [10.0])
    queue.add_after(1000, 5.0)
    assert (len(timers.made), timers.armed) == (2, [5.0])
    queue.shut_down()
    assert (len(timers.made), timers.armed) == (2, [])


async def test_no_timer_is_left_for_an_entry_that_was_superseded() -> None:
    """DQ-02: when the earlier one has come, there is nothing to wake up for."""
    timers = Timers()
    queue: DelayingQueue[str] = DelayingQueue()
    for item, delay in (("a", 50.0), ("a", 5.0), ("b", 99.0)):
        queue.add_after(item, delay)
    await queue.get()
    assert timers.armed == [99.0]


async def test_a_timer_that_fires_a_clock_tick_early_still_releases_its_item() -> None:
    """DQ-03: asyncio runs timers up to one clock resolution before their time; that must not cost another round."""
    timers = Timers()
    queue: DelayingQueue[str] = DelayingQueue()
    queue.add_after("a", 5.0)
    timers.made[0]._run()
    assert len(queue) == 1
    assert timers.armed == []
    timers.made[0].cancel()


async def test_superseded_entries_do_not_pile_up_and_sweeping_them_out_keeps_the_order_of_the_others() -> None:
    """DQ-02: a job that asks for its deadline at every sync, each time a little earlier, takes no memory for that."""
    random = Random(5)
    queue: DelayingQueue[str] = DelayingQueue()
    due: dict[str, float] = {}
    for step in range(10_000):
        item, delay = random.choice([("last", 2000.0), (f"item-{step % 100}", 1000.0 - step / 100 + random.random())])
        queue.add_after(item, delay)
        due[item] = min(delay, due.get(item, delay))
        assert len(queue._heap) <= 2 * len(due) + 64
    assert await arrivals(queue, len(due)) == [(due[item], item) for item in sorted(due, key=lambda item: due[item])]


@pytest.mark.parametrize("drain", [False, True])
async def test_both_kinds_of_shutdown_stop_the_timer_and_drop_what_is_delayed(drain: bool) -> None:
    """DQ-04, DQ-05: at once, where client-go's drain leaves its timer to the next heartbeat."""
    timers = Timers()
    queue: DelayingQueue[str] = DelayingQueue()
    queue.add_after("a", 5.0)
    if drain:
        await queue.shut_down_with_drain()
    else:
        queue.shut_down()
    assert timers.armed == []
    queue.add_after("b", 1.0)
    queue.add_after("c", 0.0)
    assert timers.armed == []
    assert queue.shutting_down
    with pytest.raises(ShutDown):
        await queue.get()


async def test_a_drain_of_the_delaying_queue_waits_for_the_work() -> None:
    """DQ-05, WQ-06: what is delayed is dropped, what is in work is awaited."""
    queue: DelayingQueue[str] = DelayingQueue()
    queue.add("a")
    await queue.get()
    queue.add_after("a", 5.0)
    drain = asyncio.create_task(queue.shut_down_with_drain())
    await asyncio.sleep(10)
    assert not drain.done()
    queue.done("a")
    await drain
    assert len(queue) == 0


class DelayingMachine(RuleBasedStateMachine):
    """The model: a dict from item to its earliest due time, and a line. Times are whole seconds, so they are exact."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.queue: DelayingQueue[str] = DelayingQueue()
        self.due: dict[str, float] = {}
        self.line: list[str] = []
        self.closed = False

    async def _call(self, call: Callable[[], None]) -> None:
        call()

    def arrive(self, item: str) -> None:
        if item not in self.line:
            self.line.append(item)

    @rule(item=st.sampled_from("abcdefgh"), delay=st.integers(-1, 30))
    def add_after(self, item: str, delay: int) -> None:
        self.loop.run_until_complete(self._call(lambda: self.queue.add_after(item, delay)))
        if self.closed:
            return
        if delay <= 0:
            self.arrive(item)
        else:
            due = self.loop.time() + delay
            self.due[item] = min(self.due.get(item, due), due)

    @rule(item=st.sampled_from("abcdefgh"))
    def add(self, item: str) -> None:
        self.queue.add(item)
        if not self.closed:
            self.arrive(item)

    @rule(seconds=st.integers(1, 15))
    def let_time_pass(self, seconds: int) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        # Items that are due together come in the order of the requests that count; the next rule does not check it.
        for item in sorted(self.due, key=lambda item: self.due[item]):
            if self.due[item] <= self.loop.time():
                del self.due[item]
                self.arrive(item)

    @precondition(lambda self: self.line)
    @rule()
    def take_all(self) -> None:
        taken = [self.loop.run_until_complete(self.queue.get()) for _ in range(len(self.line))]
        for item in taken:
            self.queue.done(item)
        assert sorted(taken) == sorted(self.line)
        self.line.clear()

    @rule(drain=st.booleans())
    def shut_down(self, drain: bool) -> None:
        if drain and not self.line:
            self.loop.run_until_complete(self.queue.shut_down_with_drain())
        else:
            self.queue.shut_down()
        self.closed = True
        self.due.clear()

    @invariant()
    def the_same_number_waits(self) -> None:
        assert len(self.queue) == len(self.line)

    def teardown(self) -> None:
        self.queue.shut_down()
        self.loop.close()


TestDelayingQueueAgainstItsModel = DelayingMachine.TestCase
TestDelayingQueueAgainstItsModel.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
