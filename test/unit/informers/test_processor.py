"""Listeners and resync periods, without a store above them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from fakes.metrics import Series
from fakes.objects import Pod
from fakes.source import pod, settle
from kit.virtual_loop import FakeClock, VirtualClock
from tfjob_operator.informers.deltas import BACKLOG
from tfjob_operator.informers.errors import InformerStoppedError
from tfjob_operator.informers.handlers import AddNotification, EventHandlerFuncs, Notification, UpdateNotification
from tfjob_operator.informers.processor import DELIVERIES_PER_TURN, Processor


def processor_of(check_period_s: float = 0.0, clock: FakeClock | None = None) -> Processor[Pod]:
    """A processor; on the loop's time unless a clock is given."""
    return Processor[Pod](name="pods", check_period_s=check_period_s, clock=clock or VirtualClock(), errors=Series())


@asynccontextmanager
async def started(processor: Processor[Pod]) -> AsyncIterator[None]:
    """Run the listeners; drain and end them after the block."""
    async with asyncio.TaskGroup() as tasks:
        processor.start(tasks)
        yield
        processor.close()


def adds(*names: str) -> list[Notification[Pod]]:
    """Add notifications."""
    return [AddNotification(pod(name), is_in_initial_list=False) for name in names]


def noting(told: list[str]) -> EventHandlerFuncs[Pod]:
    """A handler that records adds and updates."""
    return EventHandlerFuncs[Pod](
        on_add=lambda item, _: told.append(item.metadata.name),
        on_update=lambda _, new: told.append(f"update {new.metadata.name}"),
    )


async def test_a_handler_with_much_to_do_lets_the_others_and_the_loop_have_their_turns() -> None:
    """SI-02, SI-03, SI-15

    processor_listener_test.go:BenchmarkListener, shared_informer_test.go:TestSharedInformerMultipleRegistration
    """
    processor = processor_of()
    done_when_quick_was_told: list[int] = []
    busy: list[str] = []
    names = [str(number) for number in range(10 * DELIVERIES_PER_TURN)]
    _, listener = processor.add(noting(busy), 0.0)
    processor.add(EventHandlerFuncs[Pod](on_add=lambda *_: done_when_quick_was_told.append(len(busy))), 0.0)
    listener.put(adds(*names))
    processor.distribute(adds("urgent"))
    async with started(processor):
        pass
    assert busy == [*names, "urgent"]
    assert done_when_quick_was_told == [DELIVERIES_PER_TURN]


async def test_a_registration_is_synced_when_the_handler_has_finished_the_initial_list_and_not_before() -> None:
    """SI-07, synctrack_test.go:TestSingleFile, TestSingleFileCounting"""
    processor = processor_of()
    seen: list[bool] = []
    registration, _ = processor.add(EventHandlerFuncs[Pod](on_add=lambda *_: seen.append(registration.has_synced)), 0.0)
    processor.distribute(adds("a", "b"))
    processor.mark_synced()
    processor.distribute(adds("later"))
    async with started(processor):
        await registration.wait_for_sync()
    assert seen == [False, False, True]


async def test_a_slow_handler_is_named_in_the_log() -> None:
    """SI-03, QF-08"""
    clock = FakeClock()
    processor = processor_of(clock=clock)
    processor.add(EventHandlerFuncs[Pod](on_add=lambda *_: clock.step(0.06)), 0.0)
    processor.distribute(adds("a", "b"))
    with capture_logs() as logs:
        async with started(processor):
            pass
    assert [(log["event"], log["seconds"], log["delivered"], log["handler"]) for log in logs] == [
        ("handler_slow", 0.12, 2, "EventHandlerFuncs")
    ]


async def test_a_handler_that_is_removed_is_not_called_again_and_its_task_ends() -> None:
    """SI-06, shared_informer_test.go:TestRemoveWhileActive, TestSharedInformerRemoveForeignHandler"""
    processor, removed, kept = processor_of(), list[str](), list[str]()
    registration, _ = processor.add(noting(removed), 0.0)
    processor.add(noting(kept), 0.0)
    async with started(processor):
        before = len(asyncio.all_tasks())
        processor.distribute(adds("a"))
        processor.remove(registration)
        processor.remove(processor_of().add(noting([]), 0.0)[0])
        processor.distribute(adds("b"))
        await settle()
        assert len(asyncio.all_tasks()) == before - 1
    assert (removed, kept) == ([], ["a", "b"])
    with pytest.raises(InformerStoppedError):
        await registration.wait_for_sync()


async def test_a_handler_may_remove_itself() -> None:
    """SI-06, shared_informer_test.go:TestRemoveEventHandler_SynchronousShutdown. Nothing to deadlock on here"""
    processor = processor_of()
    told: list[str] = []

    def once(item: Pod, _: bool) -> None:
        told.append(item.metadata.name)
        processor.remove(registration)

    registration, _ = processor.add(EventHandlerFuncs[Pod](on_add=once), 0.0)
    processor.distribute(adds("a", "b"))
    async with started(processor):
        await settle()
    assert told == ["a"]


