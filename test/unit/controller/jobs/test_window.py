"""How long the write of a status waits for further changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.controller.jobs.draft import COUNTER_WINDOW_S, START_WINDOW_S, Window


def test_what_starts_waits_for_five_seconds_while_others_wait_and_for_one_else() -> None:
    """U12: a burst costs few writes, and a user who looks at one job sees the truth."""
    window = Window()
    assert window.left_s(100.0, starts=True, busy=True) == START_WINDOW_S
    assert window.left_s(100.5, starts=True, busy=False) == pytest.approx(COUNTER_WINDOW_S - 0.5)
    assert window.left_s(102.0, starts=True, busy=True) == pytest.approx(START_WINDOW_S - 2.0)
    assert window.left_s(103.0, starts=True, busy=False) <= 0


def test_what_was_written_opens_a_new_window() -> None:
    """Otherwise the next change would be written at once, and each one after it."""
    window = Window()
    window.left_s(100.0, starts=False, busy=False)
    window.close()
    assert window.left_s(150.0, starts=False, busy=False) == COUNTER_WINDOW_S
    assert window.left_s(150.5, starts=True, busy=True) == pytest.approx(COUNTER_WINDOW_S - 0.5)


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.booleans(), st.booleans()), min_size=1, max_size=20))
def test_no_wait_outlasts_its_window(steps: list[tuple[float, bool, bool]]) -> None:
    """What has ended is said within a second of the first such change, what has started within five."""
    window, now, opened, ended = Window(), 0.0, None, None
    for wait, starts, busy in steps:
        now += wait
        opened = now if opened is None else opened
        ended = now if ended is None and not starts else ended
        due = now + window.left_s(now, starts=starts, busy=busy)
        assert due <= max(now, opened + START_WINDOW_S) + COUNTER_WINDOW_S
        if ended is not None:
            assert due <= ended + COUNTER_WINDOW_S + 1e-6
