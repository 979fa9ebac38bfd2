"""The plain queue against a plain model, and under tasks whose order is drawn from a seed."""

import asyncio
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kit.virtual_loop import SeededLoop, VirtualTimeLoop
from tfjob_operator.workqueue import ItemExponentialFailureRateLimiter, Queue, RateLimitingQueue, ShutDown
from tfjob_operator.workqueue.queue import LOW_PRIORITY_TURN

ITEMS = st.sampled_from("abcde")
LONG_ENOUGH = 15
"""Steps of the machine before a shutdown may end what there is to see."""


class Model:
    """What the queue promises, written with lists: slow, and easy to check."""

    def __init__(self) -> None:
        self.normal: list[str] = []
        self.low: list[str] = []
        self.working: set[str] = set()
        self.owed: dict[str, bool] = {}  # added while in work -> at low priority only
        self.getters: list[int] = []  # those that wait, in order
        self.answers: dict[int, str] = {}
        self.overtakes = 0
        self.closed = False

    def add(self, item: str, low: bool) -> None:
        if self.closed:
            return
        if item in self.working:
            self.owed[item] = self.owed.get(item, True) and low
        elif item in self.low and not low:
            self.low.remove(item)
            self.normal.append(item)
        elif item not in self.low + self.normal:
            self.line_up(item, low)

    def line_up(self, item: str, low: bool) -> None:
        if self.getters:
            self.answers[self.getters.pop(0)] = item
            self.working.add(item)
        else:
            (self.low if low else self.normal).append(item)

    def take(self) -> str:
        if not self.low:
            line = self.normal
        elif self.normal and self.overtakes < LOW_PRIORITY_TURN - 1:
            line = self.normal
            self.overtakes += 1
        else:
            line = self.low
            self.overtakes = 0
        item = line.pop(0)
        self.working.add(item)
        return item

    def give_back(self, item: str) -> None:
        self.working.remove(item)
        if self.getters:
            self.line_up(item, low=False)
        else:
            self.normal.insert(0, item)

    def done(self, item: str) -> None:
        self.working.remove(item)
        if item in self.owed:
            self.line_up(item, self.owed.pop(item))

    @property
    def waiting(self) -> int:
        return len(self.normal) + len(self.low)

    @property
    def drained(self) -> bool:
        return not (self.waiting or self.working)


