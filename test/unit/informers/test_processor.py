"""Listeners and resync periods, without a store above them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from fakes.objects import Pod
from fakes.source import pod, settle
from fakes.virtual_loop import FakeClock, VirtualClock
from tfjob_operator.informers.errors import InformerStoppedError
from tfjob_operator.informers.handlers import (
    AddNotification,
    DeleteNotification,
    EventHandlerFuncs,
    Notification,
    UpdateNotification,
)
from tfjob_operator.informers.processor import DELIVERIES_PER_TURN, Processor, Registration


class Count:
    """A counter."""

    def __init__(self) -> None:
        self.value = 0

    def inc(self) -> None:
        self.value += 1


class Recorder:
    """A handler that records its notifications, and raises at the one named `fail_at`."""

    def __init__(self, fail_at: str = "") -> None:
        self.told: list[str] = []
        self.fail_at = fail_at

    def on_add(self, item: Pod, is_in_initial_list: bool, /) -> None:
        self._note(f"add {item.metadata.name}{' initially' if is_in_initial_list else ''}")

    def on_update(self, old: Pod, new: Pod, /) -> None:
        self._note(f"update {new.metadata.name}")

    def on_delete(self, item: object, /) -> None:
        self._note("delete")

    def _note(self, what: str) -> None:
        self.told.append(what)
        if what == self.fail_at:
            raise ZeroDivisionError(what)


def processor_of(
    check_period_s: float = 0.0, clock: FakeClock | None = None, errors: Count | None = None
) -> Processor[Pod]:
    """A processor; on the loop's time unless a clock is given."""
    return Processor[Pod](
        name="pods", check_period_s=check_period_s, clock=clock or VirtualClock(), errors=errors or Count()
    )


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


async def test_a_handler_is_notified_of_everything_in_order() -> None:
    """SI-02, shared_informer_test.go:TestSharedInformerMultipleRegistration"""
    processor, handler = processor_of(), Recorder()
    processor.add(handler, 0.0)
    async with started(processor):
        processor.distribute(adds("a", "b"))
        processor.distribute([UpdateNotification(pod("a"), pod("a")), DeleteNotification(pod("b"))])
    assert handler.told == ["add a", "add b", "update a", "delete"]


async def test_what_is_distributed_before_the_listeners_run_waits_for_them() -> None:
    """SI-15, shared_informer_test.go:TestSharedInformerInitializationRace"""
    processor, handler = processor_of(), Recorder()
    processor.add(handler, 0.0)
    processor.distribute(adds("a"))
    assert handler.told == []
    async with started(processor):
        pass
    assert handler.told == ["add a"]


async def test_a_handler_with_much_to_do_lets_the_others_and_the_loop_have_their_turns() -> None:
    """SI-03, processor_listener_test.go:BenchmarkListener"""
    processor = processor_of()
    done_when_quick_was_told: list[int] = []
    busy: list[str] = []
    quick = EventHandlerFuncs[Pod](on_add=lambda *_: done_when_quick_was_told.append(len(busy)))
    _, listener = processor.add(EventHandlerFuncs[Pod](on_add=lambda item, _: busy.append(item.metadata.name)), 0.0)
    processor.add(quick, 0.0)
    listener.put(adds(*[str(number) for number in range(10 * DELIVERIES_PER_TURN)]))
    processor.distribute(adds("urgent"))
    async with started(processor):
        await settle()
    assert len(busy) == 10 * DELIVERIES_PER_TURN + 1
    assert done_when_quick_was_told == [DELIVERIES_PER_TURN]


async def test_a_handler_that_raises_loses_that_one_notification_and_disturbs_nobody() -> None:
    """SI-13, shared_informer_test.go:TestEventPanics"""
    errors = Count()
    processor, bad, good = processor_of(errors=errors), Recorder(fail_at="add a"), Recorder()
    registration, _ = processor.add(bad, 0.0)
    processor.add(good, 0.0)
    processor.distribute(adds("a", "b"))
    processor.mark_synced()
    with capture_logs() as logs:
        async with started(processor):
            await registration.wait_for_sync()
    assert bad.told == good.told == ["add a", "add b"]
    assert registration.has_synced, "client-go never gets here (k/k#129024)"
    assert errors.value == 1
    assert [(log["event"], log["key"], log["log_level"]) for log in logs] == [("handler_failed", "ns/a", "error")]


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
    """SI-06, shared_informer_test.go:TestSharedInformerRemoveHandler, TestRemoveWhileActive"""
    processor, handler, other = processor_of(), Recorder(), Recorder()
    registration, _ = processor.add(handler, 0.0)
    processor.add(other, 0.0)
    async with started(processor):
        before = len(asyncio.all_tasks())
        processor.distribute(adds("a"))
        processor.remove(registration)
        processor.remove(registration)
        processor.distribute(adds("b"))
        await settle()
        assert len(asyncio.all_tasks()) == before - 1
    assert handler.told == []
    assert other.told == ["add a", "add b"]
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


async def test_a_registration_from_elsewhere_is_ignored() -> None:
    """SI-06, shared_informer_test.go:TestSharedInformerRemoveForeignHandler"""
    mine, other, handler = processor_of(), processor_of(), Recorder()
    mine.add(handler, 0.0)
    foreign, _ = other.add(Recorder(), 0.0)
    mine.remove(foreign)
    mine.distribute(adds("a"))
    async with started(mine):
        pass
    assert handler.told == ["add a"]


