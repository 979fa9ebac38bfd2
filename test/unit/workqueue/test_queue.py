"""The promises of the plain queue, one by one. `test_queue_model.py` looks for what these examples forgot."""

import asyncio
import gc
import weakref

import pytest

from tfjob_operator.workqueue import Queue, ShutDown
from tfjob_operator.workqueue.queue import LOW_PRIORITY_TURN


async def settle() -> None:
    """Let every task run until it waits: no chain of wake-ups in these tests is longer than this."""
    for _ in range(6):
        await asyncio.sleep(0)


async def with_getters(count: int) -> tuple[Queue[str], list[asyncio.Task[str]]]:
    queue: Queue[str] = Queue()
    getters = [asyncio.create_task(queue.get()) for _ in range(count)]
    await settle()
    return queue, getters


async def at_work(*items: str) -> Queue[str]:
    queue: Queue[str] = Queue()
    for item in items:
        queue.add(item)
        await queue.get()
    return queue


async def draining(queue: Queue[str]) -> asyncio.Task[None]:
    """A drain that has begun, and waits."""
    drain = asyncio.create_task(queue.shut_down_with_drain())
    await settle()
    assert not drain.done()
    return drain


async def test_fifty_producers_and_ten_consumers_handle_every_item() -> None:
    """WQ-01, queue_test.go:TestBasic: nothing is lost, and nothing comes after the end."""
    queue: Queue[str] = Queue()
    seen: set[str] = set()

    async def produce(number: int) -> None:
        for turn in range(50):
            queue.add(f"{number}-{turn}")
            await asyncio.sleep(0.001)

    async def consume() -> None:
        while True:
            try:
                item = await queue.get()
            except ShutDown:
                return
            assert item != "late"
            await asyncio.sleep(0.003)
            seen.add(item)
            queue.done(item)

    async with asyncio.TaskGroup() as consumers:
        for _ in range(10):
            consumers.create_task(consume())
        async with asyncio.TaskGroup() as producers:
            for number in range(50):
                producers.create_task(produce(number))
        queue.shut_down()
        queue.add("late")
    assert seen == {f"{number}-{turn}" for number in range(50) for turn in range(50)}


async def test_items_come_out_once_in_the_order_of_their_first_adds() -> None:
    """WQ-01, WQ-02, queue_test.go:TestCollapse, TestLen: first in, first out; adding an item that waits changes nothing."""
    queue: Queue[int] = Queue()
    for item in (3, 1, 2, 3, 3):
        queue.add(item)
    assert len(queue) == 3
    assert [await queue.get() for _ in range(3)] == [3, 1, 2]
    assert len(queue) == 0


async def test_adding_an_item_in_work_brings_it_back_once_at_the_tail() -> None:
    """WQ-03, queue_test.go:TestAddWhileProcessing, TestCollapseWhileProcessing, TestReinsert."""
    queue = await at_work("hot")
    for item in ("hot", "hot", "other"):
        queue.add(item)
    assert len(queue) == 1, "an item in work does not line up"
    queue.done("hot")
    assert [await queue.get(), await queue.get()] == ["other", "hot"]
    queue.done("hot")
    assert len(queue) == 0


async def test_done_for_an_item_that_is_not_in_work_is_refused() -> None:
    """WQ-03: client-go would put a waiting item in line twice, and two workers could then have one key."""
    queue: Queue[str] = Queue()
    queue.add("a")
    with pytest.raises(ValueError, match="not being processed"):
        queue.done("a")
    queue.done(await queue.get())
    with pytest.raises(ValueError, match="not being processed"):
        queue.done("a")


def test_get_does_not_suspend_when_an_item_waits() -> None:
    """WQ-04: no loop is touched, so none is needed here."""
    queue: Queue[str] = Queue()
    queue.add("a")
    with pytest.raises(StopIteration) as answer:
        queue.get().send(None)
    assert answer.value.value == "a"


async def test_getters_are_served_in_the_order_in_which_they_came() -> None:
    """WQ-04, queue_test.go:TestBasic: a late getter cannot take the item of one that was woken before it."""
    queue, (first, second) = await with_getters(2)
    assert not first.done()
    for item in "123":
        queue.add(item)
    assert await queue.get() == "3", "1 and 2 belong to those who waited"
    assert [await first, await second] == ["1", "2"]


