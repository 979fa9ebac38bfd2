"""Many calls at once: how many, in which batches, and what is left of them after an error or a cancellation."""

import asyncio
from collections.abc import Collection

import pytest

from tfjob_operator.workqueue import parallelize_until, slow_start_batch


class Calls:
    """Records batches by the time at which their calls begin; each call takes a second. Numbers in `failing` raise."""

    def __init__(self, failing: Collection[int] = ()) -> None:
        self.failing = failing
        self.begun: dict[float, list[int]] = {}
        self.ended: list[int] = []
        self.in_work = 0
        self.most_in_work = 0

    async def __call__(self, number: int) -> None:
        self.begun.setdefault(asyncio.get_running_loop().time(), []).append(number)
        self.in_work += 1
        self.most_in_work = max(self.most_in_work, self.in_work)
        try:
            await asyncio.sleep(1)
        finally:
            self.in_work -= 1
        if number in self.failing:
            raise RuntimeError(f"call {number}")
        self.ended.append(number)

    @property
    def batches(self) -> list[int]:
        return [len(batch) for batch in self.begun.values()]

    @property
    def in_order(self) -> list[int]:
        return [number for batch in self.begun.values() for number in batch]


@pytest.mark.parametrize(
    ("count", "initial", "batches"),
    [
        (0, 1, []),
        (1, 1, [1]),
        (7, 1, [1, 2, 4]),
        (10, 1, [1, 2, 4, 3]),
        (16, 1, [1, 2, 4, 8, 1]),
        (3, 8, [3]),
        (20, 4, [4, 8, 8]),
    ],
)
async def test_batches_double_until_all_calls_are_made(count: int, initial: int, batches: list[int]) -> None:
    """SB-01, replica_set_test.go:TestSlowStartBatch: each number once, in order."""
    calls = Calls()
    assert await slow_start_batch(count, calls, initial, at_once=1000) == (count, None)
    assert calls.batches == batches
    assert calls.in_order == list(range(count))


@pytest.mark.parametrize(
    ("failing", "at_once", "begun"),
    [
        *[({0}, 1000, 1), ({1}, 1000, 3), ({4, 5}, 1000, 7), ({9}, 1000, 15), ({99}, 1000, 100)],
        *[({0}, 16, 1), ({5}, 16, 7), ({15}, 16, 31), ({15, 16}, 16, 31), ({99}, 16, 100)],
    ],
)
async def test_a_failure_ends_it_after_its_batch(failing: set[int], at_once: int, begun: int) -> None:
    """D8, SB-01, replica_set_test.go:TestSlowStartBatch: those in work go on to their end, and count; no other is begun."""
    calls = Calls(failing)
    succeeded, error = await slow_start_batch(100, calls, at_once=at_once)
    assert len(calls.in_order) == begun
    assert succeeded == begun - len(failing)
    assert str(error) in {f"call {number}" for number in failing}
    assert calls.in_work == 0


async def test_the_first_error_in_time_is_returned_and_a_call_that_is_cancelled_by_itself_is_one() -> None:
    """SB-01: not that of the lowest number. A cancelled call may neither count as done nor cancel the caller."""

    async def call(number: int) -> None:
        await asyncio.sleep(10 - number)
        raise asyncio.CancelledError if number == 3 else RuntimeError

    succeeded, error = await slow_start_batch(4, call, initial=4, at_once=1000)
    assert succeeded == 0
    assert isinstance(error, asyncio.CancelledError)


async def test_cancelling_a_slow_start_ends_its_calls_first() -> None:
    """SB-01: in the middle of the second batch; no call is left behind, none is begun."""
    calls = Calls()
    batch = asyncio.create_task(slow_start_batch(10, calls, at_once=1000))
    await asyncio.sleep(1.5)
    assert calls.in_work == 2
    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch
    assert calls.in_work == 0
    assert calls.batches == [1, 2]


async def test_batches_grow_up_to_a_bound_and_then_one_call_follows_another() -> None:
    """D8: one job may not fill the line for connections; SB-01 holds below the bound."""
    calls = Calls()
    assert await slow_start_batch(1000, calls, at_once=16) == (1000, None)
    assert calls.most_in_work == 16
    assert calls.batches[:4] == [1, 2, 4, 8]
    assert set(calls.batches[4:-1]) == {16}
    assert calls.in_order == list(range(1000))


async def test_a_call_that_is_slow_keeps_no_other_waiting_at_the_bound() -> None:
    """D8, PL-01: batches, or rounds of workers, that wait for their slowest call would leave connections idle."""
    calls = Calls()

    async def call(number: int) -> None:
        await calls(number)
        await asyncio.sleep(9 if number == 3 else 0)

    began = asyncio.get_running_loop().time()
    await slow_start_batch(3 + 10 * 3, call, at_once=4)
    assert asyncio.get_running_loop().time() - began == 2 + 10
    assert calls.most_in_work == 4
    await parallelize_until(4, 4 + 10 * 3, call)
    assert asyncio.get_running_loop().time() - began == 12 + 11


@pytest.mark.parametrize(("workers", "pieces"), [(1, 5), (10, 100), (10, 3), (3, 10), (4, 0), (500, 100)])
async def test_every_piece_is_done_once_by_no_more_than_so_many_workers(workers: int, pieces: int) -> None:
    """PL-01, parallelizer_test.go:TestParallelizeUntil."""
    calls = Calls()
    await parallelize_until(workers, pieces, calls)
    assert sorted(calls.ended) == list(range(pieces))
    assert calls.in_order == list(range(pieces)), "begun in order"
    assert calls.most_in_work == min(workers, pieces)


async def test_without_calls_or_workers_nothing_would_ever_begin() -> None:
    """SB-01, PL-01: it would be left undone in silence."""
    for initial, at_once in ((0, 16), (1, 0)):
        with pytest.raises(ValueError, match="at least one call"):
            await slow_start_batch(1, Calls(), initial, at_once=at_once)
    with pytest.raises(ValueError, match="at least one worker"):
        await parallelize_until(0, 1, Calls())


async def test_cancelling_stops_the_pieces_in_work_and_begins_no_other() -> None:
    """PL-01, parallelizer_test.go:TestParallelizeUntil."""
    calls = Calls()
    work = asyncio.create_task(parallelize_until(3, 100, calls))
    await asyncio.sleep(1.5)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert calls.in_work == 0
    assert (calls.ended, calls.batches) == ([0, 1, 2], [3, 3])


async def test_a_piece_that_fails_stops_the_others_and_is_not_lost() -> None:
    """PL-01: in an ExceptionGroup, as from any task group."""
    calls = Calls({4})
    with pytest.raises(ExceptionGroup) as failure:
        await parallelize_until(3, 100, calls)
    assert [str(error) for error in failure.value.exceptions] == ["call 4"]
    assert calls.in_work == 0
    assert calls.batches[:2] == [3, 3]
    assert sum(calls.batches) <= 8