class QueueMachine(RuleBasedStateMachine):
    """Every rule does the same to the queue and to the model; the loop stands still between two rules."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.queue: Queue[str] = Queue()
        self.model = Model()
        self.getters: list[asyncio.Task[str]] = []
        self.drain: asyncio.Task[None] | None = None
        self.forced = False
        self.steps = 0

    def settle(self) -> None:
        async def idle() -> None:
            for _ in range(6):
                await asyncio.sleep(0)

        self.loop.run_until_complete(idle())

    @rule(item=ITEMS, low=st.booleans())
    def add(self, item: str, low: bool) -> None:
        self.queue.add(item, low_priority=low)
        self.model.add(item, low)
        self.settle()

    @rule(burst=st.lists(st.tuples(ITEMS, st.booleans()), max_size=6))
    def add_many_in_one_tick(self, burst: list[tuple[str, bool]]) -> None:
        for item, low in burst:
            self.queue.add(item, low_priority=low)
            self.model.add(item, low)
        self.settle()

    @precondition(lambda self: self.model.waiting)
    @rule()
    def get_what_waits(self) -> None:
        with pytest.raises(StopIteration) as answer:
            self.queue.get().send(None)
        assert answer.value.value == self.model.take()

    @precondition(lambda self: not self.model.waiting and not self.model.closed)
    @rule()
    def begin_to_wait(self) -> None:
        self.model.getters.append(len(self.getters))
        self.getters.append(self.loop.create_task(self.queue.get()))
        self.settle()

    @precondition(lambda self: not self.model.waiting and self.model.closed)
    @rule()
    def get_after_the_end(self) -> None:
        with pytest.raises(ShutDown):
            self.queue.get().send(None)

    @precondition(lambda self: self.model.getters)
    @rule(data=st.data())
    def cancel_a_getter_that_waits(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.model.getters))
        self.model.getters.remove(number)
        self.getters[number].cancel()
        self.settle()

    @precondition(lambda self: self.model.getters)
    @rule(item=ITEMS, low=st.booleans())
    def cancel_a_getter_that_was_handed_something_in_this_tick(self, item: str, low: bool) -> None:
        first = self.model.getters[0]
        self.queue.add(item, low_priority=low)
        self.model.add(item, low)
        self.getters[first].cancel()
        if first in self.model.answers:
            self.model.give_back(self.model.answers.pop(first))
        else:
            self.model.getters.remove(first)
        self.settle()

    @precondition(lambda self: self.model.working)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(sorted(self.model.working)))
        self.queue.done(item)
        self.model.done(item)
        self.settle()

    @rule(item=ITEMS)
    def done_by_mistake(self, item: str) -> None:
        if item not in self.model.working:
            with pytest.raises(ValueError, match="not being processed"):
                self.queue.done(item)

    @precondition(lambda self: self.drain is None and self.steps > LONG_ENOUGH)
    @rule()
    def shut_down_with_drain(self) -> None:
        self.forced = False
        self.drain = self.loop.create_task(self.queue.shut_down_with_drain())
        self.settle()
        self.close_the_model()

    @precondition(lambda self: self.steps > LONG_ENOUGH)
    @rule()
    def shut_down(self) -> None:
        self.forced = True
        self.queue.shut_down()
        self.settle()
        self.close_the_model()

    def close_the_model(self) -> None:
        self.model.closed = True
        for number in self.model.getters:
            assert isinstance(self.getters[number].exception(), ShutDown)
        self.model.getters.clear()

    @invariant()
    def the_same_items_wait(self) -> None:
        self.steps += 1
        assert len(self.queue) == self.model.waiting
        assert self.queue.shutting_down == self.model.closed

    @invariant()
    def the_same_getters_have_the_same_items(self) -> None:
        for number, item in self.model.answers.items():
            assert self.getters[number].result() == item
        assert [number for number, getter in enumerate(self.getters) if not getter.done()] == self.model.getters

    @invariant()
    def a_drain_ends_with_the_last_work_or_by_force(self) -> None:
        if self.drain is not None:
            assert self.drain.done() == (self.model.drained or self.forced)

    def teardown(self) -> None:
        for task in [*self.getters, *([self.drain] if self.drain else [])]:
            task.cancel()
        self.settle()
        self.loop.close()


TestQueueAgainstItsModel = QueueMachine.TestCase
TestQueueAgainstItsModel.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


class Work:
    """Producers raise the wanted version of a key; a worker sees the version that was wanted when it began, or fails."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.queue: RateLimitingQueue[int] = RateLimitingQueue(ItemExponentialFailureRateLimiter(0.001, 0.02))
        self.wanted = dict.fromkeys(range(12), 0)
        self.seen = dict.fromkeys(range(12), 0)
        self.in_work: set[int] = set()

    async def pause(self) -> None:
        await asyncio.sleep(self.random.choice((0, 0, 0, 0.001, 0.002)))

    async def produce(self) -> None:
        for _ in range(60):
            key = self.random.randrange(12)
            self.wanted[key] += 1
            self.queue.add(key, low_priority=self.random.random() < 0.3)
            if self.random.random() < 0.5:
                await self.pause()

    async def consume(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self.random.choice((None, 0.001, 0.002))):
                    key = await self.queue.get()
            except TimeoutError:
                continue
            except ShutDown:
                return
            assert key not in self.in_work, "one key in two hands"
            self.in_work.add(key)
            version = self.wanted[key]
            try:
                await self.pause()
                if self.random.random() < 0.7:
                    self.seen[key] = version
            finally:
                self.in_work.remove(key)
                if self.seen[key] == version:
                    self.queue.forget(key)
                else:
                    self.queue.add_rate_limited(key)
                self.queue.done(key)

    async def consume_with_interruptions(self) -> None:
        for _ in range(25):
            consumer = asyncio.create_task(self.consume())
            await self.pause()
            consumer.cancel()
            await asyncio.wait([consumer])
            if not consumer.cancelled():
                consumer.result()
        await self.consume()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as consumers:
            for _ in range(5):
                consumers.create_task(self.consume_with_interruptions())
            async with asyncio.TaskGroup() as producers:
                for _ in range(4):
                    producers.create_task(self.produce())
            await asyncio.sleep(
                1
            )  # longer than all interruptions and retries together: a drain would drop what is delayed
            await self.queue.shut_down_with_drain()
            assert self.seen == self.wanted, "a change was lost"


@pytest.mark.parametrize("seed", range(60))
def test_no_change_is_lost_and_no_key_is_in_two_hands_whatever_the_order(seed: int) -> None:
    """WQ-01, WQ-03, WQ-04, RL-06: producers, failures, time-outs and cancellations, in an order that the seed replays."""
    with asyncio.Runner(loop_factory=lambda: SeededLoop(seed)) as runner:
        runner.run(Work(seed).run())
