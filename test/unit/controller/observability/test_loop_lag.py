"""The histogram of the loop's lateness."""

from __future__ import annotations

import asyncio

import pytest

from fakes.virtual_loop import VirtualClock
from tfjob_operator.controller.observability.metrics import PERIOD_S, LoopLag, PrometheusMetrics, new_registry


class LateClock(VirtualClock):
    """A clock that is `late_s` seconds ahead of the loop."""

    def __init__(self) -> None:
        self.late_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.late_s


async def test_a_timer_that_fires_late_is_seen() -> None:
    """What blocks the loop delays leases and probes, and shows in nothing else."""
    registry, clock = new_registry(), LateClock()
    measuring = asyncio.create_task(LoopLag(PrometheusMetrics(registry), clock).run())
    await asyncio.sleep(PERIOD_S * 1.5)
    name = "tf_operator_event_loop_lag_seconds"
    assert registry.get_sample_value(f"{name}_sum") == 0.0
    clock.late_s = 3.0
    await asyncio.sleep(PERIOD_S)
    assert registry.get_sample_value(f"{name}_count") == 2.0
    assert registry.get_sample_value(f"{name}_sum") == pytest.approx(3.0)
    assert registry.get_sample_value(f"{name}_bucket", {"le": "2.5"}) == 1.0
    assert registry.get_sample_value("tf_operator_event_loop_tasks") == len(asyncio.all_tasks())
    measuring.cancel()
    await asyncio.wait([measuring])
