"""The virtual-time loop that the other unit tests stand on."""

from __future__ import annotations

import asyncio

import pytest

from fakes.virtual_loop import EPOCH, DeadlockError, VirtualClock, VirtualTimeLoop


async def test_a_long_sleep_takes_no_real_time_and_moves_both_readings_of_the_clock() -> None:
    """A day of sleep is over at once; the wall clock and the monotonic clock agree on how long it was."""
    clock = VirtualClock()
    await asyncio.sleep(86_400)
    assert clock.monotonic() == pytest.approx(86_400)
    assert (clock.now() - EPOCH).total_seconds() == pytest.approx(86_400)


async def test_timers_fire_in_the_order_of_their_due_times() -> None:
    """Three sleepers wake by due time, not by the order in which they lay down."""
    woken: list[float] = []

    async def sleeper(delay: float) -> None:
        await asyncio.sleep(delay)
        woken.append(delay)

    async with asyncio.TaskGroup() as group:
        for delay in (3.0, 1.0, 2.0):
            group.create_task(sleeper(delay))
    assert woken == [1.0, 2.0, 3.0]


def test_a_test_that_waits_for_nothing_fails_instead_of_hanging() -> None:
    """No timer and no ready task: DeadlockError is raised."""
    loop = VirtualTimeLoop()
    waiting = loop.create_future()
    try:
        with pytest.raises(DeadlockError):
            loop.run_until_complete(waiting)
    finally:
        loop.close()
