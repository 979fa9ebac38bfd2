"""Throttle: requests wait for the client-side limit, and long waits are logged (WR-05)."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from tfjob_operator.api.client.exchange import Throttle
from tfjob_operator.api.client.http import Request
from tfjob_operator.api.client.metrics import RequestMetrics
from tfjob_operator.workqueue import NO_METRICS, LoopClock, TokenBucket

REQUEST = Request("POST", "/api/v1/namespaces/ns/pods")


class Waits(RequestMetrics):
    """A limiter that makes each request wait as long as the test says, and its metrics."""

    def __init__(self, *seconds: float) -> None:
        super().__init__(NO_METRICS, "")
        self.seconds = list(seconds)
        self.counted: list[tuple[str, float]] = []

    async def wait(self) -> None:
        await asyncio.sleep(self.seconds.pop(0))

    def throttled(self, verb: str, seconds: float) -> None:
        self.counted.append((verb, round(seconds, 3)))


async def levels(*seconds: float) -> list[str]:
    """The levels of the log lines that these waits cause, one after the other."""
    waits = Waits(*seconds)
    throttle = Throttle(waits, waits, LoopClock())
    with capture_logs() as lines:
        for _ in seconds:
            await throttle.wait(REQUEST)
    assert waits.counted == [("POST", second) for second in seconds]
    return [line["log_level"] for line in lines]


async def test_short_waits_are_counted_but_not_worth_a_line() -> None:
    """WR-05, request_test.go:TestTryThrottleWithInfoContextDeadline: up to 50 ms nothing is logged."""
    assert await levels(0.0, 0.04) == []


async def test_a_wait_of_more_than_50_ms_is_logged_for_who_debugs() -> None:
    """WR-05: it is logged at level debug."""
    assert await levels(0.06, 1.0) == ["debug", "debug"]


async def test_a_wait_of_more_than_a_second_is_logged_louder_but_not_for_each_request() -> None:
    """WR-05: in a backlog every request waits, so the line at the higher level comes once in ten seconds."""
    assert await levels(1.1, 2.0, 3.0, 6.0) == ["warning", "debug", "debug", "warning"]


async def test_a_line_says_which_request_waited_and_how_long() -> None:
    waits = Waits(1.5)
    with capture_logs() as lines:
        await Throttle(waits, waits, LoopClock()).wait(REQUEST)
    assert lines == [
        {
            "event": "request_throttled_by_client",
            "log_level": "warning",
            "request": "POST /api/v1/namespaces/ns/pods",
            "waited_s": 1.5,
        }
    ]


async def test_a_cancelled_wait_gives_its_turn_to_the_next_one() -> None:
    """WR-05, throttle_test.go:TestWait."""
    waits = Waits()
    throttle = Throttle(TokenBucket(rate=1, burst=1), waits, LoopClock())
    await throttle.wait(REQUEST)
    first = asyncio.create_task(throttle.wait(REQUEST))
    second = asyncio.create_task(throttle.wait(REQUEST))
    await asyncio.sleep(0.5)
    first.cancel()
    await second
    assert asyncio.get_running_loop().time() <= 1.0 + 1e-6