async def test_closing_delivers_what_is_queued() -> None:
    """SI-14, shared_informer_test.go:TestShutdown"""
    processor, handler = processor_of(), Recorder()
    processor.add(handler, 0.0)
    async with started(processor):
        processor.distribute(adds(*[str(number) for number in range(3 * DELIVERIES_PER_TURN)]))
    assert len(handler.told) == 3 * DELIVERIES_PER_TURN


@pytest.mark.parametrize(
    ("check", "asked", "resync", "check_after"),
    [
        pytest.param(10.0, 0.0, 0.0, 10.0, id="never"),
        pytest.param(10.0, 30.0, 30.0, 10.0, id="longer than the check period"),
        pytest.param(10.0, 5.0, 5.0, 5.0, id="a shorter one lowers the check period"),
        pytest.param(10.0, 0.1, 1.0, 1.0, id="raised to a second"),
        pytest.param(0.0, 30.0, 0.0, 0.0, id="the informer has no resync"),
    ],
)
def test_resync_periods_are_settled_before_the_start(
    check: float, asked: float, resync: float, check_after: float
) -> None:
    """SI-09, shared_informer_test.go:TestResyncCheckPeriod"""
    processor = processor_of(check, FakeClock())
    _, listener = processor.add(Recorder(), asked)
    assert (listener.resync_s, processor.check_period_s) == (resync, check_after)


def test_a_wish_that_cannot_be_met_is_warned_of() -> None:
    """SI-09, shared_informer_test.go:TestResyncCheckPeriod"""
    with capture_logs() as logs:
        processor_of(0.0, FakeClock()).add(Recorder(), 30.0)
        processor_of(10.0, FakeClock()).add(Recorder(), 0.5)
    assert [(log["event"], log["log_level"]) for log in logs] == [
        ("resync_period_ignored", "warning"), ("resync_period_raised", "warning"),
    ]  # fmt: skip


def test_an_earlier_listener_follows_the_check_period_up_to_its_own_wish() -> None:
    """SI-09, shared_informer_test.go:TestResyncCheckPeriod"""
    processor = processor_of(43_200.0, FakeClock())
    _, twelve_hours = processor.add(Recorder(), 43_200.0)
    _, minute = processor.add(Recorder(), 60.0)
    _, second = processor.add(Recorder(), 1.0)
    assert processor.check_period_s == 1.0
    assert [twelve_hours.resync_s, minute.resync_s, second.resync_s] == [43_200.0, 60.0, 1.0]


async def test_after_the_start_a_shorter_period_is_raised_to_the_check_period() -> None:
    """SI-09, shared_informer_test.go:TestListenerResyncPeriodsDelayed"""
    processor = processor_of(10.0)
    async with started(processor):
        _, listener = processor.add(Recorder(), 2.0)
    assert (listener.resync_s, processor.check_period_s) == (10.0, 10.0)


def test_each_listener_is_due_at_its_own_period() -> None:
    """SI-09, SI-10, shared_informer_test.go:TestListenerResyncPeriods"""
    clock = FakeClock()
    processor = processor_of(2.0, clock)
    two, three, never = (processor.add(Recorder(), period)[1] for period in (2.0, 3.0, 0.0))
    due: list[tuple[bool, bool, bool]] = []
    answers: list[bool] = []
    for _ in range(4):
        clock.step(1.5)
        answers.append(processor.should_resync())
        due.append((two.wants_syncs, three.wants_syncs, never.wants_syncs))
    assert due == [(False, False, False), (True, True, False), (False, False, False), (True, True, False)]
    assert answers == [False, True, False, True]


async def test_syncs_reach_only_those_that_are_due_and_changes_reach_all() -> None:
    """SI-10, shared_informer_test.go:TestListenerResyncPeriods"""
    clock = FakeClock()
    processor, due, other = processor_of(2.0, clock), Recorder(), Recorder()
    processor.add(due, 2.0)
    processor.add(other, 0.0)
    clock.step(2.0)
    assert processor.should_resync()
    change: list[Notification[Pod]] = adds("new")
    sync: list[Notification[Pod]] = [UpdateNotification(pod("same"), pod("same"))]
    processor.distribute(change, change + sync)
    async with started(processor):
        pass
    assert due.told == ["add new", "update same"]
    assert other.told == ["add new"]


def test_a_handler_that_would_have_to_be_awaited_is_refused() -> None:
    """Called without an await a coroutine function does nothing"""

    class Late(Recorder):
        async def on_delete(self, item: object, /) -> None:  # type: ignore[override]  # the mistake in question
            pass

    async def late(*_: object) -> None:
        pass

    with pytest.raises(TypeError, match="plain functions"):
        processor_of(clock=FakeClock()).add(Late(), 0.0)  # type: ignore[arg-type]  # the same
    with pytest.raises(TypeError, match="plain functions"):
        EventHandlerFuncs[Pod](on_add=late)  # type: ignore[arg-type]  # the mistake in question


def test_functions_that_are_left_out_are_not_called() -> None:
    """SI-02"""
    told: list[str] = []
    handler = EventHandlerFuncs[Pod](on_update=lambda _, new: told.append(new.metadata.name))
    handler.on_add(pod("a"), True)
    handler.on_update(pod("a"), pod("b"))
    handler.on_delete(pod("c"))
    assert told == ["b"]


def test_a_registration_can_be_told_from_another() -> None:
    """SI-06"""
    processor = processor_of(clock=FakeClock())
    registrations: set[Registration] = {processor.add(Recorder(), 0.0)[0] for _ in range(2)}
    assert len(registrations) == 2
