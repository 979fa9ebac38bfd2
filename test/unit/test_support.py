"""What the other tests stand on: the virtual-time loop, tables of cases, and options of pytest."""

import asyncio
import re
from pathlib import Path

import pytest

from kit.virtual_loop import EPOCH, DeadlockError, VirtualClock, VirtualTimeLoop
from support.cases import for_each
from support.machine import lacks, summary
from support.waiting import eventually, until


async def test_each_value_is_tried_with_the_other_arguments_until_one_fails_which_is_named() -> None:
    seen = []

    @for_each("code", range(5))
    def body(code: int, mode: str) -> None:
        seen.append((code, mode))
        assert code < 2

    @for_each("code", [1, 2])
    async def coroutine(code: int) -> None:
        seen.append((code, "awaited"))

    with pytest.raises(AssertionError) as raised:
        body(mode="a")
    assert raised.value.__notes__ == ["in the case code=2"]
    await coroutine()
    assert seen == [(0, "a"), (1, "a"), (2, "a"), (1, "awaited"), (2, "awaited")]


@pytest.mark.parametrize("left", [1, 2])
@for_each("right", [3, 4])
def test_it_goes_together_with_parameters(left: int, right: int) -> None:
    assert left < right


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
    loop = VirtualTimeLoop()
    waiting = loop.create_future()
    try:
        with pytest.raises(DeadlockError):
            loop.run_until_complete(waiting)
    finally:
        loop.close()


TESTS = Path(__file__).parents[1]


def test_no_two_folders_have_an_option_of_the_same_name() -> None:
    """Or none of their tests can be collected together, which is how CI runs them."""
    found = [
        option
        for conftest in sorted(TESTS.glob("**/conftest.py"))
        for option in re.findall(r"addoption\(\s*\"(--[a-z-]+)\"", conftest.read_text())
    ]
    assert "--seed" in found
    assert sorted(set(found)) == sorted(found)


def test_a_summary_counts_only_what_the_machine_lacks_and_says_what_would_bring_it() -> None:
    """Tests of other targets, such as the real node, are skipped everywhere."""
    ip, browser = lacks("ip", "apt-get install iproute2"), lacks("Chromium", "python -m hack.browser")
    skipped = [f"Skipped: {browser}", "Skipped: a part of make faults", f"Skipped: {ip}", f"Skipped: {browser}"]
    assert summary(skipped) == ["   2  Chromium: python -m hack.browser", "   1  ip: apt-get install iproute2"]
    assert summary(["Skipped: a part of make faults"]) == []


async def test_a_wait_in_vain_says_what_for_and_how_far_it_got() -> None:
    """S19: also the state at the end, not that at the beginning."""
    lines = ["started"]
    with pytest.raises(TimeoutError, match="not within 0 s: it is ready started"):
        eventually(lambda: False, "it is ready", limit_s=0.01, yet=lambda: lines[-1])

    async def holds() -> bool:
        lines.append("the end")
        return False

    with pytest.raises(TimeoutError, match="not within 0 s: it has ended the end"):
        await until(holds, "it has ended", limit_s=0.01, yet=lambda: lines[-1])


def test_a_test_waits_longer_while_there_is_progress() -> None:
    """S19: a busy machine is slow, and not wrong; what moves for ever without a result is given up, too."""
    seen: list[int] = []

    def read() -> bool:
        seen.append(1)
        return len(seen) == 5

    assert eventually(read, "five are read", limit_s=0.1, yet=lambda: len(seen))
    with pytest.raises(TimeoutError, match="it ends"):
        eventually(read, "it ends", limit_s=0.01, yet=lambda: len(seen))
