"""The delays of retries: growth, cap, jitter, and when they start over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.clock import FakeClock
from tfjob_operator.workqueue import Backoff


def steps(backoff: Backoff, count: int) -> list[float]:
    return [backoff.next() for _ in range(count)]


def test_the_steps_double_until_the_base_reaches_its_cap() -> None:
    """RF-22, wait_test.go:TestBackoff_Step: without jitter the defaults are 0.8 s, x2, 30 s."""
    backoff = Backoff(clock=FakeClock(), random=lambda: 0.0)
    assert steps(backoff, 8) == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0])


def test_jitter_at_most_doubles_a_step_and_is_added_after_the_cap() -> None:
    """RF-22: 0.8-1.6 s, ... 25.6-51.2 s, then 30-60 s."""
    backoff = Backoff(clock=FakeClock(), random=lambda: 1.0)
    assert steps(backoff, 8) == pytest.approx([1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60.0, 60.0])


def test_its_own_numbers_can_be_given() -> None:
    """RF-22, TestNewReflectorWithCustomBackoff."""
    backoff = Backoff(1.0, 50.0, 10.0, 0.1, clock=FakeClock(), random=lambda: 0.5)
    assert steps(backoff, 3) == pytest.approx([1.05, 10.5, 52.5])


def test_an_initial_wait_above_the_cap_is_capped() -> None:
    """RF-22, wait_test.go:TestBackoff_Step: the cap holds from the first step."""
    assert Backoff(60.0, 30.0, clock=FakeClock(), random=lambda: 0.0).next() == 30.0


@pytest.mark.parametrize(("quiet_s", "expected"), [(120.0, 3.2), (120.1, 0.8)])
def test_only_more_than_two_quiet_minutes_start_it_over(quiet_s: float, expected: float) -> None:
    """RF-23, TestExponentialBackoffManagerGetNextBackoff: measured from the latest step."""
    clock = FakeClock()
    backoff = Backoff(clock=clock, random=lambda: 0.0)
    steps(backoff, 2)
    clock.step(quiet_s)
    assert backoff.next() == pytest.approx(expected)


def test_an_outage_of_hours_stays_at_the_cap() -> None:
    """RF-23: the 1.20 rule; newer client-go starts over every two minutes (TestBackoffDelayWithResetExponential)."""
    clock = FakeClock()
    backoff = Backoff(clock=clock, random=lambda: 0.999)
    steps(backoff, 6)
    for _ in range(200):
        delay = backoff.next()
        assert delay > 59.0
        clock.step(delay)


def test_reset_starts_over_at_once() -> None:
    """RF-22: the owner may know better than the clock."""
    backoff = Backoff(clock=FakeClock(), random=lambda: 0.0)
    steps(backoff, 5)
    backoff.reset()
    assert steps(backoff, 2) == pytest.approx([0.8, 1.6])


@given(luck=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=2000))
def test_no_luck_and_no_number_of_steps_leaves_the_bounds(luck: list[float]) -> None:
    """RF-22: every step lies in [base, 2 x base], and thousands of them overflow nothing."""
    drawn = iter(luck)
    backoff = Backoff(clock=FakeClock(), random=lambda: next(drawn))
    for step in range(len(luck)):
        base = min(0.8 * 2.0 ** min(step, 10), 30.0)
        assert base <= backoff.next() <= 2 * base