async def test_a_getter_cancelled_while_it_waits_takes_nothing_with_it() -> None:
    """WQ-04: cancelled before the add, in an earlier tick and in the same one."""
    queue, (early, late, alive) = await with_getters(3)
    early.cancel()
    await settle()
    late.cancel()
    queue.add("a")
    assert await alive == "a"
    assert late.cancelled()


async def test_a_getter_cancelled_after_it_was_handed_an_item_gives_it_back() -> None:
    """WQ-04: the cancel comes in the same tick, before the getter ran. The item is first in line again."""
    queue, (getter,) = await with_getters(1)
    queue.add("a")
    queue.add("b")
    getter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await getter
    assert len(queue) == 2
    with pytest.raises(ValueError, match="not being processed"):
        queue.done("a")
    assert [await queue.get(), await queue.get()] == ["a", "b"]


async def test_an_item_given_back_goes_to_the_next_getter_that_waits() -> None:
    """WQ-04: no wake-up is lost, even when several getters in a row are cancelled after they were handed the item."""
    queue, getters = await with_getters(4)
    queue.add("a")
    for getter in getters[:3]:
        getter.cancel()
    assert await getters[3] == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_an_item_given_back_and_added_meanwhile_is_one_piece_of_work() -> None:
    """WQ-02, WQ-04: added, handed out, added again, given back, all in one tick."""
    queue, (getter,) = await with_getters(1)
    queue.add("a")
    queue.add("a", low_priority=True)
    getter.cancel()
    await settle()
    assert len(queue) == 1
    queue.done(await queue.get())
    assert len(queue) == 0


async def test_a_getter_that_times_out_as_its_item_arrives_loses_nothing() -> None:
    """WQ-04: the time-out and the add are due at the same moment, in both orders."""
    for add_at in (0.999999, 1.0, 1.000001):
        queue: Queue[str] = Queue()
        asyncio.get_running_loop().call_later(add_at, queue.add, "a")
        try:
            async with asyncio.timeout(1.0):
                item = await queue.get()
        except TimeoutError:
            item = await queue.get()
        assert item == "a"


async def test_a_getter_closed_without_being_cancelled_takes_nothing_with_it() -> None:
    """WQ-04: a coroutine that is driven by hand may just be dropped."""
    queue: Queue[str] = Queue()
    getter = queue.get()
    getter.send(None)
    getter.close()
    queue.add("a")
    assert len(queue) == 1


async def test_after_shutdown_adds_are_ignored_and_the_line_is_still_handed_out() -> None:
    """WQ-05, queue_test.go:TestNoQueueDrainageUsingShutDown, TestReinsert: also what was added again while in work."""
    queue = await at_work("again")
    for item in ("again", "a"):
        queue.add(item)
    queue.shut_down()
    queue.shut_down()
    queue.add("b")
    queue.done("again")
    assert queue.shutting_down
    assert [await queue.get(), await queue.get()] == ["a", "again"]
    with pytest.raises(ShutDown):
        await queue.get()


async def test_shutdown_wakes_every_getter() -> None:
    """WQ-05, PQ-05: all of them raise ShutDown, at once."""
    queue, getters = await with_getters(3)
    queue.shut_down()
    answers = await asyncio.gather(*getters, return_exceptions=True)
    assert [type(answer) for answer in answers] == [ShutDown] * 3


async def test_a_getter_cancelled_in_the_tick_of_the_shutdown_leaves_no_complaint() -> None:
    """WQ-05: the ShutDown that nobody will read is not reported as an exception that was never retrieved."""
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    queue, (getter,) = await with_getters(1)
    queue.shut_down()
    getter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await getter
    del getter
    gc.collect()
    assert complaints == []


async def test_draining_waits_until_all_work_is_done() -> None:
    """WQ-06, queue_test.go:TestQueueDrainageUsingShutDownWithDrain, also after a shutdown."""
    queue = await at_work("a", "b")
    queue.shut_down()
    drain = await draining(queue)
    queue.add("c")
    queue.done("a")
    await settle()
    assert not drain.done()
    queue.done("b")
    await drain
    with pytest.raises(ShutDown):
        await queue.get()


async def test_draining_finishes_what_was_in_line_and_what_was_added_again_in_work() -> None:
    """WQ-06, queue_test.go:TestQueueDrainageUsingShutDownWithDrainWithDirtyItem.

    client-go's documentation says so; its code returns at once, or when the first item is done, if items wait in line.
    """
    queue = await at_work("again")
    queue.add("a")
    queue.add("again")
    drain = await draining(queue)
    queue.done("again")
    for _ in range(2):
        item = await queue.get()
        await settle()
        assert not drain.done()
        queue.done(item)
    await drain
    queue = Queue()
    queue.add("in line alone")
    drain = await draining(queue)
    queue.done(await queue.get())
    await drain


