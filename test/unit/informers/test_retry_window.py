"""The window in which an internal error is retried at once."""

from __future__ import annotations

from fakes.clock import FakeClock
from tfjob_operator.informers.reflector import RetryWindow


def test_faults_are_retried_until_the_window_that_the_first_one_opened_is_over() -> None:
    """RF-19, retry_with_deadline_test.go:TestRetryWithDeadline"""
    clock = FakeClock()
    window = RetryWindow(30.0, clock)
    answers = []
    for _ in range(5):
        answers.append(window.allows())
        clock.step(10.0)
    assert answers == [True, True, True, False, False]


def test_a_minute_without_a_fault_makes_the_next_one_the_first_again() -> None:
    """RF-19, retry_with_deadline_test.go:TestRetryWithDeadline"""
    clock = FakeClock()
    window = RetryWindow(30.0, clock)
    window.allows()
    clock.step(40.0)
    assert not window.allows()
    clock.step(60.0)
    assert not window.allows(), "a minute, but not more"
    clock.step(60.1)
    assert window.allows()


def test_a_window_of_no_length_allows_nothing() -> None:
    """RF-19: the default"""
    assert not RetryWindow(0.0, FakeClock()).allows()