@pytest.mark.parametrize(
    ("check", "asked", "resync", "check_after", "warnings"),
    [
        pytest.param(10.0, [0.0], [0.0], 10.0, [], id="never"),
        pytest.param(10.0, [30.0], [30.0], 10.0, [], id="longer than the check period"),
        pytest.param(10.0, [5.0], [5.0], 5.0, [], id="a shorter one lowers the check period"),
        pytest.param(10.0, [0.1], [1.0], 1.0, ["resync_period_raised"], id="raised to a second"),
        pytest.param(0.0, [30.0], [0.0], 0.0, ["resync_period_ignored"], id="the informer has no resync"),
        pytest.param(
            43_200.0, [43_200.0, 60.0, 1.0], [43_200.0, 60.0, 1.0], 1.0, [], id="an earlier one keeps its wish"
        ),
    ],
)
def test_resync_periods_are_settled_before_the_start(
    check: float, asked: list[float], resync: list[float], check_after: float, warnings: list[str]
) -> None:
    """SI-09, shared_informer_test.go:TestResyncCheckPeriod"""
    processor = processor_of(check, FakeClock())
    with capture_logs() as logs:
        listeners = [processor.add(noting([]), each)[1] for each in asked]
    assert [listener.resync_s for listener in listeners] == resync
    assert processor.check_period_s == check_after
    assert [(log["event"], log["log_level"]) for log in logs] == [(event, "warning") for event in warnings]


async def test_after_the_start_a_shorter_period_is_raised_to_the_check_period() -> None:
    """SI-09, shared_informer_test.go:TestListenerResyncPeriodsDelayed"""
    processor = processor_of(10.0)
    async with started(processor):
        _, listener = processor.add(noting([]), 2.0)
    assert (listener.resync_s, processor.check_period_s) == (10.0, 10.0)


def test_each_listener_is_due_at_its_own_period() -> None:
    """SI-09, SI-10, shared_informer_test.go:TestListenerResyncPeriods. A timer that is a little early skips no resync"""
    clock = FakeClock()
    processor = processor_of(2.0, clock)
    two, three, never = (processor.add(noting([]), period)[1] for period in (2.0, 3.0, 0.0))
    due: list[tuple[bool, bool, bool]] = []
    answers: list[bool] = []
    for step_s in (1.5, 1.4995, 1.5, 1.4995):
        clock.step(step_s)
        answers.append(processor.should_resync())
        due.append((two.wants_syncs, three.wants_syncs, never.wants_syncs))
    assert due == [(False, False, False), (True, True, False), (False, False, False), (True, True, False)]
    assert answers == [False, True, False, True]


async def test_a_handler_with_a_backlog_is_resynced_when_it_has_caught_up() -> None:
    """SI-09, QF-07: so resyncs do not pile up in the queue of a slow handler"""
    clock = FakeClock()
    processor = processor_of(2.0, clock)
    slow, quick = (processor.add(noting([]), 2.0)[1] for _ in "ab")
    slow.put(adds(*map(str, range(BACKLOG + 1))))
    clock.step(2.0)
    assert (processor.should_resync(), slow.wants_syncs, quick.wants_syncs) == (True, False, True)
    async with started(processor):
        pass
    clock.step(1.0)
    assert (processor.should_resync(), slow.wants_syncs, quick.wants_syncs) == (True, True, False)


async def test_syncs_reach_only_those_that_are_due_and_changes_reach_all() -> None:
    """SI-10, shared_informer_test.go:TestListenerResyncPeriods"""
    clock = FakeClock()
    processor, due, other = processor_of(2.0, clock), list[str](), list[str]()
    processor.add(noting(due), 2.0)
    processor.add(noting(other), 0.0)
    clock.step(2.0)
    assert processor.should_resync()
    sync: list[Notification[Pod]] = [UpdateNotification(pod("same"), pod("same"))]
    processor.distribute(adds("new"), adds("new") + sync)
    async with started(processor):
        pass
    assert (due, other) == (["new", "update same"], ["new"])


def test_a_handler_that_would_have_to_be_awaited_is_refused() -> None:
    """Called without an await a coroutine function does nothing"""

    async def late(*_: object) -> None:
        pass

    with pytest.raises(TypeError, match="plain functions"):
        EventHandlerFuncs[Pod](on_add=late)  # type: ignore[arg-type]  # the mistake in question
    handler = noting([])
    handler.on_delete = late  # type: ignore[assignment, method-assign]  # the same
    with pytest.raises(TypeError, match="plain functions"):
        processor_of(clock=FakeClock()).add(handler, 0.0)


def test_functions_that_are_left_out_are_not_called() -> None:
    """SI-02"""
    handler = EventHandlerFuncs[Pod]()
    handler.on_add(pod("a"), True)
    handler.on_update(pod("a"), pod("b"))
    handler.on_delete(pod("c"))
