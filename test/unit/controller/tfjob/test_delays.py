"""Growing delays: each thing by itself."""

from __future__ import annotations

import time

from fakes.clock import FakeClock
from fakes.jobs import OWNER
from tfjob_operator.controller.tfjob.apply.conflicts import FIRST_DELAY_S, FORGIVEN_S, LONGEST_DELAY_S, Delays


async def test_the_delays_of_what_is_tried_grow_and_are_forgiven() -> None:
    """U9, D14: whoever edits a label again and again costs one patch in five minutes; one edit a month is mended at once."""
    clock = FakeClock()
    delays = Delays(clock)
    waits = []
    for _ in range(12):
        assert delays.wait_s(OWNER, "this") == 0
        waits.append(delays.tried(OWNER, "this"))
        assert delays.wait_s(OWNER, "that") == 0
        assert delays.wait_s(OWNER, "this") == waits[-1]
        clock.step(waits[-1])
    assert waits[:3] == [FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S]
    assert waits[-1] == LONGEST_DELAY_S
    clock.step(FORGIVEN_S + 1)
    assert delays.tried(OWNER, "this") == FIRST_DELAY_S
    delays.forget(OWNER)
    assert delays.wait_s(OWNER, "this") == 0


def test_a_try_costs_the_same_however_much_else_waits() -> None:
    """D14: ten thousand orphans that are refused took seconds; what is not tried any more is dropped all the same."""
    clock = FakeClock()
    delays = Delays(clock)
    before = time.process_time()
    for number in range(20_000):
        delays.tried(OWNER, f"orphan-{number}")
    assert time.process_time() - before < 1.0
    clock.step(FIRST_DELAY_S + FORGIVEN_S + 1)
    delays.tried(OWNER, "the last")
    assert [*delays._due[OWNER]] == ["the last"]
