"""The event queue, its deltas, and the gate that opens when something is synced."""

from __future__ import annotations

import asyncio

import pytest

from fakes.objects import Pod
from fakes.source import pod, running, settle
from tfjob_operator.informers import Tombstone, key_of, object_of
from tfjob_operator.informers.deltas import BATCH, FIFO, Added, Bookmark, Deleted, Delta, Modified, ReplacedAll, SyncAll
from tfjob_operator.informers.errors import InformerStoppedError, QueueClosedError
from tfjob_operator.informers.processor import SyncGate


def test_object_and_key_come_out_of_a_tombstone_as_out_of_the_object_itself() -> None:
    """ST-01, ST-02, controller_test.go:TestDeletionHandlingObjectToName, TestDeletedObjectGetKey"""
    gone = pod("a")
    for item in (gone, Tombstone("ns/a", gone)):
        assert object_of(item) is gone
        assert key_of(item) == "ns/a"


def test_the_key_of_what_has_no_namespace_is_its_name() -> None:
    """ST-01, object-names_test.go:TestObjectNames"""
    assert key_of(pod("node-1", "")) == "node-1"


def test_a_cached_object_cannot_be_changed() -> None:
    """ST-03, ST-10, mutation_detector_test.go:TestMutationDetector. Frozen objects make the detector needless"""
    with pytest.raises(AttributeError):
        pod("a").status = pod("b").status  # type: ignore[misc]  # the point of the test


def filled(*deltas: Delta[Pod]) -> FIFO[Pod]:
    """A FIFO that holds these deltas."""
    fifo = FIFO[Pod]()
    for delta in deltas:
        fifo.put(delta)
    return fifo


async def test_every_delta_is_handed_out_in_the_order_of_its_arrival() -> None:
    """QF-01, the_real_fifo_test.go:TestRealFIFO_basic, TestRealFIFO_addUpdate, TestRealFIFO_detectLineJumpers"""
    a, b = pod("a"), pod("b")
    deltas: list[Delta[Pod]] = [Added(a), Modified(a), Added(b), Deleted(a), Deleted(a), Bookmark("7"), Added(a)]
    fifo = filled(*deltas)
    assert len(fifo) == 7
    assert await fifo.pop() == deltas
    assert len(fifo) == 0


async def test_a_list_is_one_delta_and_comes_alone() -> None:
    """QF-02, QF-03, QF-05, the_real_fifo_test.go:TestRealFIFO_ReplaceAtomic, TestRealFIFO_ReplaceAtomicPop"""
    replaced = ReplacedAll([pod("a"), pod("b")], "9")
    fifo = filled(Added(pod("x")), replaced, Added(pod("y")))
    assert [await fifo.pop() for _ in range(3)] == [[Added(pod("x"))], [replaced], [Added(pod("y"))]]


async def test_a_resync_is_one_delta_and_comes_alone() -> None:
    """QF-04, QF-05, the_real_fifo_test.go:TestRealFIFO_ResyncAtomic"""
    fifo = filled(SyncAll(), SyncAll(), Added(pod("y")))
    assert [len(await fifo.pop()) for _ in range(3)] == [1, 1, 1]


async def test_a_batch_holds_at_most_a_thousand() -> None:
    """QF-05, the_real_fifo_test.go:TestRealFIFO_PopMultipleDeltaInBatch"""
    fifo = filled(*[Added(pod(str(number))) for number in range(BATCH + 1)])
    assert [len(await fifo.pop()), len(await fifo.pop())] == [1000, 1]


async def test_what_arrives_while_a_batch_is_in_work_waits_for_the_next() -> None:
    """QF-07: there is no lock that could be held, so a producer never waits for the consumer"""
    fifo = filled(Added(pod("a")))
    batch = await fifo.pop()
    fifo.put(Added(pod("b")))
    assert len(batch) == 1
    assert len(fifo) == 1


async def test_pop_waits_for_the_first_delta() -> None:
    """QF-01, delta_fifo_test.go:TestDeltaFIFO_basic"""
    fifo = FIFO[Pod]()
    waiting = asyncio.create_task(fifo.pop())
    await settle()
    assert not waiting.done()
    fifo.put(Added(pod("a")))
    assert await waiting == [Added(pod("a"))]


async def test_closing_wakes_who_waits() -> None:
    """QF-09, DF-07, delta_fifo_test.go:TestDeltaFIFO_PopShouldUnblockWhenClosed"""
    fifo = FIFO[Pod]()
    waiting = asyncio.create_task(fifo.pop())
    await settle()
    fifo.close()
    with pytest.raises(QueueClosedError):
        await waiting


async def test_what_was_put_before_the_close_is_still_handed_out_and_nothing_after() -> None:
    """QF-09, SI-14"""
    fifo = filled(Added(pod("a")))
    fifo.close()
    fifo.put(Added(pod("late")))
    assert await fifo.pop() == [Added(pod("a"))]
    with pytest.raises(QueueClosedError):
        await fifo.pop()


async def test_cancelling_a_pop_loses_nothing() -> None:
    """QF-01: a batch is taken without a further await"""
    fifo = FIFO[Pod]()

    async def take() -> None:
        await fifo.pop()

    async with running(take()):
        await settle()
    fifo.put(Added(pod("a")))
    assert await fifo.pop() == [Added(pod("a"))]


async def test_who_waits_goes_on_when_the_gate_opens_and_who_comes_later_need_not_wait() -> None:
    """SI-08, wait_test.go:TestWaitFor"""
    gate = SyncGate("pods")
    waiting = asyncio.create_task(gate.wait())
    await settle()
    assert not waiting.done()
    gate.open()
    await waiting
    await gate.wait()
    assert gate.is_open


async def test_a_caller_whose_wait_was_in_vain_gets_an_error() -> None:
    """SI-08, wait_test.go:TestSyncResult"""
    gate = SyncGate("pods")
    waiting = asyncio.create_task(gate.wait())
    await settle()
    gate.give_up()
    with pytest.raises(InformerStoppedError, match="pods stopped before it was synced"):
        await waiting
    assert not gate.is_open


async def test_a_gate_that_was_opened_stays_open() -> None:
    """SI-07, synctrack_test.go:TestBasicLogic"""
    gate = SyncGate("pods")
    gate.open()
    gate.give_up()
    await gate.wait()
    assert gate.is_open
