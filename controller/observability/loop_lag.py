"""How the event loop does: how late its timers fire, and how many tasks it has.

Late timers show that something blocks the loop, and with it leases, probes and all jobs; tasks that become more and more, that
something does not end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tfjob_operator.workqueue.metrics import Metric

if TYPE_CHECKING:
    from tfjob_operator.workqueue.clock import Clock
    from tfjob_operator.workqueue.metrics import MetricsProvider

PERIOD_S: Final = 0.5
"""A loop that is blocked for this long is noticed for certain; one that is blocked for a tenth of it, one time in ten. Two
wake-ups a second cost nothing that can be measured."""

# From a healthy millisecond to the 10 s after which a lease is in danger.
BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


LAG: Final = Metric(
    "tf_operator_event_loop_lag_seconds", "Seconds by which a timer of the event loop fired too late", BUCKETS, ()
)
TASKS: Final = Metric("tf_operator_event_loop_tasks", "Tasks that the event loop has", (), ())


class LoopLag:
    """Measures by how much a timer fires too late, and counts the tasks."""

    def __init__(self, metrics: MetricsProvider, clock: Clock) -> None:
        self._clock = clock
        self._lag = metrics.histogram(LAG)
        metrics.gauge(TASKS).set_function(lambda: len(asyncio.all_tasks()))

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due = self._clock.monotonic() + PERIOD_S
            await asyncio.sleep(PERIOD_S)
            self._lag.observe(max(0.0, self._clock.monotonic() - due))