async def test_draining_an_idle_queue_returns_at_once() -> None:
    """WQ-06: also the second time, and after a shutdown."""
    queue: Queue[str] = Queue()
    await queue.shut_down_with_drain()
    await queue.shut_down_with_drain()
    queue.shut_down()
    await queue.shut_down_with_drain()


async def test_a_later_shutdown_ends_the_drains_but_not_those_that_follow() -> None:
    """WQ-06, queue_test.go:TestForceQueueShutdownUsingShutDown: one that is cancelled leaves the others waiting."""
    queue = await at_work("a")
    drains = [await draining(queue) for _ in range(3)]
    drains.pop().cancel()
    await settle()
    assert queue.shutting_down
    assert not any(drain.done() for drain in drains)
    queue.shut_down()
    await asyncio.gather(*drains)
    patient = await draining(queue)
    queue.done("a")
    await patient


async def test_a_finished_item_is_not_kept_alive() -> None:
    """WQ-07, queue_test.go:TestGarbageCollection: neither handed over directly nor taken from the line."""

    class Item:
        pass

    queue: Queue[Item] = Queue()
    getter = asyncio.create_task(queue.get())
    await settle()
    references = []
    for _ in range(2):
        item = Item()
        references.append(weakref.ref(item))
        queue.add(item)
        del item
    queue.done(await getter)
    del getter
    queue.done(await queue.get())
    await settle()  # the loop lets go of the callback that it ran
    gc.collect()
    assert [reference() for reference in references] == [None, None]


async def test_real_changes_overtake_low_priority_items_which_an_add_raises_to_the_end_of_their_line() -> None:
    """PQ-01, PQ-04: "retains the highest priority", "will not decrease the priority"."""
    queue: Queue[str] = Queue()
    for item in ("x", "y", "z"):
        queue.add(item, low_priority=True)
    queue.add("real")
    queue.add("y")
    queue.add("y", low_priority=True)
    assert len(queue) == 4
    assert [await queue.get() for _ in range(4)] == ["real", "y", "x", "z"]


async def test_an_item_in_work_is_passed_over_and_comes_as_soon_as_it_is_done() -> None:
    """PQ-02: "doesn't return an item that is currently locked", "returns an item as soon as its unlocked" """
    queue = await at_work("locked")
    queue.add("locked")  # "enqueues a locked item"
    queue.add("low", low_priority=True)
    assert await queue.get() == "low", "even one of lower priority goes before it"
    waiting = asyncio.create_task(queue.get())
    await settle()
    assert not waiting.done()
    queue.done("locked")
    assert await waiting == "locked"


async def test_an_item_added_in_work_comes_back_at_the_highest_priority_asked_for() -> None:
    """PQ-04, WQ-03: low alone stays low; low and normal, in either order, is normal."""
    queue = await at_work("low", "up", "down")
    for item, low in (("low", True), ("up", True), ("up", False), ("down", False), ("down", True)):
        queue.add(item, low_priority=low)
    for item in ("low", "up", "down"):
        queue.done(item)
    assert [await queue.get() for _ in range(3)] == ["up", "down", "low"]


async def test_a_worker_learns_from_which_line_its_item_came() -> None:
    """PQ-06: also when it waited for the item, and whatever is added meanwhile."""
    queue: Queue[str] = Queue()
    waiting = asyncio.create_task(queue.get_with_priority())
    await settle()
    queue.add("first", low_priority=True)
    for item, low in (("low", True), ("raised", True), ("raised", False), ("first", False)):
        queue.add(item, low_priority=low)
    assert await waiting == ("first", True)
    assert [await queue.get_with_priority() for _ in range(2)] == [("raised", False), ("low", True)]
    queue.done("first")
    assert await queue.get_with_priority() == ("first", False)


async def test_a_line_of_real_changes_without_end_does_not_starve_the_low_one() -> None:
    """PQ-04: one get in LOW_PRIORITY_TURN takes an item of low priority."""
    queue: Queue[str] = Queue()
    queue.add("low-1", low_priority=True)
    queue.add("low-2", low_priority=True)
    order = []
    for turn in range(2 * LOW_PRIORITY_TURN):
        queue.add(f"real-{turn}")
        order.append(await queue.get())
    assert [place for place, item in enumerate(order, 1) if item.startswith("low")] == [16, 32]
