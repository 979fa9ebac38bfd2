"""The event queue and its deltas."""

import asyncio

import pytest

from fakes.objects import Pod
from fakes.source import pod, running, settle
from tfjob_operator.informers import Tombstone, key_of, object_of
from tfjob_operator.informers.deltas import BATCH, FIFO, Added, Bookmark, Deleted, Delta, Modified, ReplacedAll, SyncAll
from tfjob_operator.informers.errors import QueueClosedError

A, B = pod("a"), pod("b")


def test_object_and_key_come_out_of_a_tombstone_as_out_of_the_object_itself() -> None:
    """ST-01, ST-02, ST-03, ST-10, controller_test.go:TestDeletionHandlingObjectToName, TestDeletedObjectGetKey

    object-names_test.go:TestObjectNames, mutation_detector_test.go:TestMutationDetector: frozen objects need no detector.
    """
    for item in (A, Tombstone("ns/a", A)):
        assert object_of(item) is A
        assert key_of(item) == "ns/a"
    assert key_of(pod("node-1", "")) == "node-1"
    with pytest.raises(AttributeError):
        A.status = B.status  # type: ignore[misc]  # the point of the test


def filled(*deltas: Delta[Pod]) -> FIFO[Pod]:
    """A FIFO that holds these deltas."""
    fifo = FIFO[Pod]()
    for delta in deltas:
        fifo.put(delta)
    return fifo


async def test_every_delta_is_handed_out_in_the_order_of_its_arrival() -> None:
    """QF-01, the_real_fifo_test.go:TestRealFIFO_basic, TestRealFIFO_addUpdate, TestRealFIFO_detectLineJumpers"""
    deltas: list[Delta[Pod]] = [Added(A), Modified(A), Added(B), Deleted(A), Deleted(A), Bookmark("7"), Added(A)]
    fifo = filled(*deltas)
    assert len(fifo) == 7
    assert await fifo.pop() == deltas
    assert len(fifo) == 0


LIST = ReplacedAll([A, B], "9")


@pytest.mark.parametrize(
    ("deltas", "batches"),
    [
        pytest.param([Added(A), LIST, Added(B)], [1, 1, 1], id="a list comes alone"),
        pytest.param([SyncAll(), SyncAll(), Added(B)], [1, 1, 1], id="a resync comes alone"),
        pytest.param([Added(A)] * (BATCH + 1), [1000, 1], id="a thousand at most"),
        pytest.param([SyncAll(), *[Added(A)] * (BATCH + 1)], [1, 1000, 1], id="a thousand at most after a resync"),
    ],
)
async def test_what_comes_in_one_batch(deltas: list[Delta[Pod]], batches: list[int]) -> None:
    """QF-02, QF-03, QF-04, QF-05, the_real_fifo_test.go:TestRealFIFO_ReplaceAtomic, TestRealFIFO_ReplaceAtomicPop,
    TestRealFIFO_ResyncAtomic, TestRealFIFO_PopMultipleDeltaInBatch
    """
    fifo = filled(*deltas)
    popped = [await fifo.pop() for _ in batches]
    assert [len(batch) for batch in popped] == batches
    assert [delta for batch in popped for delta in batch] == deltas


async def test_pop_waits_for_the_first_delta_and_cancelling_it_loses_nothing() -> None:
    """QF-01, QF-07, delta_fifo_test.go:TestDeltaFIFO_basic: there is no lock that a producer could wait for."""
    fifo = FIFO[Pod]()

    async def take() -> None:
        await fifo.pop()

    async with running(take()):
        await settle()
    waiting = asyncio.create_task(fifo.pop())
    await settle()
    assert not waiting.done()
    fifo.put(Added(A))
    assert await waiting == [Added(A)]


async def test_closing_wakes_who_waits_and_what_was_put_before_is_still_handed_out() -> None:
    """QF-09, SI-14, DF-07, delta_fifo_test.go:TestDeltaFIFO_PopShouldUnblockWhenClosed"""
    fifo = FIFO[Pod]()
    waiting = asyncio.create_task(fifo.pop())
    await settle()
    fifo.close()
    with pytest.raises(QueueClosedError):
        await waiting
    fifo = filled(Added(A))
    fifo.close()
    fifo.put(Added(B))
    assert await fifo.pop() == [Added(A)]
    with pytest.raises(QueueClosedError):
        await fifo.pop()
